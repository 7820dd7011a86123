#include "client/transport/peer_credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/transport/descriptor.h"
#include "proto/base/text.h"

// Of Linux 6.5; Debian 12's headers are older.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace firnkv {
namespace {

// To become our uid, to open what only our uid may, to reach into our memory or
// into the machine's; and to get any of these, by a program of one's own that
// has it.
constexpr std::array kDangerousCapabilities = {
    CAP_CHOWN,     CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,
    CAP_SETUID,    CAP_SYS_MODULE,   CAP_SYS_RAWIO,       CAP_SYS_PTRACE,
    CAP_SYS_ADMIN, CAP_SYS_BOOT,     CAP_MKNOD,           CAP_SETFCAP,
};

// Files of /proc that matter here are small; more than this is not read.
constexpr std::size_t kMostProcBytes = 16384;

std::optional<std::string> ReadProc(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return std::nullopt;
  std::string text(kMostProcBytes, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd.get(), &text[size], text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

std::optional<std::string> ReadLink(const std::string& path) {
  std::array<char, 64> text;
  const ssize_t size = readlink(path.c_str(), text.data(), text.size());
  if (size <= 0 || static_cast<std::size_t>(size) == text.size()) {
    return std::nullopt;
  }
  return std::string(text.data(), static_cast<std::size_t>(size));
}

bool InOurUserNamespace(const std::string& proc, NamespaceProof proof) {
  const std::optional<std::string> ours = ReadLink("/proc/self/ns/user");
  const std::optional<std::string> theirs = ReadLink(proc + "/ns/user");
  if (ours.has_value() && theirs.has_value()) return *ours == *theirs;
  switch (proof) {
    case NamespaceProof::kNamespaceLink:
      return false;
    case NamespaceProof::kEqualUidMap: {
      const auto our_map = ReadProc("/proc/self/uid_map");
      const auto their_map = ReadProc(proc + "/uid_map");
      return our_map.has_value() && !our_map->empty() && our_map == their_map;
    }
  }
  return false;
}

// Whether the peer's process has ended, so that its number may be another's;
// by a descriptor of the process itself, which becomes readable then. Kernels
// before 6.5 have none and leave a gap: somebody who connects, passes the
// socket on and ends, in time for its number to come round, is taken for the
// number's next owner.
bool HasEnded(int socket) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) != 0) {
    return errno != ENOPROTOOPT;
  }
  const Descriptor process(fd);
  pollfd one = {.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) != 0;
}

}  // namespace

std::optional<bool> HoldsDangerousCapability(std::string_view proc_status) {
  for (absl::string_view line : absl::StrSplit(ToAbsl(proc_status), '\n')) {
    if (!absl::ConsumePrefix(&line, "CapPrm:")) continue;
    std::uint64_t permitted = 0;
    if (!absl::SimpleHexAtoi(line, &permitted)) return std::nullopt;
    for (const int capability : kDangerousCapabilities) {
      if ((permitted >> capability & 1) != 0) return true;
    }
    return false;
  }
  return std::nullopt;
}

absl::StatusOr<PeerCredentials> ReadPeerCredentials(int socket,
                                                    NamespaceProof proof) {
  ucred said = {};
  socklen_t size = sizeof(said);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &said, &size) != 0) {
    return absl::ErrnoToStatus(errno, "SO_PEERCRED");
  }
  PeerCredentials peer = {.uid = said.uid,
                          .pid = said.pid,
                          .uid_trusted = false,
                          .privileged = true};
  // 0: in another pid namespace, so /proc shows nothing of it.
  if (peer.pid <= 0) return peer;
  const std::string proc = StrCat("/proc/", peer.pid);
  const bool trusted =
      InOurUserNamespace(proc, proof) && peer.uid != kOverflowUid;
  const std::optional<std::string> status = ReadProc(proc + "/status");
  // Asked last: what was read above was the peer's if it lives now.
  if (HasEnded(socket)) return peer;
  peer.uid_trusted = trusted;
  if (status.has_value()) {
    peer.privileged = HoldsDangerousCapability(*status).value_or(true);
  }
  return peer;
}

}  // namespace firnkv
