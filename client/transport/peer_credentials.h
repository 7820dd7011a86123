// Who is at the other end of a unix socket: what the kernel says, and what
// /proc says of that process.
//
// Threading. Pure functions; they read /proc, which does not block.

#ifndef FIRNKV_CLIENT_TRANSPORT_PEER_CREDENTIALS_H_
#define FIRNKV_CLIENT_TRANSPORT_PEER_CREDENTIALS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/transport/local_socket.h"

namespace firnkv {

// What the kernel calls a uid that has no number in this user namespace: many
// users, so nobody (rule S2).
inline constexpr std::uint32_t kOverflowUid = 65534;

// How a peer's user namespace is compared with this process's (rule S2).
enum class NamespaceProof : std::uint8_t {
  // By /proc/PID/ns/user alone. The kernel shows that only to those who could
  // trace the peer: its own uid, or CAP_SYS_PTRACE. Where it cannot be read the
  // peer is not trusted.
  kNamespaceLink,
  // Where that cannot be read, by /proc/PID/uid_map, which is everybody's to
  // read: equal to this process's own means that every uid is the same number
  // in both. What it lets in besides is a namespace that somebody with
  // CAP_SETUID in this one has given the very same map. For a node that has no
  // capabilities and serves other uids.
  kEqualUidMap,
};

// The other end of `socket`, as of when it connected or listened. Whatever
// cannot be found out counts against the peer: not trusted, privileged.
absl::StatusOr<PeerCredentials> ReadPeerCredentials(int socket,
                                                    NamespaceProof proof);

// Whether capabilities by which a process could write memory of ours that it
// was given for reading (rule P10) are among those permitted by
// /proc/PID/status; nullopt where the text does not say. Permitted and not only
// effective ones: a process may raise those at any time.
std::optional<bool> HoldsDangerousCapability(std::string_view proc_status);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_PEER_CREDENTIALS_H_
