#include "server/node/node_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/types/span.h"
#include "client/transport/descriptor.h"
#include "proto/base/checksum.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// The encoded state is under 400 bytes; a longer file is none of ours.
constexpr std::size_t kMostStateBytes = 4096;
constexpr std::string_view kFirstLine = "firnkv-node-state 1\n";

std::string Hex64(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(value));
  return text;
}

std::string ChecksumLine(std::string_view text) {
  const std::uint32_t crc = Crc32c(absl::MakeSpan(
      reinterpret_cast<const std::byte*>(text.data()), text.size()));
  return StrCat("crc32c ", Hex64(crc), "\n");
}

// Takes "name value\n" off the front of `text`; empty where it is not there.
std::string_view TakeLine(std::string_view name, std::string_view* text) {
  if (text->substr(0, name.size()) != name ||
      text->substr(name.size(), 1) != " ") {
    return {};
  }
  const std::size_t end = text->find('\n');
  if (end == std::string_view::npos) return {};
  const std::string_view value =
      text->substr(name.size() + 1, end - name.size() - 1);
  text->remove_prefix(end + 1);
  return value;
}

template <typename Id>
bool TakeId(std::string_view name, std::string_view* text, Id* id) {
  const auto bytes = FromHex(TakeLine(name, text));
  const auto parsed = bytes ? Id::FromBytes(*bytes) : std::nullopt;
  if (!parsed) return false;
  *id = *parsed;
  return true;
}

bool TakeNumber(std::string_view name, std::string_view* text,
                std::uint64_t* number) {
  const std::string_view digits = TakeLine(name, text);
  if (digits.size() != 16) return false;
  const char* const end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, *number, 16);
  return result.ec == std::errc() && result.ptr == end;
}

bool TakeEpoch(std::string_view name, std::string_view* text,
               NodeEpoch* epoch) {
  std::uint64_t number = 0;
  if (!TakeNumber(name, text, &number)) return false;
  *epoch = NodeEpoch{number};
  return true;
}

absl::Status SystemError(std::string_view what, const std::string& path) {
  const int error = errno;
  return absl::InternalError(
      StrCat(what, " ", path, ": ", std::strerror(error)));
}

absl::Status WriteSynced(const std::string& path, std::string_view text) {
  const Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.get() < 0) return SystemError("open", path);
  while (!text.empty()) {
    const ssize_t wrote = write(file.get(), text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return SystemError("write", path);
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (fsync(file.get()) != 0) return SystemError("fsync", path);
  return absl::OkStatus();
}

// nullopt: there is no such file.
absl::StatusOr<std::optional<std::string>> ReadWhole(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT) return std::nullopt;
    return SystemError("open", path);
  }
  std::string text(kMostStateBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got =
        read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError("read", path);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

absl::Status CheckIncarnation(const Incarnation& seen, const Incarnation& now) {
  if (now.incarnation < seen.incarnation) {
    return absl::FailedPreconditionError(
        StrCat("the catalog is at incarnation ", now.incarnation,
               ", this node has seen ", seen.incarnation,
               ": it was restored from a backup; see `firnkv catalog "
               "accept-restore`"));
  }
  if (now.incarnation > seen.incarnation) return absl::OkStatus();
  if (now.random_id != seen.random_id) {
    return absl::FailedPreconditionError(
        StrCat("two catalogs say that they are incarnation ", now.incarnation,
               " of this cluster: one runs on a copied directory"));
  }
  if (now.sequence < seen.sequence) {
    return absl::FailedPreconditionError(
        StrCat("the catalog is at sequence ", now.sequence, " of incarnation ",
               now.incarnation, ", this node has seen ", seen.sequence,
               ": it lost administrative writes"));
  }
  return absl::OkStatus();
}

std::string EncodeNodeMemory(const NodeMemory& memory) {
  std::string text(kFirstLine);
  const auto line = [&text](std::string_view name, std::string_view value) {
    StrAppend(&text, name, " ", value, "\n");
  };
  const auto number = [](auto value) {
    return Hex64(static_cast<std::uint64_t>(value));
  };
  line("node", ToHex(memory.node));
  line("cluster", ToHex(memory.cluster));
  line("registered-epoch", number(memory.registered_epoch));
  line("attempted-epoch", number(memory.attempted_epoch));
  line("incarnation", number(memory.seen.incarnation));
  line("incarnation-id", ToHex(memory.seen.random_id));
  line("incarnation-sequence", number(memory.seen.sequence));
  line("credentials", number(memory.seen.credentials));
  return text + ChecksumLine(text);
}

absl::StatusOr<NodeMemory> DecodeNodeMemory(std::string_view text) {
  const std::string_view whole = text;
  if (text.substr(0, kFirstLine.size()) != kFirstLine) {
    return absl::DataLossError("not a node's state, or of a newer version");
  }
  text.remove_prefix(kFirstLine.size());
  NodeMemory memory;
  const bool complete =
      TakeId("node", &text, &memory.node) &&
      TakeId("cluster", &text, &memory.cluster) &&
      TakeEpoch("registered-epoch", &text, &memory.registered_epoch) &&
      TakeEpoch("attempted-epoch", &text, &memory.attempted_epoch) &&
      TakeNumber("incarnation", &text, &memory.seen.incarnation) &&
      TakeId("incarnation-id", &text, &memory.seen.random_id) &&
      TakeNumber("incarnation-sequence", &text, &memory.seen.sequence) &&
      TakeNumber("credentials", &text, &memory.seen.credentials);
  if (!complete || memory.node.IsZero()) {
    return absl::DataLossError("a field is missing or malformed");
  }
  if (text != ChecksumLine(whole.substr(0, whole.size() - text.size()))) {
    return absl::DataLossError("checksum mismatch");
  }
  return memory;
}

absl::StatusOr<std::unique_ptr<FileNodeState>> FileNodeState::Open(
    std::string path, Random* random) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadWhole(path));
  if (!text) {
    NodeMemory fresh;
    fresh.node = NodeId::Make(random);
    std::unique_ptr<FileNodeState> state(
        new FileNodeState(std::move(path), NodeMemory{}));
    RETURN_IF_ERROR(state->Save(fresh));
    return state;
  }
  const absl::StatusOr<NodeMemory> memory = DecodeNodeMemory(*text);
  if (!memory.ok()) {
    return absl::Status(
        memory.status().code(),
        StrCat(path, ": ", ToStd(memory.status().message()),
               "\n  it holds who this node is and what it has seen of its "
               "catalog; restore the file from a copy, or remove it: the node "
               "then joins as a new one, and the next catalog that it meets is "
               "believed whatever it says"));
  }
  return std::unique_ptr<FileNodeState>(
      new FileNodeState(std::move(path), *memory));
}

absl::Status FileNodeState::Save(const NodeMemory& memory) {
  const std::string beside = path_ + ".new";
  RETURN_IF_ERROR(WriteSynced(beside, EncodeNodeMemory(memory)));
  if (rename(beside.c_str(), path_.c_str()) != 0) {
    return SystemError("rename", path_);
  }
  // The name too must survive a power cut.
  const std::size_t slash = path_.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const Descriptor directory(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) {
    return SystemError("fsync", folder);
  }
  memory_ = memory;
  return absl::OkStatus();
}

}  // namespace firnkv
