// The data path's frames: what goes over a stream connection between an SDK (or
// a node) and a node.
//
//     frame = FrameLead (32 bytes, with its own checksum), body, payload
//
// The body is small and bounded (limits.h), and holds everything that describes
// the payload, checksums too: they precede it, so that a torn payload is never
// a hit (rule T1). The payload is raw bytes that land where the reader wants
// them.
//
// A read is one kRead frame out and, per key in order, one kBlock frame back
// (with payload for a hit), then one kReadEnd: a warm remote read is one round
// trip. One frame opens, sends and releases: the node holds the slots until the
// bytes have left (rule P8).
//
// Every connection starts with a kHello each way (request.h).
//
// Pure code over bytes: no I/O. Every decoder bounds what it reads, since the
// peer may be hostile; an error closes the connection.

#ifndef FIRNKV_PROTO_BASE_FRAME_H_
#define FIRNKV_PROTO_BASE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "proto/base/slot_header.h"

namespace firnkv {

enum class FrameType : std::uint16_t {
  kHello = 1,    // Either way, once, first.
  kRefused = 2,  // Server: why the hello or a request was not served; closes.
  kRead = 3,     // Client.
  kBlock = 4,    // Server: one key's outcome, header and bytes.
  kReadEnd = 5,  // Server: the read with this request id is over.
  kCancel = 6,   // Client: send no more of this request than has begun.
  // Client: a copy that it was sent failed its checksum. The node checks for
  // itself before it isolates (rule P12); there is no answer.
  kFoundCorrupt = 7,
  // Writes: write_frame.h.
  kReserve = 8,    // Client.
  kReserved = 9,   // Server: what became of each block of a kReserve.
  kWrite = 10,     // Client: one reserved block's bytes.
  kWritten = 11,   // Server: outcomes of blocks whose bytes came.
  kWriteEnd = 12,  // Server: the write with this request id is over.
  // Calls of a local session, over its socket: session_frame.h.
  kCallOpenRead = 20,   // Client.
  kCallOpened = 21,     // Node: the answer to it.
  kCallRelease = 22,    // Client; not answered.
  kCallReserve = 23,    // Client.
  kCallReserved = 24,   // Node.
  kCallCommit = 25,     // Client.
  kCallCommitted = 26,  // Node.
  kCallFailed = 27,     // Node: why a call as a whole was not served.
};

// A conversation's name in a reservation.
inline constexpr std::size_t kMaxConversationBytes = 32;

inline constexpr std::size_t kFrameLeadBytes = 32;
struct FrameLead {
  FrameType type = FrameType::kHello;
  std::uint64_t request = 0;  // Chosen by the client, unique on a connection.
  std::uint32_t body_bytes = 0;
  std::uint64_t payload_bytes = 0;
};

std::string EncodeLead(const FrameLead& lead);
// Whether what comes is a frame at all, where other messages go the same way.
bool BeginsFrame(std::string_view bytes);
// `bytes` is exactly kFrameLeadBytes. Refuses a wrong magic, version, checksum,
// an unknown type, a body or payload over its bound.
absl::StatusOr<FrameLead> DecodeLead(std::string_view bytes);

struct HelloBody {
  Handshake handshake;
  // Client's: its token; server's: empty.
  std::string token;
  // Server's: who it is, so that a client notices a node that came back.
  NodeId node;
  NodeEpoch epoch = NodeEpoch::kNone;
};
std::string EncodeHello(const HelloBody& body);
absl::StatusOr<HelloBody> DecodeHello(std::string_view bytes);

struct RefusedBody {
  absl::Status reason;
};
std::string EncodeRefused(const RefusedBody& body);
absl::StatusOr<RefusedBody> DecodeRefused(std::string_view bytes);

struct ReadBody {
  // header.token is not repeated: the connection's hello had it.
  RequestHeader header;
  NamespaceId name_space;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  // Stop at the first key that is not a hit.
  bool leading_run = true;
  struct Key {
    BlockKey key;
    // Largest payload that the reader has room for; a longer block is
    // kWrongSize. Whole blocks only: their checksums are by piece, and a range
    // is cut on the reader's side.
    std::uint64_t room = 0;
  };
  std::vector<Key> keys;
};
std::string EncodeRead(const ReadBody& body);
absl::StatusOr<ReadBody> DecodeRead(std::string_view bytes);

struct BlockBody {
  // Index of the key in its request.
  std::uint32_t index = 0;
  Outcome outcome = Outcome::kUnset;
  absl::Duration retry_after;
  // Only with kHit; payload_bytes of the lead is header.length then, else 0.
  SlotHeader header;
};
std::string EncodeBlock(const BlockBody& body);
absl::StatusOr<BlockBody> DecodeBlock(std::string_view bytes);

struct FoundCorruptBody {
  BlockId block;
  Generation generation = Generation::kNone;
};
std::string EncodeFoundCorrupt(const FoundCorruptBody& body);
absl::StatusOr<FoundCorruptBody> DecodeFoundCorrupt(std::string_view bytes);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_FRAME_H_
