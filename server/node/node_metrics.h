// Every metric of the node: name, help, and where to read it.
//
// Hot paths touch the counters here and nothing else; Describe lists them, and
// what the parts count themselves, for /metrics and docs/METRICS.md.
//
// Threading. The counters are thread-safe; Describe is called once, at start.
//
// Owned by Node; outlives every part.

#ifndef FIRNKV_SERVER_NODE_NODE_METRICS_H_
#define FIRNKV_SERVER_NODE_NODE_METRICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/counter.h"
#include "proto/base/outcome.h"
#include "server/base/metrics.h"

namespace firnkv {

class CatalogLink;
class Copier;
class CopyFetcher;
class Drainer;
class DramPool;
class Promoter;
class Reservations;
class SessionListener;
class Staging;
class StreamServer;

struct NodeMetrics {
  using ByOutcome = std::array<Counter, kLastOutcome + 1>;

  // Keys answered, by outcome.
  ByOutcome local_reads;
  ByOutcome stream_reads;
  ByOutcome reserves;
  ByOutcome commits;
  Counter stream_bytes;
  Counter stream_received_bytes;
  Counter bad_requests;
  Counter frame_calls;
  // Whoever serves the node's calls on a socket counts here what it refuses.
  Counter refused_call_connections;
  // Whole calls, from their arrival to their answer.
  LatencyHistogram open_read;
  LatencyHistogram reserve;
  LatencyHistogram commit;
  LatencyHistogram stream_read;

  void CountOutcome(ByOutcome* counters, Outcome outcome) {
    (*counters)[static_cast<std::size_t>(outcome)].Add();
  }
  // Sums over all of the above, by outcome number.
  std::vector<std::uint64_t> Outcomes() const;

  // What else is shown. Null: not there.
  struct Parts {
    const DramPool* pool = nullptr;
    const CatalogLink* link = nullptr;
    const Copier* copier = nullptr;
    const CopyFetcher* copies = nullptr;
    const Promoter* promoter = nullptr;
    const Reservations* reservations = nullptr;
    const SessionListener* sessions = nullptr;
    const Staging* staging = nullptr;
    const StreamServer* streams = nullptr;
    const Drainer* drainer = nullptr;
  };
  // This and `parts` outlive the list.
  void Describe(const Parts& parts, MetricList* list) const;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_METRICS_H_
