// Which node serves which block: the nearest that is thought to be well, and
// among equals the one with least of ours in flight.
//
// A node that failed is left alone, and no caller's read finds out whether it
// is back: that costs a timeout where it is not. Whoever would have asked it
// takes a probe instead (peer_probes.h).
//
// Knows nodes by what the catalog's answers said of them, and how our own
// requests to them went. Moves no bytes.
//
// Threading. All methods may be called from any thread.

#ifndef FIRNKV_CLIENT_ROUTER_H_
#define FIRNKV_CLIENT_ROUTER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "client/location_cache.h"
#include "client/retry.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/node_address.h"
#include "proto/base/random.h"

namespace firnkv {

class Router {
 public:
  // Nodes remembered; a catalog that names more has those forgotten that have
  // nothing of ours in flight.
  static constexpr std::size_t kMaxNodes = 4096;

  // Both outlive the router.
  Router(const Clock* clock, Random* random);

  // Where this process runs.
  void SetOwnLabels(const Labels& labels) ABSL_LOCKS_EXCLUDED(mutex_);

  // The catalog named these.
  void Learn(absl::Span<const NodeAddress> nodes) ABSL_LOCKS_EXCLUDED(mutex_);

  // How long a node that failed is left alone before it is probed: short, since
  // probes cost no read its time.
  static constexpr Backoff::Options kPace = {.first = absl::Milliseconds(50),
                                             .most = absl::Seconds(1)};

  // A node that has said nothing for so long is as good as away: it is left
  // alone at once, not after a second failure.
  static constexpr absl::Duration kSilence = absl::Milliseconds(100);

  // Chooses one node for each block. nullopt: every node that has it is unknown
  // in that epoch, excluded by the caller, or not asked since it failed.
  struct Wanted {
    Locations locations;
    // Nodes that were tried already.
    absl::InlinedVector<NodeId, 1> excluded;
  };
  std::vector<std::optional<NodeAddress>> Pick(absl::Span<const Wanted> blocks)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Nodes of those locations that failed and may be tried now: the caller
  // probes each, and says by End(node, 0, verdict) how that went.
  std::vector<NodeAddress> TakeProbes(absl::Span<const Wanted> blocks)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // A request of so many blocks goes to the node. False: its breaker is open,
  // do not send.
  bool Begin(NodeId node, std::size_t blocks) ABSL_LOCKS_EXCLUDED(mutex_);

  enum class Verdict : std::uint8_t {
    kServed,
    kFailed,
    // It could not be reached at all, or was silent for kSilence.
    kAway,
    // Cancelled before it told anything.
    kUnknown,
  };
  // Once for each Begin that returned true, and each probe.
  void End(NodeId node, std::size_t blocks, Verdict verdict)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Node {
    NodeAddress address;
    std::size_t in_flight = 0;
    Breaker breaker;
  };

  // 0 same host, 1 same rack, 2 same zone, 3 anywhere.
  int Distance(const Labels& theirs) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  Random* const random_;

  Mutex mutex_;
  Labels own_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NodeId, Node> nodes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_ROUTER_H_
