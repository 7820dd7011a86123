#include "proto/admin.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"

namespace firnkv {
namespace {

struct Options {};

ExitCode Run(Context& context, const Options&) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  const auto response = (*catalog)->Call<v1::ListTenantsResponse>(
      "AdminService/ListTenants", v1::ListTenantsRequest());
  if (!response.ok()) return context.Fail(response.status());
  Json json = Json::Array();
  for (const v1::TenantRow& row : response->tenants()) {
    json.Append(TenantJson(row));
  }
  return context.Print(
      TenantTable({response->tenants().begin(), response->tenants().end()}),
      Json::Object().Set("tenants", std::move(json)));
}

}  // namespace

void AddTenantLs(CommandTree* tree) {
  tree->Add<Options>(
      "tenant ls", "List the tenants that you may see.",
      [](Arguments*, Options*) {}, Run);
}

}  // namespace firnkv
