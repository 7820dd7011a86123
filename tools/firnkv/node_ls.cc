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
  const auto response = (*catalog)->Call<v1::ListNodesResponse>(
      "AdminService/ListNodes", v1::ListNodesRequest());
  if (!response.ok()) return context.Fail(response.status());
  Json rows = Json::Array();
  for (const v1::NodeRow& row : response->nodes()) rows.Append(NodeJson(row));
  return context.Print(
      NodeTable({response->nodes().begin(), response->nodes().end()}),
      Json::Object().Set("nodes", std::move(rows)));
}

}  // namespace

void AddNodeLs(CommandTree* tree) {
  tree->Add<Options>(
      "node ls", "List the nodes that the catalog knows (administrators).",
      [](Arguments*, Options*) {}, Run);
}

}  // namespace firnkv
