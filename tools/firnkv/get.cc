// Reads back what put has stored, and checks it against its name.

#include <algorithm>
#include <vector>

#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/outcome.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tools/firnkv/command_tree.h"
#include "tools/firnkv/commands.h"
#include "tools/firnkv/context.h"
#include "tools/firnkv/file_blocks.h"
#include "tools/firnkv/safe_file.h"
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kBatchBytes = 16 * kMiB;

struct Options {
  std::string name;
  std::string output;
  std::string name_space = "files";
  bool force = false;
};

// Reads blocks [begin, begin + pieces->size()) of the chain into `pieces`,
// which have the right sizes. A block that is no hit is NOT_FOUND where it is
// gone, else what its outcome says.
absl::Status ReadBlocks(Context& context, Client* client,
                        const NamespaceHandle& name_space, const Chain& chain,
                        std::size_t begin, std::vector<std::string>* pieces) {
  std::vector<Buffer> buffers(pieces->size());
  std::vector<ReadTarget> targets(pieces->size());
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    buffers[i] = {.address = reinterpret_cast<std::byte*>((*pieces)[i].data()),
                  .length = (*pieces)[i].size()};
    targets[i].key = chain.block(begin + i).key;
    targets[i].anchor = chain.block(begin + i).place.anchor;
    targets[i].destination = absl::MakeConstSpan(&buffers[i], 1);
  }
  const ReadReport report = client->Read({.name_space = name_space,
                                          .blocks = absl::MakeSpan(targets),
                                          .deadline = context.timeout()});
  RETURN_IF_ERROR(report.status);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Outcome outcome = targets[i].outcome;
    if (outcome == Outcome::kHit) continue;
    const std::string what =
        begin + i == 0
            ? std::string("its manifest: ")
            : StrCat("block ", begin + i, " of ", chain.size() - 1, ": ");
    if (outcome == Outcome::kMiss || outcome == Outcome::kExpired) {
      return absl::NotFoundError(
          StrCat(what, OutcomeLabel(outcome),
                 ": a cache keeps nothing for ever; put the file again"));
    }
    return OutcomeStatus(outcome, what);
  }
  return absl::OkStatus();
}

absl::StatusOr<FileManifest> ReadManifest(Context& context, Client* client,
                                          const NamespaceHandle& name_space,
                                          const std::string& name) {
  std::vector<std::string> block = {std::string(kFileManifestBytes, '\0')};
  RETURN_IF_ERROR(ReadBlocks(context, client, name_space,
                             MakeFileChain(name, 0), 0, &block));
  return DecodeManifest(block[0]);
}

using Sink = std::function<absl::Status(std::string_view)>;

// The file's bytes, in order, to `sink`.
absl::Status ReadPieces(Context& context, Client* client,
                        const NamespaceHandle& name_space,
                        const std::string& name, const FileManifest& manifest,
                        const Sink& sink) {
  const std::uint64_t pieces = manifest.pieces();
  const Chain chain = MakeFileChain(name, pieces);
  const std::uint64_t batch = std::clamp<std::uint64_t>(
      kBatchBytes / manifest.block_bytes, 1, kMaxBatchKeys);
  FileNamer namer(manifest);
  for (std::uint64_t begin = 0; begin < pieces; begin += batch) {
    const std::uint64_t end = std::min(pieces, begin + batch);
    std::vector<std::string> bytes;
    for (std::uint64_t i = begin; i < end; ++i) {
      bytes.emplace_back(manifest.PieceBytes(i), '\0');
    }
    // The manifest is block 0.
    RETURN_IF_ERROR(
        ReadBlocks(context, client, name_space, chain, begin + 1, &bytes));
    for (const std::string& piece : bytes) {
      namer.Add(piece);
      RETURN_IF_ERROR(sink(piece));
    }
  }
  if (namer.Name() != name) {
    return absl::DataLossError(StrCat("WRONG BYTES: the content's name is ",
                                      namer.Name(),
                                      "; keep the nodes' logs and report it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileManifest> Get(Context& context, const Options& options) {
  ASSIGN_OR_RETURN(Client* const client, context.LocalClient());
  OpenNamespaceRequest open = FilesNamespace(options.name_space);
  open.create = false;
  open.deadline = context.timeout();
  ASSIGN_OR_RETURN(const NamespaceHandle name_space,
                   client->OpenNamespace(open));
  ASSIGN_OR_RETURN(const FileManifest manifest,
                   ReadManifest(context, client, name_space, options.name));
  if (options.output == "-") {
    RETURN_IF_ERROR(ReadPieces(
        context, client, name_space, options.name, manifest,
        [&](std::string_view piece) {
          context.world().out->write(
              piece.data(), static_cast<std::streamsize>(piece.size()));
          return absl::OkStatus();
        }));
    context.world().out->flush();
    return manifest;
  }
  SafeFile file(
      options.output,
      {.mode = 0644,
       .overwrite = options.force ? Overwrite::kReplace : Overwrite::kRefuse});
  RETURN_IF_ERROR(file.Open());
  RETURN_IF_ERROR(
      ReadPieces(context, client, name_space, options.name, manifest,
                 [&](std::string_view piece) { return file.Write(piece); }));
  RETURN_IF_ERROR(file.Commit());
  return manifest;
}

ExitCode Run(Context& context, const Options& options) {
  if (!IsFileName(options.name)) {
    context.Fail(absl::InvalidArgumentError(
        StrCat("'", options.name, "' is no name that put has printed")));
    return ExitCode::kUsage;
  }
  const absl::StatusOr<FileManifest> manifest = Get(context, options);
  if (!manifest.ok()) {
    const ExitCode code =
        context.Fail(Annotate(manifest.status(), options.name.substr(0, 12)));
    return absl::IsNotFound(manifest.status()) ? ExitCode::kPartial : code;
  }
  if (options.output == "-") return ExitCode::kOk;
  return context.Print(
      StrCat(options.output, ": ",
             FormatSize(static_cast<double>(manifest->file_bytes)),
             ", verified\n"),
      Json::Object()
          .Set("file", options.output)
          .Set("name", options.name)
          .Set("bytes", manifest->file_bytes));
}

}  // namespace

void AddGet(CommandTree* tree) {
  tree->Add<Options>(
      "get",
      "Read back a file by the name that put has printed, and verify it. Exit "
      "3 where blocks of it are gone.",
      [](Arguments* arguments, Options* options) {
        arguments->Place("NAME", &options->name, "64 hex digits.");
        arguments->Place("OUTPUT", &options->output,
                         "Where to; '-' is standard output.");
        arguments->Text("--namespace", &options->name_space, "Where from.");
        arguments->Flag("--force", &options->force,
                        "Replace the file where it is there.");
      },
      Run);
}

}  // namespace firnkv
