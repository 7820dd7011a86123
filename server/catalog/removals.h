// Copies that somebody wants gone, until their node says that it has removed
// them: a queue a node, told with KeepAlive and acknowledged by number.
//
// Best effort, as remove is: in memory only, bounded, forgotten with a restart
// of the catalog or another run of the node. The copy stays in the index until
// the node withdraws it: the node owns the truth about its bytes.
//
// Threading. Thread-safe, one mutex.

#ifndef FIRNKV_SERVER_CATALOG_REMOVALS_H_
#define FIRNKV_SERVER_CATALOG_REMOVALS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"

namespace firnkv {

struct Removal {
  BlockId block;
  // Only this copy: a newer one was written after the wish.
  Generation generation = Generation::kNone;
  friend bool operator==(const Removal&, const Removal&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Removal& removal) {
    return H::combine(std::move(h), removal.block, removal.generation);
  }
};

class Removals {
 public:
  // About 200 bytes each.
  struct Options {
    std::uint64_t max_pending_a_node = 65536;
  };
  explicit Removals(const Options& options) : options_(options) {}

  // Numbers begin above `number`: another one for each start of the catalog, so
  // that no node acknowledges what an earlier one told it. Before anything
  // else.
  void Begin(std::uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);

  // False: the node has too many to do already. A removal that is pending
  // already is not queued again.
  bool Add(NodeId node, NodeEpoch epoch, const Removal& removal)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Drops those up to number `done`, and gives the oldest of the rest, at most
  // `most`; `number` is that of the last one given, or `done` if there is none.
  // Removals for an earlier run of the node are forgotten.
  struct Due {
    std::vector<Removal> removals;
    std::uint64_t number = 0;
  };
  Due Take(NodeId node, NodeEpoch epoch, std::uint64_t done, std::size_t most)
      ABSL_LOCKS_EXCLUDED(mutex_);

  std::uint64_t pending() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Queue {
    NodeEpoch epoch = NodeEpoch::kNone;
    // Number of the first one in `due`.
    std::uint64_t first = 0;
    std::deque<Removal> due;
    absl::flat_hash_set<Removal> known;
  };
  Queue& QueueOf(NodeId node, NodeEpoch epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::uint64_t begin_ ABSL_GUARDED_BY(mutex_) = 0;
  // At most as many as there are nodes.
  std::map<NodeId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_REMOVALS_H_
