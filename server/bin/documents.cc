#include "server/bin/documents.h"

#include <cstdio>
#include <filesystem>

#include "client/transport/local_channel.h"
#include "client/transport/real_seams.h"
#include "proto/base/text.h"
#include "server/base/config.h"
#include "server/base/metrics.h"
#include "server/bin/daemon_options.h"
#include "server/bin/process.h"
#include "server/catalog/catalog.h"
#include "server/catalog/rocks_store.h"
#include "server/node/node.h"
#include "server/node/node_options.h"
#include "server/node/node_state.h"

namespace firnkv {
namespace {

// Paths that would differ by who prints.
constexpr char kDataDirectory[] = "/var/lib/firnkv";
constexpr char kSocket[] = "/run/firnkv/node.sock";

struct NodeDeclarations {
  NodeDeclarations() {
    daemon.data_dir = kDataDirectory;
    daemon.http = "127.0.0.1:7412";
    node.socket = kSocket;
    Describe(&daemon, &list);
    Describe(&node, &list);
    Describe(&catalog, &list);
  }
  DaemonOptions daemon;
  NodeOptions node;
  CatalogOptions catalog;
  OptionList list;
};

struct CatalogDeclarations {
  CatalogDeclarations() {
    daemon.data_dir = StrCat(kDataDirectory, "-catalog");
    daemon.http = "127.0.0.1:7402";
    Describe(&daemon, &list);
    Describe(&catalog, &list);
  }
  DaemonOptions daemon;
  CatalogOptions catalog;
  OptionList list;
};

int PrintConfig() {
  std::string text = StrCat(
      "# Options\n\n"
      "Printed by `firnkv-node --print-document config`; do not edit.\n\n"
      "Each daemon reads one YAML file (`--config FILE`); an option `a.b` is "
      "`a: {b: ...}` there, `--a-b` as a flag and `FIRNKV_A_B` in the "
      "environment. Later ones win: defaults, file, environment, flags. An "
      "unknown key, a missing unit or a value out of bounds is refused with "
      "its line. `--print-config` prints all options as they would be used, "
      "`--check` whether they can work on this machine. Whole files to copy "
      "stand in `config/`.\n\n"
      "## firnkv-node\n\n"
      "`catalog.` options are those of the embedded catalog; they do nothing "
      "where `node.catalog` names another one.\n\n",
      RenderOptionsTable(NodeDeclarations().list), "\n## firnkv-catalog\n\n",
      RenderOptionsTable(CatalogDeclarations().list));
  std::fputs(text.c_str(), stdout);
  return 0;
}

// Names need the parts that declare them: a node and a catalog are made, never
// started, in a directory that goes away again.
int PrintMetrics() {
  std::error_code error;
  std::string directory =
      std::filesystem::temp_directory_path(error) / "firnkv-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) {
    return Fail("firnkv-node", absl::InternalError("no temporary directory"));
  }
  const auto seams = RealSeams::Make({}, nullptr);
  auto store = RocksStore::Open(directory + "/catalog");
  if (!seams.ok()) return Fail("firnkv-node", seams.status());
  auto state =
      FileNodeState::Open(directory + "/node.state", (*seams)->seams().random);
  if (!store.ok()) return Fail("firnkv-node", store.status());
  if (!state.ok()) return Fail("firnkv-node", state.status());
  MetricList node_list;
  MetricList catalog_list;
  {
    Catalog catalog({}, store->get(), (*seams)->seams(), {});
    catalog.Describe(&catalog_list);
    Node::Parts parts;
    parts.state = state->get();
    parts.catalog = std::make_unique<LocalChannel>((*seams)->seams().executor,
                                                   catalog.services());
    Node node({}, (*seams)->seams(), std::move(parts));
    node.DescribeMetrics(&node_list);
    std::fputs(
        StrCat("# Metrics\n\n"
               "Printed by `firnkv-node --print-document metrics`; do not "
               "edit.\n\n"
               "Prometheus text at `/metrics` of each daemon's "
               "`http.address`. Durations are seconds, sizes bytes.\n\n"
               "## firnkv-node\n\n",
               RenderMetricsTable(node_list), "\n## firnkv-catalog\n\n",
               RenderMetricsTable(catalog_list))
            .c_str(),
        stdout);
  }
  store->reset();
  std::filesystem::remove_all(directory, error);
  return 0;
}

}  // namespace

int PrintDocument(const std::string& name) {
  if (name == "config") return PrintConfig();
  if (name == "metrics") return PrintMetrics();
  if (name == "node.yaml") {
    std::fputs(RenderYaml(NodeDeclarations().list,
                          "firnkv-node: every option at its default.")
                   .c_str(),
               stdout);
    return 0;
  }
  std::fputs(RenderYaml(CatalogDeclarations().list,
                        "firnkv-catalog: every option at its default.")
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace firnkv
