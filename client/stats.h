// What a Client has done since it was made: a plain snapshot, for the caller's
// own metrics. Counters never go down.

#ifndef FIRNKV_CLIENT_STATS_H_
#define FIRNKV_CLIENT_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "proto/base/counter.h"
#include "proto/base/outcome.h"

namespace firnkv {

// As LatencyHistogram: cell i counts durations below 2^i microseconds.
struct LatencySnapshot {
  std::array<std::uint64_t, LatencyHistogram::kBuckets> cells{};
  absl::Duration sum;

  std::uint64_t count() const {
    std::uint64_t all = 0;
    for (const std::uint64_t cell : cells) all += cell;
    return all;
  }
};

struct ClientStats {
  // By Outcome's number: one for each block of each call.
  std::array<std::uint64_t, kLastOutcome + 1> read_outcomes{};
  std::array<std::uint64_t, kLastOutcome + 1> write_outcomes{};
  // Of views what their Close said.
  std::array<std::uint64_t, kLastOutcome + 1> view_outcomes{};

  // Bytes that landed in callers' buffers as hits, by where they came from.
  std::uint64_t bytes_mapped = 0;
  std::uint64_t bytes_remote = 0;
  // Of views whose verdict was kHit; the SDK copied none of them.
  std::uint64_t bytes_viewed = 0;
  // Of kStored blocks; and what the SDK copied into its own staging for writes.
  std::uint64_t bytes_stored = 0;
  std::uint64_t bytes_staged = 0;

  // Control calls sent, by method: "NodeService/OpenRead".
  std::map<std::string, std::uint64_t> calls;
  // Of those, calls that went as frames over the session's socket.
  std::uint64_t frame_calls = 0;
  // Read frames sent to nodes, blocks that came with their payload, connections
  // made, and connections that failed or were cut.
  std::uint64_t stream_reads = 0;
  std::uint64_t stream_blocks = 0;
  std::uint64_t stream_connects = 0;
  std::uint64_t stream_failures = 0;

  // Blocks whose location was still believed when they were read.
  std::uint64_t location_hits = 0;
  // Cached locations that turned out stale, and blocks located once more.
  std::uint64_t stale_locations = 0;
  // Locate calls that failed: the catalog is away.
  std::uint64_t locate_failures = 0;
  // Blocks read a second time since their slot was reused meanwhile.
  std::uint64_t torn_reads = 0;
  std::uint64_t corrupt_blocks = 0;
  // Blocks not fetched since their node's breaker was open.
  std::uint64_t breaker_skips = 0;
  // Blocks read elsewhere of which the local node was not told: it was slow, or
  // knows no such call. Blocks that it has a copy of because it was told.
  std::uint64_t remote_reads_dropped = 0;
  std::uint64_t promoted_here = 0;
  // Asked in the background whether a node that failed is back.
  std::uint64_t probes = 0;
  // Batches of views that ended without Close.
  std::uint64_t views_dropped = 0;

  // Local sessions begun, and ended without Close.
  std::uint64_t sessions = 0;
  std::uint64_t sessions_lost = 0;
  std::uint64_t regions_mapped = 0;

  LatencySnapshot read;
  LatencySnapshot open_views;
  LatencySnapshot write;
  LatencySnapshot exists;
  LatencySnapshot remove;
  LatencySnapshot locate;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_STATS_H_
