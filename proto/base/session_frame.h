// Calls of a local session as frames (frame.h): what an SDK asks its node so
// often that gRPC's floor shows. The same calls exist as gRPC, complete; a
// session's welcome says whether its node takes frames too (kCallFrames).
//
// One frame is one packet of the session's socket, lead and body together, and
// goes the same way as the session's own messages: BeginsFrame (frame.h) tells
// them apart, since a message of protobuf that begins with the lead's magic
// would have a wire type that there is not. Whoever calls is the session whose
// socket it is (rule S3); a header that names another one is refused.
//
// A call is answered by one frame with its request number: the answer of its
// kind, or kCallFailed. What does not fit a packet, a batch of over
// kMaxCallKeys or an answer longer than it, goes by gRPC.
//
// Pure code over bytes: no I/O. Every decoder bounds what it reads, since the
// peer may be hostile; an error ends the session.

#ifndef FIRNKV_PROTO_BASE_SESSION_FRAME_H_
#define FIRNKV_PROTO_BASE_SESSION_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"

namespace firnkv {

// Version of the calls below; 0 in a hello or a welcome: none are known. Both
// ends speak the lower one of what they say.
inline constexpr std::uint32_t kCallFrames = 1;

// Calls of one session that are in flight; more are refused. Their answers are
// what its socket may have to queue for a client that does not read just now:
// 16 of at most 64 KiB are its 1 MiB.
inline constexpr std::size_t kMaxCallsInFlight = 16;

// Keys of one call. The answer to an OpenRead is the longest: 34 bytes a key
// of one extent are 34 KiB.
inline constexpr std::size_t kMaxCallKeys = 1024;

// Leases that one frame gives back.
inline constexpr std::size_t kMaxCallReleases = 1024;

// --- Packets.

// `body` as the encoders below make it.
std::string EncodeCallPacket(FrameType type, std::uint64_t request,
                             std::string_view body);

// The views are into the packet.
struct CallFrame {
  FrameType type = FrameType::kCallFailed;
  std::uint64_t request = 0;
  std::string_view body;
};
absl::StatusOr<CallFrame> DecodeCallPacket(std::string_view packet);

// --- Bodies. header.session is the session's own.

// Part of a region (by serial), or of a staging of the client's.
struct CallExtent {
  std::uint64_t memory = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const CallExtent&, const CallExtent&) = default;
};
// 1 to kMaxExtents, none of them empty, together at most kLargestBlockBytes.
using CallExtents = absl::InlinedVector<CallExtent, 1>;

struct CallOpenReadBody {
  RequestHeader header;
  NamespaceId name_space;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  bool leading_run = false;
  // Rule P9.
  bool for_view = false;
  // Zero: the node's own.
  absl::Duration lease;
  std::vector<BlockKey> keys;  // 1 to kMaxCallKeys.
};
std::string EncodeCallOpenRead(const CallOpenReadBody& body);
absl::StatusOr<CallOpenReadBody> DecodeCallOpenRead(std::string_view bytes);

struct CallOpenedBody {
  std::uint64_t lease = 0;  // Zero: nothing was granted.
  absl::Duration lease_time;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  absl::Duration retry_after;
  struct Block {
    Outcome outcome = Outcome::kUnset;
    // Of a hit; the extents' lengths add up to the block's.
    Generation generation = Generation::kNone;
    CallExtents extents;
  };
  std::vector<Block> blocks;  // One a key.
};
std::string EncodeCallOpened(const CallOpenedBody& body);
absl::StatusOr<CallOpenedBody> DecodeCallOpened(std::string_view bytes);

struct CallReleaseBody {
  SessionId session;
  std::vector<std::uint64_t> leases;  // 1 to kMaxCallReleases.
};
std::string EncodeCallRelease(const CallReleaseBody& body);
absl::StatusOr<CallReleaseBody> DecodeCallRelease(std::string_view bytes);

struct CallReserveBody {
  RequestHeader header;
  NamespaceId name_space;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  absl::Duration reservation;
  // As in ReserveRequest of proto/node.proto.
  std::uint32_t wait_for = 0;
  std::uint32_t session_state = 0;
  std::string conversation;  // At most kMaxConversationBytes.
  struct Block {
    BlockKey key;
    ChainPlace place;
    std::uint64_t length = 0;  // At most kLargestBlockBytes.
  };
  std::vector<Block> blocks;  // 1 to kMaxCallKeys.
};
std::string EncodeCallReserve(const CallReserveBody& body);
absl::StatusOr<CallReserveBody> DecodeCallReserve(std::string_view bytes);

struct CallReservedBody {
  std::uint64_t reservation = 0;  // Zero: nothing was reserved.
  absl::Duration reservation_time;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  absl::Duration retry_after;
  std::vector<Outcome> outcomes;  // One a block; kStored stands for "reserved".
};
std::string EncodeCallReserved(const CallReservedBody& body);
absl::StatusOr<CallReservedBody> DecodeCallReserved(std::string_view bytes);

struct CallCommitBody {
  RequestHeader header;
  std::uint64_t reservation = 0;
  // As in CommitRequest of proto/node.proto.
  std::uint32_t wait_for = 0;
  struct Block {
    std::uint32_t index = 0;  // In the Reserve.
    CallExtents extents;      // Of the session's staging.
    // The writer's checksum of each piece, as many as the length has.
    std::vector<std::uint32_t> pieces;
  };
  std::vector<Block> blocks;  // 1 to kMaxCallKeys.
};
std::string EncodeCallCommit(const CallCommitBody& body);
absl::StatusOr<CallCommitBody> DecodeCallCommit(std::string_view bytes);

struct CallCommittedBody {
  absl::Duration retry_after;
  std::vector<Outcome> outcomes;  // One a block.
};
std::string EncodeCallCommitted(const CallCommittedBody& body);
absl::StatusOr<CallCommittedBody> DecodeCallCommitted(std::string_view bytes);

// kCallFailed has the body of a RefusedBody (frame.h).

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_SESSION_FRAME_H_
