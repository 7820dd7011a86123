// What a leaf-first LRU of a given size would have found of a trace: the
// yardstick beside a replay. It runs the node's own policy code.
//
// One cache that serves every request in the order of the trace: its leading
// run is touched, what is missing is stored, and for that the policy's victims
// leave. A request's own blocks never make room for each other; where nothing
// else is left, the rest of them is not stored.
//
// Threading: none.

#ifndef FIRNKV_TOOLS_REPLAY_CACHE_SIMULATOR_H_
#define FIRNKV_TOOLS_REPLAY_CACHE_SIMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/policy/eviction.h"
#include "server/policy/leaf_first_lru.h"
#include "tools/replay/hit_counts.h"
#include "tools/replay/trace.h"

namespace firnkv {

class CacheSimulator {
 public:
  static constexpr std::size_t kEndless = ~std::size_t{0};

  explicit CacheSimulator(std::size_t capacity_blocks)
      : capacity_(capacity_blocks) {}

  // The next request of the trace; how many of its blocks were there, counted
  // from the front.
  std::size_t Play(const TraceRequest& request);

  std::size_t resident() const { return resident_count_; }
  std::uint64_t evictions() const { return evictions_; }

 private:
  struct Block {
    bool resident = false;
    // Of the last request that has it.
    std::uint64_t request = 0;
  };

  void NumberBlocks(const TraceRequest& request);
  bool MakeRoom();

  const std::size_t capacity_;
  LeafFirstLru policy_;
  absl::flat_hash_map<std::uint64_t, BlockNumber> numbers_;
  std::vector<Block> blocks_;
  std::size_t resident_count_ = 0;
  std::uint64_t evictions_ = 0;
  std::uint64_t requests_ = 0;
  // Of the request at work.
  std::vector<BlockNumber> run_;
  std::vector<BlockNumber> victims_;
};

// The whole trace.
HitCounts SimulateCache(const Trace& trace, std::size_t capacity_blocks,
                        std::uint32_t block_tokens);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_CACHE_SIMULATOR_H_
