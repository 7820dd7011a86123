#include "tests/process/hostile_staging.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "proto/base/checksum.h"
#include "proto/base/outcome.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kStagingBytes = 64 * kKiB;
constexpr std::uint64_t kBigBlockBytes = kMiB;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Descriptor MemfdOf(std::uint64_t bytes, unsigned flags, int seals) {
  Descriptor fd(memfd_create("hostile", MFD_CLOEXEC | flags));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return {};
  if (seals != 0) fcntl(fd.get(), F_ADD_SEALS, seals);
  return fd;
}

Descriptor Reopened(const Descriptor& fd, int flags) {
  return Descriptor(
      open(StrCat("/proc/self/fd/", fd.get()).c_str(), flags | O_CLOEXEC));
}

Descriptor OfAPair(int which) {
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return {};
  }
  Descriptor other(pair[1 - which]);
  return Descriptor(pair[which]);
}

Descriptor OfAPipe() {
  int pipe[2] = {-1, -1};
  if (pipe2(pipe, O_CLOEXEC) != 0) return {};
  Descriptor other(pipe[1]);
  return Descriptor(pipe[0]);
}

struct Kind {
  const char* name;
  std::function<Descriptor()> make;
  std::uint64_t said = kStagingBytes;
};

std::vector<Kind> WrongKinds(const std::string& folder) {
  const auto memfd = [](unsigned flags, int seals,
                        std::uint64_t bytes = kStagingBytes) {
    return [=] { return MemfdOf(bytes, flags, seals); };
  };
  const auto opened = [](const std::string& path, int flags) {
    return [=] { return Descriptor(open(path.c_str(), flags, 0600)); };
  };
  const auto reopened = [](int flags) {
    return [=] {
      return Reopened(MemfdOf(kStagingBytes, MFD_ALLOW_SEALING, kSizeSeals),
                      flags);
    };
  };
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;
  return {
      {"unsealed", memfd(MFD_ALLOW_SEALING, 0)},
      {"may-shrink", memfd(MFD_ALLOW_SEALING, F_SEAL_GROW)},
      {"may-grow", memfd(MFD_ALLOW_SEALING, F_SEAL_SHRINK)},
      {"unsealable", memfd(0, 0)},
      {"huge", memfd(MFD_ALLOW_SEALING, kSizeSeals, kHuge), kHuge},
      {"huge-pages",
       memfd(MFD_ALLOW_SEALING | MFD_HUGETLB, kSizeSeals, 2 * kMiB), 2 * kMiB},
      {"empty", memfd(MFD_ALLOW_SEALING, kSizeSeals, 0), 0},
      {"longer-than-it-is", memfd(MFD_ALLOW_SEALING, kSizeSeals),
       2 * kStagingBytes},
      {"shorter-than-it-is", memfd(MFD_ALLOW_SEALING, kSizeSeals),
       kStagingBytes / 2},
      {"path", reopened(O_PATH)},
      {"write-only", reopened(O_WRONLY)},
      {"directory", opened(folder, O_RDONLY | O_DIRECTORY)},
      {"file", opened(folder + "/file", O_RDWR | O_CREAT)},
      {"zero-device", opened("/dev/zero", O_RDWR)},
      {"null-device", opened("/dev/null", O_RDWR)},
      {"pipe", OfAPipe},
      {"socket", [] { return OfAPair(0); }},
      {"eventfd", [] { return Descriptor(eventfd(0, EFD_CLOEXEC)); }},
      {"epoll", [] { return Descriptor(epoll_create1(EPOLL_CLOEXEC)); }},
      {"proc", opened("/proc/self/maps", O_RDONLY)},
  };
}

// A session's staging number 1, mapped here too.
struct Lent {
  std::unique_ptr<HostileSession> session;
  Descriptor memory;
  absl::Span<std::byte> bytes;
};

absl::StatusOr<Lent> Lend(HostileWorld* world, std::uint64_t bytes) {
  Lent lent;
  ASSIGN_OR_RETURN(lent.session, HostileSession::Connect(world->socket));
  lent.memory = MemfdOf(bytes, MFD_ALLOW_SEALING, kSizeSeals);
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                             lent.memory.get(), 0);
  if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
  lent.bytes = absl::MakeSpan(static_cast<std::byte*>(address), bytes);
  if (!lent.session->LendStaging(1, lent.memory.get(), bytes)) {
    return absl::InternalError("right staging was refused");
  }
  return lent;
}

// The outcome of one block's commit; kUnset where the call failed.
Outcome Commit(HostileWorld* world, const HostileSession& session,
               std::uint64_t number, absl::Span<const std::byte> said) {
  const auto reserved = ReserveBlock(world, session, number, said.size());
  if (!reserved.ok() || reserved->reservation() == 0) return Outcome::kUnset;
  const auto committed =
      CallAs<v1::CommitResponse>(world->channel.get(), session.id(), "Commit",
                                 CommitOf(reserved->reservation(), 1, said));
  if (!committed.ok() || committed->outcomes().size() != 1) {
    return Outcome::kUnset;
  }
  return static_cast<Outcome>(committed->outcomes()[0]);
}

