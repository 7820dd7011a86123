#include "tools/replay/cache_simulator.h"

namespace firnkv {

void CacheSimulator::NumberBlocks(const TraceRequest& request) {
  ++requests_;
  run_.clear();
  for (const std::uint64_t id : request.ids) {
    const auto next = static_cast<BlockNumber>(blocks_.size());
    const auto [place, added] = numbers_.emplace(id, next);
    if (added) blocks_.emplace_back();
    run_.push_back(place->second);
    blocks_[static_cast<std::size_t>(place->second)].request = requests_;
  }
}

bool CacheSimulator::MakeRoom() {
  if (resident_count_ < capacity_) return true;
  victims_.clear();
  policy_.TakeVictims(
      EvictionGroup{0}, 1,
      [this](BlockNumber block) {
        return blocks_[static_cast<std::size_t>(block)].request == requests_;
      },
      &victims_);
  for (const BlockNumber victim : victims_) {
    blocks_[static_cast<std::size_t>(victim)].resident = false;
    --resident_count_;
    ++evictions_;
  }
  return resident_count_ < capacity_;
}

std::size_t CacheSimulator::Play(const TraceRequest& request) {
  NumberBlocks(request);
  const BootTime at = BootTime() + request.at;
  std::size_t hits = 0;
  while (hits < run_.size() &&
         blocks_[static_cast<std::size_t>(run_[hits])].resident) {
    ++hits;
  }
  std::size_t there = hits;
  for (; there < run_.size(); ++there) {
    Block& block = blocks_[static_cast<std::size_t>(run_[there])];
    if (block.resident) continue;
    if (!MakeRoom()) break;
    policy_.OnStored(
        {.at = at,
         .block = run_[there],
         .parent = there == 0 ? BlockNumber::kNone : run_[there - 1],
         .bytes = 1});
    block.resident = true;
    ++resident_count_;
  }
  policy_.OnTouched(at, absl::MakeConstSpan(run_).subspan(0, there));
  return hits;
}

HitCounts SimulateCache(const Trace& trace, std::size_t capacity_blocks,
                        std::uint32_t block_tokens) {
  CacheSimulator cache(capacity_blocks);
  HitCounts counts;
  for (const TraceRequest& request : trace.requests) {
    counts.Count(request, cache.Play(request), block_tokens);
  }
  return counts;
}

}  // namespace firnkv
