#include "proto/admin.pb.h"
#include "proto/base/text.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"

namespace firnkv {
namespace {

struct Options {
  bool yes = false;
};

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  if (!options.yes) {
    const absl::StatusOr<bool> confirmed = context.Confirm(
        "Nodes will take this catalog's state for the newest, all clear epochs "
        "are raised (every block is gone) and credentials expire. Accept it?",
        "--yes");
    if (!confirmed.ok()) {
      context.Fail(confirmed.status());
      return ExitCode::kUsage;
    }
    if (!*confirmed) {
      return context.Fail(absl::CancelledError("nothing was accepted"));
    }
  }
  const auto response = (*catalog)->Call<v1::AcceptRestoreResponse>(
      "AdminService/AcceptRestore", v1::AcceptRestoreRequest());
  if (!response.ok()) return context.Fail(response.status());
  return context.Print(
      StrCat("accepted: incarnation ", response->incarnation().incarnation(),
             ", clear epochs of ", response->namespaces_raised(),
             " namespaces raised\n"),
      Json::Object()
          .Set("incarnation", response->incarnation().incarnation())
          .Set("namespaces_raised", response->namespaces_raised()));
}

}  // namespace

void AddCatalogAcceptRestore(CommandTree* tree) {
  tree->Add<Options>(
      "catalog accept-restore",
      "Let nodes follow a restored or copied catalog, whose state they refuse "
      "since it may undo clears.",
      [](Arguments* arguments, Options* options) {
        arguments->Flag("--yes", &options->yes, "Do not ask.");
      },
      Run);
}

}  // namespace firnkv
