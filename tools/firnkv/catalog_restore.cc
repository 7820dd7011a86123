#include "proto/admin.pb.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/safe_file.h"

namespace firnkv {
namespace {

struct Options {
  std::string file;
};

ExitCode Run(Context& context, const Options& options) {
  absl::StatusOr<std::string> state =
      ReadWholeFile(options.file, kMaxControlMessageBytes);
  if (!state.ok()) return context.Fail(state.status());
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::RestoreRequest request;
  request.set_state(*std::move(state));
  const auto response = (*catalog)->Call<v1::RestoreResponse>(
      "AdminService/Restore", std::move(request));
  if (!response.ok()) return context.Fail(response.status());
  return context.Print(
      StrCat("restored ", response->tenants(), " tenants and ",
             response->namespaces(), " namespaces from ", options.file,
             "\nNodes that have seen a later state refuse this one until "
             "firnkv catalog accept-restore.\n"),
      Json::Object()
          .Set("tenants", response->tenants())
          .Set("namespaces", response->namespaces()));
}

}  // namespace

void AddCatalogRestore(CommandTree* tree) {
  tree->Add<Options>(
      "catalog restore",
      "Put a backup into a catalog that has no namespaces yet.",
      [](Arguments* arguments, Options* options) {
        arguments->Place("FILE", &options->file,
                         "What catalog backup has written.");
      },
      Run);
}

}  // namespace firnkv
