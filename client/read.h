// Reading blocks from the pool.
//
// A read names a run of blocks of one chain, in the order in which the model
// needs them, and a buffer for each. It ends when every block has an outcome or
// when the deadline passes, whichever is first. A miss is an outcome, not a
// failure: the caller recomputes that block and goes on.
//
//     firnkv::ReadReport report = client->Read({
//         .name_space = granite,      // From Client::OpenNamespace.
//         .blocks = wanted,           // Key, destination and outcome of each.
//         .deadline = absl::Milliseconds(8),
//         .want = firnkv::ReadWant::kLeadingRun,
//     });
//     ResumePrefillAt(report.leading_hits);
//
// What a read does, in order, and where (read_operation.cc): take what is known
// to be elsewhere (location_cache.h), ask the local node for the rest
// (node_client.h) and copy from its mapped pool (mapped_region.h); for what it
// lacks find the blocks (catalog_client.h), pick a node for each (router.h) and
// bring the bytes (transport/stream_transport.h); verify each piece's checksum
// over what landed; report.

#ifndef FIRNKV_CLIENT_READ_H_
#define FIRNKV_CLIENT_READ_H_

#include <cstddef>
#include <cstdint>

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

inline constexpr std::uint64_t kWholeBlock = ~std::uint64_t{0};

// One block, or a range of it, where to put it, and what became of it.
struct ReadTarget {
  BlockKey key;
  // Which catalog partition knows it: from Chain (chain.h), or the key itself
  // where the caller knows no chain.
  BlockKey anchor;
  // Filled in order, as a paged engine wants it, at most kMaxBuffersABlock;
  // lengths add up to `length` (to the block's for kWholeBlock), else
  // kWrongSize. On any outcome but kHit what is left there is unspecified.
  absl::Span<const Buffer> destination;
  std::uint64_t offset = 0;
  // kWholeBlock (with offset 0), or at most the block's size minus `offset`.
  std::uint64_t length = kWholeBlock;
  // Set by the read; kSkipped until then.
  Outcome outcome = Outcome::kSkipped;
};

enum class ReadWant : std::uint8_t {
  // Stop at the first block that is not a hit; later ones end kSkipped. Right
  // for prefix caches, where a block is of no use without all those before it.
  kLeadingRun,
  // Try every block.
  kEveryBlock,
};

struct ReadRequest {
  NamespaceHandle name_space;
  // Blocks of one chain, in its order; at most kMaxBatchKeys, no key twice.
  absl::Span<ReadTarget> blocks;
  // Counted from the call. Has no default: a reader that cannot say how long it
  // would rather recompute than wait has not been thought through. Must be
  // positive and at most ClientOptions::longest_deadline.
  absl::Duration deadline;
  ReadWant want = ReadWant::kLeadingRun;
  TrafficClass traffic = TrafficClass::kForeground;
  // Zero: none.
  TraceId trace;
};

struct ReadReport {
  // INVALID_ARGUMENT where the request itself was wrong (then every outcome is
  // kSkipped and nothing was touched); OK otherwise, whatever the outcomes.
  absl::Status status;
  // How many outcomes at the front are kHit.
  std::size_t leading_hits = 0;
  std::size_t hits = 0;
  // Of the hits, by where they came from. Bytes that landed with the caller.
  std::uint64_t bytes_mapped = 0;
  std::uint64_t bytes_remote = 0;
  // Of the kCongested ones the longest; zero where there is none.
  absl::Duration retry_after;
  // Spent in waiting for the catalog's Locate.
  absl::Duration locate;
  absl::Duration took;
};

// A read has two ends. The outcome is known by the deadline. The buffers may be
// touched by a transport for a little longer: at most
// ClientOptions::buffer_grace after it, because then the connection is closed.
struct ReadDone {
  // Runs first, at the deadline at the latest. Outcomes are final; buffers of
  // blocks that are not kHit must not be reused yet.
  absl::AnyInvocable<void(const ReadReport&) &&> on_outcome;
  // Runs last. Every buffer is the caller's again.
  absl::AnyInvocable<void() &&> on_buffers_free;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_READ_H_
