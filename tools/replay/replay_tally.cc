#include "tools/replay/replay_tally.h"

#include <algorithm>
#include <cmath>

namespace firnkv {

absl::Duration TimeSample::Quantile(double share) const {
  if (nanos_.empty()) return absl::ZeroDuration();
  std::vector<std::int64_t> sorted = nanos_;
  const double wanted = std::ceil(share * static_cast<double>(sorted.size()));
  const std::size_t rank = std::min(
      sorted.size() - 1,
      wanted < 1 ? std::size_t{0} : static_cast<std::size_t>(wanted) - 1);
  std::nth_element(sorted.begin(), sorted.begin() + rank, sorted.end());
  return absl::Nanoseconds(sorted[rank]);
}

void ReplayTally::CountWrong(const WrongBlock& wrong) {
  ++wrong_blocks;
  wrong_bytes += wrong.wrong_bytes;
  if (listed.size() < kMaxListed) listed.push_back(wrong);
}

void ReplayTally::Add(const ReplayTally& other) {
  hits.Add(other.hits);
  for (std::size_t i = 0; i < read_outcomes.size(); ++i) {
    read_outcomes[i] += other.read_outcomes[i];
    write_outcomes[i] += other.write_outcomes[i];
  }
  bytes_mapped += other.bytes_mapped;
  bytes_remote += other.bytes_remote;
  bytes_recomputed += other.bytes_recomputed;
  bytes_stored += other.bytes_stored;
  read.Add(other.read);
  write.Add(other.write);
  locate.Add(other.locate);
  request.Add(other.request);
  late.Add(other.late);
  if (failed_calls == 0) first_failure = other.first_failure;
  failed_calls += other.failed_calls;
  wrong_bytes += other.wrong_bytes;
  wrong_blocks += other.wrong_blocks;
  for (const WrongBlock& wrong : other.listed) {
    if (listed.size() < kMaxListed) listed.push_back(wrong);
  }
}

}  // namespace firnkv
