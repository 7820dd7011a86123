// Which node takes a block of a writer that has none of its own. Pure
// decisions: no I/O, no clock, no threads, no randomness, so that what the
// replay computes with this code is what the catalog does.
//
// A block goes to its parent's node, so that a chain is read from one node,
// while two things hold: that node is not fuller than the others, and the
// parent has fewer than max_children children placed beside it (a prefix that
// everybody shares would draw everything to one node). Else it goes to the node
// that rendezvous hashing of its anchor chooses: the blocks up to the next
// anchor go there with it, whoever places them, and of n nodes one that goes or
// comes moves a share of 1/n.
//
// Load. How full they are is told by nodes, a few seconds late, and in a warm
// cluster all of them are; there what counts is how fast each is made to evict.
// So a node's load is its share of used bytes plus what was lately placed
// there, both in its own capacity: a cluster that turned over once has a load
// of about two. "Lately" fades with what is placed, not with time: after one
// capacity of all nodes together, by a factor of e.
//
// Bounds. Children are counted for the latest max_parents parents, by hash: a
// parent that was forgotten begins anew.
//
// Threading. None: the owner's mutex protects it.

#ifndef FIRNKV_SERVER_POLICY_PLACEMENT_H_
#define FIRNKV_SERVER_POLICY_PLACEMENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace firnkv {

class Placement {
 public:
  struct Options {
    std::size_t max_children = 8;
    // A node is fuller than the others from so much load above their mean on.
    double slack = 0.05;
    // How much a node's chances in the hashing shrink with its load above the
    // mean: at 1 / steepness above it has the least chances, a tenth.
    double steepness = 4;
    // About 120 bytes each: 8 MiB.
    std::size_t max_parents = 1 << 16;
  };

  struct Node {
    // Equal ids are the same node. Well mixed: a hash, or random.
    std::uint64_t id = 0;
    std::uint64_t capacity_bytes = 0;
    std::uint64_t used_bytes = 0;
  };

  struct Block {
    // Hashes of the whole ids, namespace included.
    std::uint64_t key = 0;
    std::uint64_t anchor = 0;
    // 0: none, or unknown.
    std::uint64_t parent = 0;
    std::uint64_t bytes = 0;
    // Index of the node that has the parent, if one of the nodes does.
    std::optional<std::size_t> parent_node;
  };

  explicit Placement(const Options& options) : options_(options) {}

  // Those that take blocks from now on, as they say they are filled. What was
  // placed lately is remembered of those that stay. Indexes are into this.
  void SetNodes(absl::Span<const Node> nodes);
  std::size_t nodes() const { return nodes_.size(); }

  // The index of the node that takes the block, which counts as placed there.
  // There must be a node. `excluded` are indexes that are not to be chosen,
  // unless there are no others.
  std::size_t Place(const Block& block,
                    absl::Span<const std::size_t> excluded = {});

  // Of a node, as above.
  double LoadOf(std::size_t node) const;

 private:
  struct NodeState {
    Node node;
    // In units of recent_unit_.
    double recent = 0;
  };
  struct Children {
    static constexpr std::size_t kMost = 8;
    // Hashes of the children, each once.
    std::array<std::uint32_t, kMost> hashes = {};
    std::uint8_t count = 0;
  };

  bool MayFollow(const Block& block) const;
  std::size_t ChooseByAnchor(std::uint64_t anchor,
                             absl::Span<const std::size_t> excluded) const;
  double MeanLoad() const;
  void NoteChild(const Block& block);
  void NotePlaced(std::size_t node, std::uint64_t bytes);

  const Options options_;
  std::vector<NodeState> nodes_;
  std::uint64_t capacity_bytes_ = 0;
  // Recent bytes are counted in a unit that grows instead of all of them
  // shrinking.
  double recent_unit_ = 1;
  absl::flat_hash_map<std::uint64_t, Children> parents_;
  // In the order in which they came.
  std::deque<std::uint64_t> oldest_parents_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_POLICY_PLACEMENT_H_
