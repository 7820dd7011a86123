// Stores files as blocks. Twice over each file: once for its name, once to
// write it; a file that changes in between is refused. All files are looked at
// before the first one is stored.

#include <cerrno>
#include <filesystem>
#include <fstream>
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
#include "tools/replay/text_table.h"

namespace firnkv {
namespace {

// Bytes written by one call.
constexpr std::uint64_t kBatchBytes = 16 * kMiB;

struct Options {
  std::vector<std::string> files;
  std::string name_space = "files";
  std::uint64_t block_bytes = kMiB;
  std::string wait = "local";
};

struct Put {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t already_there = 0;
};

class PieceReader {
 public:
  explicit PieceReader(const std::string& path)
      : path_(path), in_(path, std::ios::binary) {}

  absl::StatusOr<std::uint64_t> Size() {
    if (!in_) return absl::ErrnoToStatus(errno, "cannot be read");
    in_.seekg(0, std::ios::end);
    const std::streamoff size = in_.tellg();
    in_.seekg(0);
    // A directory can be opened and has a size, too.
    if (!in_ || size < 0 || !std::filesystem::is_regular_file(path_)) {
      return absl::InvalidArgumentError("it is no file");
    }
    return static_cast<std::uint64_t>(size);
  }
  void Rewind() { in_.seekg(0); }
  absl::Status Read(std::string* piece) {
    in_.read(piece->data(), static_cast<std::streamsize>(piece->size()));
    if (static_cast<std::size_t>(in_.gcount()) == piece->size()) {
      return absl::OkStatus();
    }
    return absl::AbortedError("it got shorter meanwhile");
  }

 private:
  const std::string path_;
  std::ifstream in_;
};

// Writes blocks of one chain, a batch at a time.
class ChainWriter {
 public:
  ChainWriter(Client* client, const NamespaceHandle& name_space,
              const Chain* chain, WriteWait wait_for, absl::Duration deadline)
      : client_(*client),
        name_space_(name_space),
        chain_(*chain),
        wait_for_(wait_for),
        deadline_(deadline) {}

  absl::Status Add(std::string bytes) {
    queued_bytes_ += bytes.size();
    queued_.push_back(std::move(bytes));
    return queued_bytes_ >= kBatchBytes ? Flush() : absl::OkStatus();
  }

  absl::Status Flush() {
    if (queued_.empty()) return absl::OkStatus();
    std::vector<ConstBuffer> sources(queued_.size());
    std::vector<WriteBlock> blocks(queued_.size());
    for (std::size_t i = 0; i < queued_.size(); ++i) {
      sources[i] = {
          .address = reinterpret_cast<const std::byte*>(queued_[i].data()),
          .length = queued_[i].size()};
      blocks[i].key = chain_.block(next_ + i).key;
      blocks[i].place = chain_.block(next_ + i).place;
      blocks[i].source = absl::MakeConstSpan(&sources[i], 1);
    }
    const WriteReport report = client_.Write({.name_space = name_space_,
                                              .blocks = absl::MakeSpan(blocks),
                                              .deadline = deadline_,
                                              .wait_for = wait_for_});
    RETURN_IF_ERROR(report.status);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      RETURN_IF_ERROR(
          OutcomeStatus(blocks[i].outcome, StrCat("block ", next_ + i)));
    }
    already_there_ += report.already_there;
    next_ += queued_.size();
    queued_.clear();
    queued_bytes_ = 0;
    return absl::OkStatus();
  }

  std::uint64_t already_there() const { return already_there_; }

