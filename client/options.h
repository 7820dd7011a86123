// What a caller may choose about a Client. A plain struct: the SDK reads no
// file, no environment and no flag.

#ifndef FIRNKV_CLIENT_OPTIONS_H_
#define FIRNKV_CLIENT_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/node_address.h"

namespace firnkv {

struct ClientOptions {
  // --- Whom to talk to.

  // The local node's session socket. Empty: there is no local node; the Client
  // then reads from and writes to the nodes that the catalog names, by
  // `catalog_address` and `token` (firnkv tenant token).
  std::string socket_path = "/run/firnkv/node.sock";
  // "host:port". Empty: the one that the local node names.
  std::string catalog_address;
  // Who the caller is, where the socket's credentials do not say it (rule S2).
  std::string token;
  // Without a local node, which renews its session's: asked for the token each
  // time that one is needed, since a token lives for an hour at most. Gives the
  // same one until it has a better: another token means new connections. Called
  // from client threads; must not block or call the Client. Empty: `token`.
  std::function<std::string()> token_source;
  // For the operator's lists: "vllm worker 3".
  std::string client_name;
  // A node under any other uid than this one, the caller's own or root is an
  // impostor: nothing is sent to it (rule S6).
  std::optional<std::uint32_t> server_uid;
  // Of this process; used only without a local node, which otherwise says them.
  Labels labels;

  // --- Time.

  // How long Connect and Create wait for the local node.
  absl::Duration connect_timeout = absl::Seconds(5);
  // False: Connect does not wait; calls are kUnavailable until the node is
  // there.
  bool wait_for_node = true;
  // Longest deadline that a call may have; at most kLongestDeadline.
  absl::Duration longest_deadline = absl::Seconds(60);
  // How much longer than its deadline an operation may keep a caller's
  // buffers. At least 1 ms.
  absl::Duration buffer_grace = absl::Milliseconds(100);
  // Asked for with each local read; at most 60 s.
  absl::Duration read_lease = absl::Seconds(10);
  // Asked for with each write; the node cuts it to its own longest.
  absl::Duration reservation = absl::Seconds(30);
  // How long a location is believed without asking the catalog again.
  absl::Duration location_life = absl::Seconds(5);

  // --- Memory.

  // Shared memory in which the SDK stages what is written from other memory.
  // Where it is full, writes wait; at their deadline they are kCongested. At
  // least kLargestBlockBytes, or blocks above it cannot be written.
  std::uint64_t staging_bytes = 2 * kLargestBlockBytes;
  // Most that AllocateShared gives in all.
  std::uint64_t shared_bytes = 4 * kGiB;
  // For pieces of blocks that a range read needs and the caller has no room
  // for. Where it is used up, such reads are kCongested.
  std::uint64_t bounce_bytes = 2 * kLargestBlockBytes;
  // Locations kept in mind, about 160 bytes each.
  std::size_t max_locations = 1 << 16;

  // --- Transport.

  // False: local blocks too are read by the stream, never mapped.
  bool map_local_blocks = true;
  // False: every control call goes as gRPC, also those that this node would
  // take as frames over the session's socket, which are several times faster.
  bool call_frames = true;
  // Finds misuse of views (view.h): they are handed out at addresses of their
  // own that fault once the batch is closed or destroyed, and a batch that is
  // forgotten is logged with the place that opened it. Costs two system calls a
  // block. Not said: on where the SDK is a debug or sanitizer build.
  std::optional<bool> check_views;
  // Connections to one node, besides up to 16 of threads in blocking calls.
  int streams_per_node = 4;
  absl::Duration stream_connect_timeout = absl::Seconds(1);
  // Threads that Connect starts for tasks and copies. Create has the executor's
  // of its seams.
  int threads = 2;

  // Gets a line when something happened that an operator should know: a lost
  // session, a broken invariant. Called from client threads; must
  // not block or call the Client. Empty: nothing is logged.
  std::function<void(std::string_view line)> log;
};

// INVALID_ARGUMENT naming the first option out of its bounds.
absl::Status Validate(const ClientOptions& options);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_OPTIONS_H_
