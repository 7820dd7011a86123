// How much of a trace was found in a cache, counted in the ways that matter.
// The replay and the simulated caches beside it count with this code, so that
// their figures can be compared.
//
// A block counts as a hit only inside its request's leading run: where one is
// missing, prefill starts there, and what comes after it is of no use.
//
// Threading: none; plain values.

#ifndef FIRNKV_TOOLS_REPLAY_HIT_COUNTS_H_
#define FIRNKV_TOOLS_REPLAY_HIT_COUNTS_H_

#include <cstddef>
#include <cstdint>

#include "tools/replay/trace.h"

namespace firnkv {

struct HitCounts {
  std::uint64_t requests = 0;
  // With at least one hit.
  std::uint64_t requests_hit = 0;
  std::uint64_t blocks = 0;
  std::uint64_t blocks_hit = 0;
  // All tokens of the prompts, those of partial blocks too; of the hits.
  std::uint64_t tokens = 0;
  std::uint64_t tokens_hit = 0;
  // Of prefill, in the work of one token at position 0: t tokens from position
  // p on cost t (1 + (p + t / 2) / 32768), where 32768 is the position at which
  // attention is half of the work (about 30k for Llama-3-8B).
  double work = 0;
  double work_saved = 0;

  // `request` found `leading_hits` of its blocks.
  void Count(const TraceRequest& request, std::size_t leading_hits,
             std::uint32_t block_tokens);
  void Add(const HitCounts& other);

  // Percent; 0 where there was nothing.
  double request_rate() const { return Rate(requests_hit, requests); }
  double block_rate() const { return Rate(blocks_hit, blocks); }
  double token_rate() const { return Rate(tokens_hit, tokens); }
  double saved_rate() const { return work > 0 ? 100 * work_saved / work : 0; }

 private:
  static double Rate(std::uint64_t part, std::uint64_t all) {
    return all == 0
               ? 0
               : 100 * static_cast<double>(part) / static_cast<double>(all);
  }
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_HIT_COUNTS_H_
