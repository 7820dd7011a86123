// The frames of a write over the stream (frame.h has the others), since
// protocol version 2.
//
//     client                              node
//       kReserve   ------------------->    takes slots
//       kWrite *   ------------------->    (a small batch does not wait for
//                  <-------------------  kReserved           the answer)
//       kWrite *   ------------------->    receives into the slots, checks
//                  <-------------------  kWritten *
//                  <-------------------  kWriteEnd
//
// All have the request id of the kReserve. A kWrite carries one block: its
// checksums stand in the body, ahead of the payload (rule T1), and its key, so
// that bytes cannot come under another one. Several requests may be under way
// on a connection, and the kWrites of one come in any order.
//
// A block whose bytes came without being wanted (there already, no room, the
// reservation over) is thrown away. A kCancel gives up what is reserved and has
// not come. A reservation lives no longer than its connection.
//
// Pure code over bytes: no I/O. Every decoder bounds what it reads, since the
// peer may be hostile; an error closes the connection.

#ifndef FIRNKV_PROTO_BASE_WRITE_FRAME_H_
#define FIRNKV_PROTO_BASE_WRITE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"

namespace firnkv {

// Of one kReserve: 120 bytes each make 240 KiB, which a frame's body holds.
inline constexpr std::size_t kMaxReserveBlocks = 2048;

struct ReserveBody {
  // header.token is not repeated: the connection's hello had it.
  RequestHeader header;
  NamespaceId name_space;
  // Highest that the writer has seen (rule C2).
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  // How long to keep slots; the node cuts it to its own longest, and to the
  // deadline.
  absl::Duration reserve_for;
  // 0 visible at the node, 1 published, 2 on flash.
  std::uint32_t wait_for = 0;
  // 0 unknown, 1 will return, 2 has ended.
  std::uint32_t session_state = 0;
  std::string conversation;
  struct Block {
    BlockKey key;
    ChainPlace place;
    std::uint64_t length = 0;  // 1 to kLargestBlockBytes.
  };
  std::vector<Block> blocks;
};
std::string EncodeReserve(const ReserveBody& body);
absl::StatusOr<ReserveBody> DecodeReserve(std::string_view bytes);

struct ReservedBody {
  // Not OK: the request was wrong, nothing is reserved, `outcomes` is empty.
  absl::Status status;
  // From when the node sent this; zero: nothing is reserved.
  absl::Duration valid_for;
  // Of those that are kCongested.
  absl::Duration retry_after;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  // One a block. kStored: reserved, its bytes are awaited. For every other the
  // write is over.
  std::vector<Outcome> outcomes;
};
std::string EncodeReserved(const ReservedBody& body);
absl::StatusOr<ReservedBody> DecodeReserved(std::string_view bytes);

struct WriteBody {
  // In the kReserve.
  std::uint32_t index = 0;
  // What stands there.
  BlockKey key;
  // The writer's CRC32C of each piece of the payload.
  std::vector<std::uint32_t> pieces;
};
std::string EncodeWrite(const WriteBody& body);
// `payload_bytes` is the lead's: 1 to kLargestBlockBytes, and as many pieces as
// it needs.
absl::StatusOr<WriteBody> DecodeWrite(std::string_view bytes,
                                      std::uint64_t payload_bytes);

struct WrittenBody {
  absl::Duration retry_after;
  struct Block {
    std::uint32_t index = 0;
    Outcome outcome = Outcome::kUnset;
  };
  std::vector<Block> blocks;
};
std::string EncodeWritten(const WrittenBody& body);
absl::StatusOr<WrittenBody> DecodeWritten(std::string_view bytes);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_WRITE_FRAME_H_
