#include "proto/admin.pb.h"
#include "proto/base/text.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"

namespace firnkv {
namespace {

struct Options {
  std::string name;
};

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::CreateTenantRequest request;
  request.set_name(options.name);
  const auto response = (*catalog)->Call<v1::TenantResponse>(
      "AdminService/CreateTenant", request);
  if (!response.ok()) return context.Fail(response.status());
  const v1::TenantRow& tenant = response->tenant();
  return context.Print(
      StrCat("tenant ", tenant.name(), " made: ", ToHex(tenant.tenant()),
             "\nLet uids in at a node by its option sessions.uid_map.\n"),
      TenantJson(tenant));
}

}  // namespace

void AddTenantCreate(CommandTree* tree) {
  tree->Add<Options>(
      "tenant create", "Make a tenant (administrators).",
      [](Arguments* arguments, Options* options) {
        arguments->Place("NAME", &options->name, "Its name.");
      },
      Run);
}

}  // namespace firnkv
