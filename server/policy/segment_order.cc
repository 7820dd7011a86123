#include "server/policy/segment_order.h"

#include <algorithm>
#include <tuple>

namespace firnkv {

std::vector<SegmentFacts> ColdestSegmentFirst::Order(
    std::vector<SegmentFacts> segments) const {
  const auto rank = [](const SegmentFacts& facts) {
    return std::make_tuple(facts.live_records > 0,
                           std::max(facts.sealed_at, facts.last_read),
                           facts.live_bytes, facts.lap);
  };
  std::sort(segments.begin(), segments.end(),
            [&rank](const SegmentFacts& a, const SegmentFacts& b) {
              return rank(a) < rank(b);
            });
  return segments;
}

}  // namespace firnkv
