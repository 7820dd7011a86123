#include "proto/admin.pb.h"
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
  v1::ShowTenantRequest request;
  request.set_name(options.name);
  const auto tenant =
      (*catalog)->Call<v1::TenantResponse>("AdminService/ShowTenant", request);
  if (!tenant.ok()) return context.Fail(tenant.status());
  v1::ListNamespacesRequest list;
  list.set_tenant_name(tenant->tenant().name());
  const auto namespaces = (*catalog)->Call<v1::ListNamespacesResponse>(
      "AdminService/ListNamespaces", list);
  if (!namespaces.ok()) return context.Fail(namespaces.status());
  Json rows = Json::Array();
  for (const v1::NamespaceRow& row : namespaces->namespaces()) {
    rows.Append(NamespaceJson(row));
  }
  Json json = TenantJson(tenant->tenant());
  json.Set("namespace_versions", std::move(rows));
  return context.Print(TenantTable({tenant->tenant()}) + "\n" +
                           NamespaceTable({namespaces->namespaces().begin(),
                                           namespaces->namespaces().end()}),
                       json);
}

}  // namespace

void AddTenantShow(CommandTree* tree) {
  tree->Add<Options>(
      "tenant show", "Show one tenant and its namespaces.",
      [](Arguments* arguments, Options* options) {
        arguments->Place("NAME", &options->name, "Its name.");
      },
      Run);
}

}  // namespace firnkv