 private:
  Client& client_;
  const NamespaceHandle name_space_;
  const Chain& chain_;
  const WriteWait wait_for_;
  const absl::Duration deadline_;
  std::vector<std::string> queued_;
  std::uint64_t queued_bytes_ = 0;
  std::size_t next_ = 0;
  std::uint64_t already_there_ = 0;
};

absl::StatusOr<std::string> NameOf(PieceReader* reader,
                                   const FileManifest& manifest) {
  FileNamer namer(manifest);
  for (std::uint64_t i = 0; i < manifest.pieces(); ++i) {
    std::string piece(manifest.PieceBytes(i), '\0');
    RETURN_IF_ERROR(reader->Read(&piece));
    namer.Add(piece);
  }
  reader->Rewind();
  return namer.Name();
}

absl::StatusOr<Put> PutFile(Context& context, Client* client,
                            const NamespaceHandle& name_space,
                            const std::string& path, const Options& options) {
  PieceReader reader(path);
  FileManifest manifest{.block_bytes = options.block_bytes};
  ASSIGN_OR_RETURN(manifest.file_bytes, reader.Size());
  if (manifest.pieces() > kMaxFilePieces) {
    return absl::InvalidArgumentError(
        StrCat("larger than ", kMaxFilePieces, " blocks; give --block-bytes"));
  }
  Put put{.bytes = manifest.file_bytes, .blocks = manifest.pieces() + 1};
  ASSIGN_OR_RETURN(put.name, NameOf(&reader, manifest));
  const Chain chain = MakeFileChain(put.name, manifest.pieces());
  ChainWriter writer(
      client, name_space, &chain,
      options.wait == "published" ? WriteWait::kPublished : WriteWait::kLocal,
      context.timeout());
  RETURN_IF_ERROR(writer.Add(EncodeManifest(manifest)));
  FileNamer namer(manifest);
  for (std::uint64_t i = 0; i < manifest.pieces(); ++i) {
    std::string piece(manifest.PieceBytes(i), '\0');
    RETURN_IF_ERROR(reader.Read(&piece));
    namer.Add(piece);
    RETURN_IF_ERROR(writer.Add(std::move(piece)));
  }
  RETURN_IF_ERROR(writer.Flush());
  if (namer.Name() != put.name) {
    return absl::AbortedError("it changed meanwhile; put it again");
  }
  put.already_there = writer.already_there();
  return put;
}

// A file that cannot be put is found before others are: their names would be
// lost under --json.
absl::Status LookAt(const Options& options) {
  for (const std::string& path : options.files) {
    RETURN_IF_ERROR(Annotate(PieceReader(path).Size().status(), path));
  }
  return absl::OkStatus();
}

ExitCode Run(Context& context, const Options& options) {
  if (const absl::Status found = LookAt(options); !found.ok()) {
    return context.Fail(found);
  }
  const absl::StatusOr<Client*> client = context.LocalClient();
  if (!client.ok()) return context.Fail(client.status());
  OpenNamespaceRequest open = FilesNamespace(options.name_space);
  open.deadline = context.timeout();
  const auto name_space = (*client)->OpenNamespace(open);
  if (!name_space.ok()) return context.Fail(name_space.status());
  std::string text;
  Json rows = Json::Array();
  for (const std::string& path : options.files) {
    const auto put = PutFile(context, *client, *name_space, path, options);
    if (!put.ok()) {
      // The names of those that are stored are not lost with it.
      if (!context.json()) *context.world().out << text << std::flush;
      return context.Fail(Annotate(put.status(), path));
    }
    StrAppend(&text, put->name, "  ", path, "\n");
    rows.Append(Json::Object()
                    .Set("file", path)
                    .Set("name", put->name)
                    .Set("bytes", put->bytes)
                    .Set("blocks", put->blocks)
                    .Set("already_there", put->already_there));
  }
  return context.Print(text, Json::Object().Set("files", std::move(rows)));
}

}  // namespace

void AddPut(CommandTree* tree) {
  tree->Add<Options>(
      "put",
      "Store files as blocks, through the local node. Prints the name of each "
      "(a hash of its content), for get.",
      [](Arguments* arguments, Options* options) {
        arguments->Places("FILE", &options->files, "Files.");
        arguments->Text("--namespace", &options->name_space,
                        "Where to; made where it is missing.");
        arguments->Size("--block-bytes", &options->block_bytes,
                        "Of every block but the last.");
        arguments->OneOf("--wait", &options->wait, {"local", "published"},
                         "Return once this node, or the whole cluster, can "
                         "read them.");
      },
      Run);
}

}  // namespace firnkv
