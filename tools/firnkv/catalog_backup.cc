#include "proto/admin.pb.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/safe_file.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

struct Options {
  std::string file;
  bool force = false;
};

absl::Status Store(const std::string& state, const Options& options) {
  SafeFile file(
      options.file,
      {.mode = 0600,
       .overwrite = options.force ? Overwrite::kReplace : Overwrite::kRefuse});
  RETURN_IF_ERROR(file.Open());
  RETURN_IF_ERROR(file.Write(state));
  return file.Commit();
}

ExitCode Run(Context& context, const Options& options) {
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  const auto response = (*catalog)->Call<v1::BackupResponse>(
      "AdminService/Backup", v1::BackupRequest());
  if (!response.ok()) return context.Fail(response.status());
  if (const absl::Status status = Store(response->state(), options);
      !status.ok()) {
    return context.Fail(status);
  }
  const std::size_t bytes = response->state().size();
  return context.Print(
      StrCat(options.file, ": ", FormatSize(static_cast<double>(bytes)),
             " of the catalog's administrative state\n"),
      Json::Object().Set("file", options.file).Set("bytes", bytes));
}

}  // namespace

void AddCatalogBackup(CommandTree* tree) {
  tree->Add<Options>(
      "catalog backup",
      "Write the administrative state (cluster id, tenants, namespaces) to a "
      "file that only you can read. Keys come back from the nodes.",
      [](Arguments* arguments, Options* options) {
        arguments->Place("FILE", &options->file, "Where to.");
        arguments->Flag("--force", &options->force,
                        "Replace the file where it is there.");
      },
      Run);
}

}  // namespace firnkv
