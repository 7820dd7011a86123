// What runs, what does not, and what is wrong with it: the catalog, every node
// that it knows, and the local node. A part that does not answer is said, and
// the others are shown all the same.

#include "proto/base/status.h"

#include <vector>

#include "proto/admin.pb.h"
#include "proto/base/text.h"
#include "proto/node.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

struct Options {
  bool local = false;
  std::uint64_t want_nodes = 0;
};

// One answer put together.
struct Findings {
  std::string text;
  Json json = Json::Object();
  // Sentences.
  std::vector<std::string> degraded;
  bool anything_answers = false;
};

void ShowCatalog(const std::string& address,
                 const v1::CatalogStatusResponse& status, Findings* findings) {
  findings->anything_answers = true;
  StrAppend(&findings->text, "catalog ", address, ": up ",
            FormatAge(status.uptime_seconds()), ", version ", status.version(),
            ", cluster ", ShortHex(status.cluster()), ", incarnation ",
            status.incarnation().incarnation(), "\n  ",
            CountOf(status.tenants(), "tenant"), ", ",
            CountOf(status.namespaces(), "namespace"), ", ",
            CountOf(status.keys(), "key"), " at ",
            CountOf(status.locations(), "place"), ", index ",
            FormatSize(static_cast<double>(status.index_bytes())), "\n");
  findings->json.Set("catalog",
                     Json::Object()
                         .Set("address", address)
                         .Set("cluster", ToHex(status.cluster()))
                         .Set("version", status.version())
                         .Set("uptime_seconds", status.uptime_seconds())
                         .Set("incarnation", status.incarnation().incarnation())
                         .Set("sequence", status.incarnation().sequence())
                         .Set("tenants", status.tenants())
                         .Set("namespaces", status.namespaces())
                         .Set("keys", status.keys())
                         .Set("locations", status.locations())
                         .Set("index_bytes", status.index_bytes())
                         .Set("nodes_alive", status.nodes_alive())
                         .Set("nodes_expired", status.nodes_expired()));
}

// What a node says of itself that an operator should look at.
void JudgeNode(const std::string& name, const v1::NodeStatusResponse& status,
               Findings* findings) {
  if (status.catalog_link() != "registered") {
    findings->degraded.push_back(StrCat(
        name, " is not registered at the catalog (", status.catalog_link(),
        "): its blocks are found by its own "
        "sessions only"));
  }
  if (status.corrupt_copies() > 0) {
    findings->degraded.push_back(StrCat(name, " has isolated ",
                                        status.corrupt_copies(),
                                        " corrupt copies: check its memory"));
  }
}

void ShowNode(const std::string& name, const v1::NodeStatusResponse& status,
              Findings* findings, Json* nodes) {
  findings->anything_answers = true;
  StrAppend(
      &findings->text, name, ": up ", FormatAge(status.uptime_seconds()), ", ",
      status.catalog_link(), ", DRAM ",
      FormatSize(static_cast<double>(status.dram_used_bytes())), " of ",
      FormatSize(static_cast<double>(status.dram_target_bytes())), ", ",
      FormatSize(static_cast<double>(status.dram_mapped_bytes())), " mapped",
      status.dram_retiring_bytes() == 0
          ? std::string()
          : StrCat(
                ", ",
                FormatSize(static_cast<double>(status.dram_retiring_bytes())),
                " retiring"),
      ", ", CountOf(status.blocks(), "block"), ", ",
      CountOf(status.evictions(), "eviction"), ", ",
      CountOf(status.sessions(), "session"), ", ",
      CountOf(status.leases(), "lease"),
      status.drain().empty() || status.drain() == "serving"
          ? std::string()
          : StrCat(", drains: ", status.drain()),
      "\n");
  JudgeNode(name, status, findings);
  Json json = NodeStatusJson(status);
  json.Set("name", name);
  nodes->Append(std::move(json));
}

void AskNode(Context& context, const std::string& name,
             const std::string& address, Findings* findings, Json* nodes) {
  absl::StatusOr<v1::NodeStatusResponse> status;
  const auto node = context.NodeAt(address);
  if (node.ok()) {
    status = (*node)->Call<v1::NodeStatusResponse>("NodeService/Status",
                                                   v1::NodeStatusRequest());
  } else {
    status = node.status();
  }
  if (status.ok()) return ShowNode(name, *status, findings, nodes);
  findings->degraded.push_back(StrCat(name, " does not answer at ", address,
                                      ": ", OneLine(status.status())));
  nodes->Append(Json::Object()
                    .Set("name", name)
                    .Set("address", address)
                    .Set("error", OneLine(status.status())));
}

