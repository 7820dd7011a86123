// Every command of the CLI: each adds itself to the tree, in a file of its own
// name.

#ifndef FIRNKV_TOOLS_FIRNKV_COMMANDS_H_
#define FIRNKV_TOOLS_FIRNKV_COMMANDS_H_

namespace firnkv {

class CommandTree;

void AddCatalogAcceptRestore(CommandTree* tree);
void AddCatalogBackup(CommandTree* tree);
void AddCatalogRestore(CommandTree* tree);
void AddGet(CommandTree* tree);
void AddKeyExplain(CommandTree* tree);
void AddNamespaceClear(CommandTree* tree);
void AddNamespaceCreate(CommandTree* tree);
void AddNamespaceLs(CommandTree* tree);
void AddNamespaceShow(CommandTree* tree);
void AddNodeDrain(CommandTree* tree);
void AddNodeLs(CommandTree* tree);
void AddNodeSetDram(CommandTree* tree);
void AddPut(CommandTree* tree);
void AddReplay(CommandTree* tree);
void AddStatus(CommandTree* tree);
void AddTenantCreate(CommandTree* tree);
void AddTenantLs(CommandTree* tree);
void AddTenantShow(CommandTree* tree);
void AddTenantToken(CommandTree* tree);
void AddTraceGenerate(CommandTree* tree);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_COMMANDS_H_
