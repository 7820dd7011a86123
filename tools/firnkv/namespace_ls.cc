#include "proto/admin.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"

namespace firnkv {
namespace {

struct Options {
  std::string tenant;
};

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::ListNamespacesRequest request;
  request.set_tenant_name(options.tenant);
  const auto response = (*catalog)->Call<v1::ListNamespacesResponse>(
      "AdminService/ListNamespaces", request);
  if (!response.ok()) return context.Fail(response.status());
  Json rows = Json::Array();
  for (const v1::NamespaceRow& row : response->namespaces()) {
    rows.Append(NamespaceJson(row));
  }
  return context.Print(NamespaceTable({response->namespaces().begin(),
                                       response->namespaces().end()}),
                       Json::Object().Set("namespaces", std::move(rows)));
}

}  // namespace

void AddNamespaceLs(CommandTree* tree) {
  tree->Add<Options>(
      "namespace ls", "List namespaces, every version of them.",
      [](Arguments* arguments, Options* options) {
        arguments->Text("--tenant", &options->tenant,
                        "Whose; all that you may see where it is not given.");
      },
      Run);
}

}  // namespace firnkv
