// Writing blocks to the local node's pool; without a local node, to the nodes
// that the catalog chooses.
//
// The node is asked first (Reserve): what it has already is kAlreadyThere and
// nothing of it is copied. The rest stands in shared memory, which the node
// copies into its pool and checks (Commit): only the node writes the pool (rule
// P1). Buffers in memory of Client::AllocateShared are that shared memory;
// others are copied into the SDK's own first, which is bounded. To other nodes
// the bytes go over the stream, out of the caller's buffers as they are; the
// node receives them into its pool and checks what landed.
//
//     firnkv::WriteReport report = client->Write({
//         .name_space = granite,
//         .blocks = computed,       // Key, place, source, outcome of each.
//         .deadline = absl::Seconds(2),
//     });

#ifndef FIRNKV_CLIENT_WRITE_H_
#define FIRNKV_CLIENT_WRITE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/memory_kind.h"
#include "client/namespace.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"

namespace firnkv {

struct WriteBlock {
  BlockKey key;
  // Parent, anchor, position, tokens, shard: from Chain (chain.h).
  ChainPlace place;
  // The block's bytes, in order: 1 byte to kLargestBlockBytes in at most
  // kMaxBuffersABlock pieces.
  absl::Span<const ConstBuffer> source;
  // Set by the write; kSkipped until then. kStored or kAlreadyThere: the block
  // can be read.
  Outcome outcome = Outcome::kSkipped;
};

// What a kStored block has reached. Numbers are wire format.
enum class WriteWait : std::uint8_t {
  // Readers of the pool that it was written to.
  kLocal = 0,
  // The catalog, so readers of the whole cluster.
  kPublished = 1,
  // That node's flash. INVALID_ARGUMENT where it has none.
  kFlash = 2,
};

// What the writer knows of the conversation: the strongest input of the node's
// eviction policy.
struct WriteHint {
  enum class Session : std::uint8_t {
    kUnknown = 0,
    kWillReturn = 1,
    kEnded = 2
  };
  // At most 32 bytes; empty = unknown.
  std::string conversation;
  Session session = Session::kUnknown;
};

struct WriteRequest {
  NamespaceHandle name_space;
  // At most kMaxBatchKeys, no key twice; in chain order.
  absl::Span<WriteBlock> blocks;
  // As ReadRequest::deadline.
  absl::Duration deadline;
  WriteWait wait_for = WriteWait::kLocal;
  WriteHint hint;
  TrafficClass traffic = TrafficClass::kBackgroundWrite;
  TraceId trace;
};

struct WriteReport {
  // INVALID_ARGUMENT where the request itself was wrong (then every outcome is
  // kSkipped and nothing was written); OK otherwise, whatever the outcomes.
  absl::Status status;
  std::size_t stored = 0;
  std::size_t already_there = 0;
  // Of the kStored ones; and how much of that the SDK had to copy itself.
  std::uint64_t bytes_stored = 0;
  std::uint64_t bytes_copied = 0;
  // Of the kCongested ones the longest; zero where there is none.
  absl::Duration retry_after;
  absl::Duration took;
};

// Two ends, as ReadDone has them. Memory of AllocateShared that a write names
// must not change before `on_buffers_free`.
struct WriteDone {
  absl::AnyInvocable<void(const WriteReport&) &&> on_outcome;
  absl::AnyInvocable<void() &&> on_buffers_free;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_WRITE_H_