void AskCluster(Context& context, const Options& options, Findings* findings) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) {
    findings->degraded.push_back(
        StrCat("the catalog cannot be asked: ", OneLine(catalog.status())));
    return;
  }
  const auto status = (*catalog)->Call<v1::CatalogStatusResponse>(
      "AdminService/CatalogStatus", v1::CatalogStatusRequest());
  if (!status.ok()) {
    findings->degraded.push_back(StrCat("the catalog at ",
                                        (*catalog)->address(), ": ",
                                        OneLine(status.status())));
    return;
  }
  ShowCatalog((*catalog)->address(), *status, findings);
  const auto rows = (*catalog)->Call<v1::ListNodesResponse>(
      "AdminService/ListNodes", v1::ListNodesRequest());
  if (!rows.ok()) {
    findings->degraded.push_back(
        StrCat("the list of nodes: ", OneLine(rows.status())));
    return;
  }
  Json nodes = Json::Array();
  std::uint64_t alive = 0;
  for (const v1::NodeRow& row : rows->nodes()) {
    const std::string name = StrCat("node ", ShortHex(row.address().node()));
    if (row.state() == "alive") {
      ++alive;
      AskNode(context, name, row.address().control_address(), findings, &nodes);
      continue;
    }
    nodes.Append(NodeJson(row));
    findings->degraded.push_back(
        StrCat(name, " is ", row.state(), ": last seen ",
               FormatAge(row.last_seen_millis_ago() / 1000), " ago at ",
               row.address().control_address()));
  }
  findings->json.Set("nodes", std::move(nodes));
  if (alive < options.want_nodes) {
    findings->degraded.push_back(
        StrCat(alive, " nodes are alive, ", options.want_nodes, " wanted"));
  }
  if (rows->nodes().empty()) {
    findings->degraded.push_back(
        "no node has registered: does one run with this catalog as its "
        "node.catalog?");
  }
}

void AskLocal(Context& context, Findings* findings) {
  const absl::StatusOr<Client*> client = context.LocalClient();
  if (!client.ok()) {
    findings->degraded.push_back(
        StrCat("the local node: ", OneLine(client.status())));
    return;
  }
  findings->anything_answers = true;
  const Client::About about = (*client)->Describe();
  StrAppend(&findings->text, "local node ", ShortHex(about.node.view()), " at ",
            context.socket(), ": serves you as tenant ", about.tenant_name,
            about.mapping ? ", blocks are mapped" : ", blocks come by stream",
            "\n");
  findings->json.Set(
      "local_node", Json::Object()
                        .Set("socket", context.socket())
                        .Set("id", ToHex(about.node))
                        .Set("cluster", ToHex(about.cluster))
                        .Set("tenant", about.tenant_name)
                        .Set("mapping", about.mapping)
                        .Set("catalog_address", about.catalog_address)
                        .Set("largest_block_bytes", about.largest_block_bytes));
}

ExitCode Run(Context& context, const Options& options) {
  Findings findings;
  if (!options.local) AskCluster(context, options, &findings);
  // Not everybody has one; who names it wants to know.
  if (options.local || context.names_socket()) AskLocal(context, &findings);
  Json degraded = Json::Array();
  for (const std::string& sentence : findings.degraded) {
    StrAppend(&findings.text, "DEGRADED: ", sentence, "\n");
    degraded.Append(sentence);
  }
  if (findings.degraded.empty()) StrAppend(&findings.text, "all is well\n");
  findings.json.Set("degraded", std::move(degraded));
  ExitCode code = ExitCode::kOk;
  if (!findings.degraded.empty()) {
    code = findings.anything_answers ? ExitCode::kPartial : ExitCode::kFailure;
  }
  return context.Print(findings.text, findings.json, code);
}

}  // namespace

void AddStatus(CommandTree* tree) {
  tree->Add<Options>(
      "status",
      "What runs and what does not: the catalog, its nodes, the local node. "
      "Exit 3 where something is degraded.",
      [](Arguments* arguments, Options* options) {
        arguments->Flag("--local", &options->local, "Only the local node.");
        arguments->Count("--nodes", &options->want_nodes,
                         "Degraded with fewer nodes than this alive.");
      },
      Run);
}

}  // namespace firnkv
