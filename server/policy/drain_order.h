// What a node that drains gives to which other node, and in which order. Pure
// decisions: no I/O, no clock, no threads, no randomness.
//
// What. The budget goes to the hottest chains, whole from where they begin
// here: a block is worth moving only with all of its predecessors, so it counts
// as warm as the warmest block that comes after it in a chain. In that order
// blocks are taken as long as they fit; what follows a block that did not fit
// is not taken either. Order of the result: hottest chain first, and within it
// each parent before its children, so that whatever is cut off by the deadline
// leaves prefixes of chains behind.
//
// Where. A block goes where its parent goes, so that a chain is read from one
// node, while that one is hardly fuller than the others; a chain's begin goes
// to the peer that is least full, in its own capacity. In a warm cluster all
// are full, and what is spread evenly is what each is made to evict. Peers that
// would go down with this node are taken only where there are no others: first
// those on its host, then those in its rack.
//
// Cost: about 40 bytes a block and O(log blocks) each.
//
// Threading. None: a function.

#ifndef FIRNKV_SERVER_POLICY_DRAIN_ORDER_H_
#define FIRNKV_SERVER_POLICY_DRAIN_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/base/node_address.h"
#include "server/policy/eviction.h"

namespace firnkv {

struct DrainBlock {
  // Hashes of the whole ids, namespace included. Of two blocks with one hash,
  // one is a child's parent by mistake: its order suffers, nothing else.
  std::uint64_t id = 0;
  // 0: none.
  std::uint64_t parent = 0;
  Warmth warmth = Warmth::kNone;
  std::uint32_t bytes = 0;
  // In its chain. A parent whose position is not less is no parent: what a
  // hostile writer claims makes no circle.
  std::uint32_t position = 0;
};

struct DrainPeer {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t used_bytes = 0;
  Labels labels;
};

struct DrainStep {
  // Indexes into what was given.
  std::uint32_t block = 0;
  std::uint32_t peer = 0;
  friend bool operator==(const DrainStep&, const DrainStep&) = default;
};

struct DrainOrder {
  std::vector<DrainStep> steps;
  // Of all steps; at most the budget.
  std::uint64_t bytes = 0;
};

// At most 2^32 - 1 blocks and peers; no steps where no peer has a capacity.
// `own`: where the node stands that drains.
DrainOrder OrderDrain(absl::Span<const DrainBlock> blocks,
                      absl::Span<const DrainPeer> peers, const Labels& own,
                      std::uint64_t budget_bytes);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_POLICY_DRAIN_ORDER_H_
