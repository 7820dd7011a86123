#include "proto/admin.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"

namespace firnkv {
namespace {

struct Options {
  std::string name;
  std::string tenant;
  std::uint32_t version = 0;
};

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::ShowNamespaceRequest request;
  request.set_tenant_name(context.TenantName(options.tenant));
  request.set_name(options.name);
  request.set_version(options.version);
  const auto response = (*catalog)->Call<v1::NamespaceResponse>(
      "AdminService/ShowNamespace", request);
  if (!response.ok()) return context.Fail(response.status());
  return context.Print(NamespaceText(response->name_space()),
                       NamespaceJson(response->name_space()));
}

}  // namespace

void AddNamespaceShow(CommandTree* tree) {
  tree->Add<Options>(
      "namespace show", "Show one version of a namespace.",
      [](Arguments* arguments, Options* options) {
        arguments->Place("NAME", &options->name, "Its name.");
        arguments->Text("--tenant", &options->tenant,
                        "Whose; yours, or for administrators 'default'.");
        arguments->Count("--version-number", &options->version,
                         "Which version; 0 is the newest.");
      },
      Run);
}

}  // namespace firnkv
