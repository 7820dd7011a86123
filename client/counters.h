// The live counters behind ClientStats: touched on hot paths, read by Snapshot.
//
// Threading. All methods may be called from any thread.

#ifndef FIRNKV_CLIENT_COUNTERS_H_
#define FIRNKV_CLIENT_COUNTERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "client/stats.h"
#include "client/transport/stream_connection.h"
#include "proto/base/counter.h"
#include "proto/base/outcome.h"

namespace firnkv {

// Every control call that the SDK makes.
enum class ControlCall : std::uint8_t {
  kOpenRead,
  kRelease,
  kReserve,
  kCommit,
  kAbort,
  kExists,
  kNodeRemove,
  kReportCorrupt,
  kNoteRemoteReads,
  kCatalogConnect,
  kOpenNamespace,
  kLocate,
  kPlace,
  kCatalogRemove,
};
inline constexpr std::size_t kControlCalls = 14;

// "/firnkv.v1.NodeService/OpenRead".
std::string_view MethodOf(ControlCall call);

struct ClientCounters {
  std::array<Counter, kLastOutcome + 1> read_outcomes;
  std::array<Counter, kLastOutcome + 1> write_outcomes;
  std::array<Counter, kLastOutcome + 1> view_outcomes;
  Counter bytes_mapped;
  Counter bytes_remote;
  Counter bytes_viewed;
  Counter bytes_stored;
  Counter bytes_staged;
  std::array<Counter, kControlCalls> calls;
  Counter frame_calls;
  Counter location_hits;
  Counter stale_locations;
  Counter locate_failures;
  Counter torn_reads;
  Counter corrupt_blocks;
  Counter breaker_skips;
  Counter remote_reads_dropped;
  Counter promoted_here;
  Counter probes;
  Counter views_dropped;
  Counter sessions;
  Counter sessions_lost;
  Counter regions_mapped;
  LatencyHistogram read;
  LatencyHistogram open_views;
  LatencyHistogram write;
  LatencyHistogram exists;
  LatencyHistogram remove;
  LatencyHistogram locate;
};

ClientStats Snapshot(const ClientCounters& counters,
                     const StreamCounters& streams);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_COUNTERS_H_
