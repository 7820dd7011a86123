// What a trace would have found in several nodes that remote writers fill: the
// yardstick of placement. It runs the catalog's own placement and the nodes'
// own eviction.
//
// Every request is of a worker without a node of its own. Its leading run is
// found wherever its blocks are; what is missing is placed, block by block in
// chain order, and stored where that says; for it the node's victims leave. A
// request's own blocks never make room for each other. Blocks are of one size.
//
// Nodes say how full they are every `report_every` requests: between two of
// these the catalog knows only what it placed.
//
// Threading: none.

#ifndef FIRNKV_TOOLS_REPLAY_PLACEMENT_SIMULATOR_H_
#define FIRNKV_TOOLS_REPLAY_PLACEMENT_SIMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/policy/leaf_first_lru.h"
#include "server/policy/placement.h"
#include "tools/replay/hit_counts.h"
#include "tools/replay/trace.h"

namespace firnkv {

class PlacementSimulator {
 public:
  struct Options {
    std::size_t nodes = 8;
    // Of each.
    std::size_t capacity_blocks = 0;
    // A heartbeat's 2.5 s, in the supplied trace's requests.
    std::size_t report_every = 8;
    Placement::Options placement;
  };
  explicit PlacementSimulator(const Options& options);

  // The next request of the trace; how many of its blocks were there, counted
  // from the front.
  std::size_t Play(const TraceRequest& request);

  // Blocks of each node: stored in all, and there now.
  std::vector<std::uint64_t> stored() const;
  std::vector<std::uint64_t> resident() const;
  // Requests' runs of blocks at one node, and how many nodes a request with
  // hits read from, on average.
  double nodes_a_request() const;

 private:
  struct Block {
    // The node that has it.
    std::optional<std::size_t> node;
    // Of the last request that has it.
    std::uint64_t request = 0;
  };
  struct Node {
    LeafFirstLru policy;
    std::size_t resident = 0;
    std::uint64_t stored = 0;
  };

  void NumberBlocks(const TraceRequest& request);
  void Report();
  bool MakeRoom(std::size_t node);
  void StoreAt(std::size_t node, std::size_t position, BootTime at);
  void Touch(std::size_t blocks, BootTime at);

  const Options options_;
  Placement placement_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<std::uint64_t, BlockNumber> numbers_;
  std::vector<Block> blocks_;
  std::uint64_t requests_ = 0;
  std::uint64_t requests_hit_ = 0;
  std::uint64_t nodes_read_ = 0;
  // Of the request at work.
  std::vector<BlockNumber> run_;
  std::vector<BlockNumber> victims_;
};

struct PlacementFigures {
  // Saved prefill of one cache that has all nodes' capacity, less that of the
  // nodes, in percentage points.
  double loss_points = 0;
  // Most stored blocks of a node, over the mean.
  double balance = 0;
  // The same of what is there at the end.
  double resident_balance = 0;
  double saved_by_one = 0;
  double saved_by_all = 0;
  double nodes_a_request = 0;
};
// The whole trace over `nodes` nodes that together have room for `share` of its
// different blocks.
PlacementFigures SimulatePlacement(const Trace& trace, std::size_t nodes,
                                   double share, std::uint32_t block_tokens);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_PLACEMENT_SIMULATOR_H_
