#include "tools/firnkv/run.h"

#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"

namespace firnkv {
namespace {

constexpr char kAbout[] =
    "Administers a FirnKV cluster, and plays request traces against it.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 done in part or a "
    "miss.";

void AddGlobals(CommandTree* tree, GlobalOptions* options) {
  Arguments globals = tree->Globals();
  globals.Text("--socket", &options->socket,
               "Session socket of the local node (or FIRNKV_CLI_SOCKET; else "
               "/run/firnkv/node.sock or below $XDG_RUNTIME_DIR).");
  globals.Text("--catalog", &options->catalog,
               "HOST:PORT of the catalog (or FIRNKV_CLI_CATALOG; else what the "
               "local node says, else 127.0.0.1:7400).");
  globals.Text("--secret-file", &options->secret_file,
               "The cluster's secret: makes you an administrator (or "
               "FIRNKV_CLI_SECRET_FILE; else that of a data directory you can "
               "read).");
  globals.Text("--token-file", &options->token_file,
               "A token in hex, instead (or FIRNKV_CLI_TOKEN_FILE).");
  globals.Count("--node-uid", &options->node_uid,
                "The uid under which the local node runs, where it is neither "
                "yours nor root's (or FIRNKV_CLI_NODE_UID).");
  globals.Flag("--json", &options->json, "Answer in JSON.");
  globals.Time("--timeout", &options->timeout, "Longest wait for one answer.");
}

void AddAll(CommandTree* tree) {
  AddStatus(tree);
  tree->AddNoun("tenant", "Tenants: who owns namespaces.");
  AddTenantCreate(tree);
  AddTenantLs(tree);
  AddTenantShow(tree);
  AddTenantToken(tree);
  tree->AddNoun("namespace",
                "Namespaces: one tenant's blocks under one state contract.");
  AddNamespaceCreate(tree);
  AddNamespaceLs(tree);
  AddNamespaceShow(tree);
  AddNamespaceClear(tree);
  tree->AddNoun("node", "Cache nodes.");
  AddNodeLs(tree);
  AddNodeDrain(tree);
  AddNodeSetDram(tree);
  tree->AddNoun("key", "Single blocks.");
  AddKeyExplain(tree);
  tree->AddNoun("catalog", "The catalog's own state.");
  AddCatalogBackup(tree);
  AddCatalogRestore(tree);
  AddCatalogAcceptRestore(tree);
  AddPut(tree);
  AddGet(tree);
  AddReplay(tree);
  tree->AddNoun("trace", "Request traces.");
  AddTraceGenerate(tree);
}

}  // namespace

ExitCode RunFirnkv(absl::Span<const std::string> arguments,
                   Surroundings* world) {
  GlobalOptions options;
  CommandTree tree(kAbout);
  tree.SetVersion("firnkv " FIRNKV_VERSION);
  AddGlobals(&tree, &options);
  AddAll(&tree);
  const CommandTree::Parsed parsed =
      tree.Parse(arguments, world->out, world->err);
  if (parsed.run == nullptr) return parsed.exit_code;
  Context context(options, world);
  return parsed.run(context);
}

}  // namespace firnkv
