#include "tools/replay/hit_counts.h"

namespace firnkv {
namespace {

constexpr double kHalfAttentionPosition = 32768;

double Work(double first_token, double tokens) {
  return tokens * (1 + (first_token + tokens / 2) / kHalfAttentionPosition);
}

}  // namespace

void HitCounts::Count(const TraceRequest& request, std::size_t leading_hits,
                      std::uint32_t block_tokens) {
  const std::uint64_t hit = std::uint64_t{leading_hits} * block_tokens;
  ++requests;
  requests_hit += leading_hits > 0 ? 1 : 0;
  blocks += request.ids.size();
  blocks_hit += leading_hits;
  tokens += request.input_tokens;
  tokens_hit += hit;
  work += Work(0, request.input_tokens);
  work_saved += Work(0, static_cast<double>(hit));
}

void HitCounts::Add(const HitCounts& other) {
  requests += other.requests;
  requests_hit += other.requests_hit;
  blocks += other.blocks;
  blocks_hit += other.blocks_hit;
  tokens += other.tokens;
  tokens_hit += other.tokens_hit;
  work += other.work;
  work_saved += other.work_saved;
}

}  // namespace firnkv