// Whether block `number` is in the pool with other bytes than its own.
absl::StatusOr<bool> IsWrongInThePool(HostileWorld* world,
                                      HostileSession* session,
                                      std::uint64_t number) {
  ASSIGN_OR_RETURN(const v1::OpenReadResponse opened,
                   OpenBlocks(world, *session, number, 1));
  if (opened.extent_regions_size() != 1) return false;
  ASSIGN_OR_RETURN(const Descriptor region,
                   session->TakeDescriptor(opened.extent_regions(0), 0));
  const auto offset = static_cast<off_t>(opened.extent_offsets(0));
  std::vector<std::byte> bytes(opened.lengths(0));
  if (pread(region.get(), bytes.data(), bytes.size(), offset) !=
      static_cast<ssize_t>(bytes.size())) {
    return absl::ErrnoToStatus(errno, "pread of a region");
  }
  return !IsBlock(*world, number, bytes);
}

}  // namespace

absl::StatusOr<Tally> LendWrongKinds(HostileWorld* world,
                                     const std::string& folder) {
  Tally tally = {{"refused", 0}, {"ended", 0}, {"not_made", 0}};
  std::vector<Kind> kinds = WrongKinds(folder);
  kinds.push_back(
      {"right",
       [] { return MemfdOf(kStagingBytes, MFD_ALLOW_SEALING, kSizeSeals); }});
  for (const Kind& kind : kinds) {
    const Descriptor fd = kind.make();
    if (!fd.valid()) {
      ++tally["not_made"];
      continue;
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<HostileSession> session,
                     HostileSession::Connect(world->socket));
    v1::ClientMessage message;
    message.mutable_add_staging()->set_staging(1);
    message.mutable_add_staging()->set_bytes(kind.said);
    session->Send(message, {fd.get()});
    const std::optional<v1::NodeMessage> answer = session->Receive();
    if (!answer.has_value()) {
      ++tally["ended"];
    } else if (answer->has_staging_accepted()) {
      ++tally[kind.name];
    } else {
      ++tally["refused"];
    }
  }
  return tally;
}

absl::StatusOr<Tally> CommitFromAHole(HostileWorld* world,
                                      std::uint64_t number) {
  ASSIGN_OR_RETURN(const Lent lent, Lend(world, kStagingBytes));
  Tally tally;
  const int fd = lent.memory.get();
  tally["shrunk"] = ftruncate(fd, 4096) == 0 ? 1 : 0;
  tally["grown"] = ftruncate(fd, 2 * kStagingBytes) == 0 ? 1 : 0;
  const auto block = lent.bytes.subspan(0, kHostileBlockBytes);
  FillBlock(*world, number, block);
  const std::vector<std::byte> said(block.begin(), block.end());
  tally["punched"] = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               0, kHostileBlockBytes) == 0
                         ? 1
                         : 0;
  const Outcome outcome = Commit(world, *lent.session, number, said);
  tally[std::string(OutcomeLabel(outcome))] = 1;
  ASSIGN_OR_RETURN(const v1::OpenReadResponse opened,
                   OpenBlocks(world, *lent.session, number, 1));
  tally["readable"] = opened.lengths_size();
  munmap(lent.bytes.data(), lent.bytes.size());
  return tally;
}

absl::StatusOr<Tally> ScribbleDuringCommits(HostileWorld* world,
                                            std::uint64_t from,
                                            std::uint64_t count) {
  ASSIGN_OR_RETURN(const Lent lent, Lend(world, kBigBlockBytes));
  Tally tally = {{"stored", 0}, {"corrupt", 0}, {"wrong", 0}};
  std::vector<std::byte> said(kBigBlockBytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    FillBlock(*world, from + i, absl::MakeSpan(said));
    std::memcpy(lent.bytes.data(), said.data(), said.size());
    // Every other one is left alone for a while, so that some are stored.
    std::atomic<bool> over{i % 2 == 0};
    std::thread scribbler([&] {
      auto* const bytes =
          reinterpret_cast<volatile unsigned char*>(lent.bytes.data());
      for (std::size_t at = 0; !over.load(std::memory_order_relaxed);
           at = (at + 4099) % kBigBlockBytes) {
        bytes[at] = static_cast<unsigned char>(bytes[at] ^ 0xff);
      }
    });
    const Outcome outcome = Commit(world, *lent.session, from + i, said);
    over.store(true, std::memory_order_relaxed);
    scribbler.join();
    ++tally[std::string(OutcomeLabel(outcome))];
    ASSIGN_OR_RETURN(const bool wrong,
                     IsWrongInThePool(world, lent.session.get(), from + i));
    if (wrong) ++tally["wrong"];
  }
  munmap(lent.bytes.data(), lent.bytes.size());
  return tally;
}

absl::StatusOr<Tally> LendWithoutEnd(HostileWorld* world) {
  constexpr std::uint64_t kPieceMib = 16;
  constexpr int kMostSessions = 64;
  Tally tally = {{"pieces", 0}, {"mib", 0}, {"refused", 0}};
  const Descriptor memory =
      MemfdOf(kPieceMib * kMiB, MFD_ALLOW_SEALING, kSizeSeals);
  std::vector<std::unique_ptr<HostileSession>> sessions;
  for (int i = 0; i < kMostSessions; ++i) {
    auto session = HostileSession::Connect(world->socket);
    if (!session.ok()) break;
    std::uint64_t id = 1;
    while ((*session)->LendStaging(id, memory.get(), kPieceMib * kMiB)) {
      ++id;
      ++tally["pieces"];
      tally["mib"] += kPieceMib;
    }
    ++tally["refused"];
    sessions.push_back(*std::move(session));
    // The tenant's own bound, and no longer the session's.
    if (id == 1) break;
  }
  return tally;
}

}  // namespace firnkv
