#include <cstdint>

#include "proto/base/id.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/token.h"
#include "proto/catalog.pb.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/output.h"
#include "tools/firnkv/safe_file.h"

namespace firnkv {
namespace {

struct Options {
  std::string name;
  std::string file;
  absl::Duration life = kTokenLife;
  bool force = false;
};

absl::Status Store(const std::string& token, const Options& options) {
  SafeFile file(
      options.file,
      {.mode = 0600,
       .overwrite = options.force ? Overwrite::kReplace : Overwrite::kRefuse});
  RETURN_IF_ERROR(file.Open());
  RETURN_IF_ERROR(file.Write(StrCat(token, "\n")));
  return file.Commit();
}

ExitCode Run(Context& context, const Options& options) {
  const std::int64_t seconds = absl::ToInt64Seconds(options.life);
  if (seconds < 1 || seconds > std::int64_t{UINT32_MAX}) {
    return context.Fail(absl::InvalidArgumentError(
        "--life must be a second or more, e.g. --life 12h"));
  }
  const absl::StatusOr<AdminClient*> catalog = context.Catalog();
  if (!catalog.ok()) return context.Fail(catalog.status());
  v1::MintTokenRequest request;
  request.set_tenant_name(options.name);
  request.set_role(static_cast<std::uint32_t>(Role::kTenant));
  request.set_life_seconds(static_cast<std::uint32_t>(seconds));
  const auto response = (*catalog)->Call<v1::MintTokenResponse>(
      "CatalogService/MintToken", request);
  if (!response.ok()) return context.Fail(response.status());
  const std::string token = ToHex(response->token());
  if (options.file.empty()) {
    return context.Print(
        StrCat(token, "\n"),
        Json::Object().Set("tenant", options.name).Set("token", token));
  }
  if (const absl::Status status = Store(token, options); !status.ok()) {
    return context.Fail(status);
  }
  return context.Print(
      StrCat(options.file, ": a token of tenant ", options.name, ", good for ",
             absl::FormatDuration(options.life), "\n"),
      Json::Object().Set("tenant", options.name).Set("file", options.file));
}

}  // namespace

void AddTenantToken(CommandTree* tree) {
  tree->Add<Options>(
      "tenant token",
      "Make a token that speaks for a tenant where no uid map does "
      "(administrators): for containers, for workers without a local node.",
      [](Arguments* arguments, Options* options) {
        arguments->Place("NAME", &options->name, "The tenant.");
        arguments->Time("--life", &options->life, "How long it is good.");
        arguments->Text("--out", &options->file,
                        "Write it to this file, which only you can read, as "
                        "--token-file wants it; else it is printed.");
        arguments->Flag("--force", &options->force,
                        "Replace the file where it is there.");
      },
      Run);
}

}  // namespace firnkv
