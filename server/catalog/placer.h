// Which node a remote writer's blocks go to: server/policy/placement.h, with
// what the catalog knows of nodes and blocks.
//
// A block that somebody has goes there again, so that its node says
// kAlreadyThere and keeps it warm. Only nodes whose lease runs take blocks; one
// that the writer could not reach just now is named only where there is no
// other.
//
// How full nodes are is looked up again once a refresh, and not for each call.
//
// Threading. Thread-safe. One mutex, held over the decisions of one batch and
// over no other part's.
//
// Owned by Catalog.

#ifndef FIRNKV_SERVER_CATALOG_PLACER_H_
#define FIRNKV_SERVER_CATALOG_PLACER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/counter.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/node_address.h"
#include "server/catalog/entries.h"
#include "server/catalog/membership.h"
#include "server/policy/placement.h"

namespace firnkv {

class Placer {
 public:
  struct Options {
    // A tenth of what a node's heartbeat takes to bring news.
    absl::Duration refresh = absl::Milliseconds(250);
    Placement::Options placement;
  };
  // All outlive it.
  struct Parts {
    const Membership* membership;
    const Entries* entries;
    const Clock* clock;
  };
  Placer(const Options& options, const Parts& parts)
      : options_(options), parts_(parts), placement_(options.placement) {}

  struct Block {
    BlockKey key;
    // Zero: none.
    BlockKey parent;
    BlockKey anchor;
    std::uint64_t length = 0;
  };
  struct Answer {
    // Into `nodes`, one a block.
    std::vector<std::uint32_t> places;
    std::vector<NodeAddress> nodes;
  };
  // `blocks` in chain order. UNAVAILABLE: no node is alive.
  absl::StatusOr<Answer> Place(const NamespaceFacts& facts,
                               absl::Span<const Block> blocks,
                               absl::Span<const NodeId> excluded)
      ABSL_LOCKS_EXCLUDED(mutex_);

  struct Counters {
    Counter blocks;
    // That stood somewhere already.
    Counter known;
    // At their parent's node.
    Counter followed;
  };
  const Counters& counters() const { return counters_; }

 private:
  // The run of a node that has a block now, by block.
  using Homes = absl::flat_hash_map<BlockKey, Run>;
  absl::StatusOr<Homes> FindHomes(const NamespaceFacts& facts,
                                  absl::Span<const Block> blocks) const;
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What one Place knows and has decided.
  struct Batch {
    const NamespaceFacts* facts = nullptr;
    Homes homes;
    std::vector<std::size_t> avoided;
    absl::flat_hash_map<BlockKey, std::size_t> placed;
  };
  std::size_t Decide(const Block& block, Batch* batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The node that has the block, or was just told to take it.
  std::optional<std::size_t> HomeOf(const BlockKey& key,
                                    const Batch& batch) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Parts parts_;
  Counters counters_;

  mutable Mutex mutex_;
  BootTime refresh_at_ ABSL_GUARDED_BY(mutex_);
  Placement placement_ ABSL_GUARDED_BY(mutex_);
  // Of the placement's nodes, by index, and the other way round.
  std::vector<NodeAddress> addresses_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NodeId, std::size_t> indexes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_PLACER_H_
