// What happened in a replay, added up: by each worker for itself while it runs,
// and merged at the end.
//
// Threading: none.

#ifndef FIRNKV_TOOLS_REPLAY_REPLAY_TALLY_H_
#define FIRNKV_TOOLS_REPLAY_REPLAY_TALLY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "tools/replay/hit_counts.h"

namespace firnkv {

// Durations, all of them, so that quantiles are exact.
class TimeSample {
 public:
  void Add(absl::Duration time) {
    nanos_.push_back(absl::ToInt64Nanoseconds(time));
  }
  void Add(const TimeSample& other) {
    nanos_.insert(nanos_.end(), other.nanos_.begin(), other.nanos_.end());
  }
  std::size_t count() const { return nanos_.size(); }
  // The smallest time that at least `share` (0 to 1) of all are not above; zero
  // of none.
  absl::Duration Quantile(double share) const;

 private:
  std::vector<std::int64_t> nanos_;
};

// A hit whose bytes are not the block's.
struct WrongBlock {
  BlockId block;
  std::size_t request = 0;  // From 0, in the order of the trace.
  std::size_t position = 0;
  std::size_t first_wrong_byte = 0;
  std::size_t wrong_bytes = 0;
};

struct ReplayTally {
  // Wrong blocks that are listed; the others are only counted.
  static constexpr std::size_t kMaxListed = 20;
  using Outcomes = std::array<std::uint64_t, kLastOutcome + 1>;

  HitCounts hits;
  // By Outcome's number, a block each. Blocks behind the end of a leading run
  // are kSkipped, whether or not they were asked for.
  Outcomes read_outcomes{};
  Outcomes write_outcomes{};

  // Hits, by where the bytes came from; what no cache had, so that it was
  // computed; and what of that was stored.
  std::uint64_t bytes_mapped = 0;
  std::uint64_t bytes_remote = 0;
  std::uint64_t bytes_recomputed = 0;
  std::uint64_t bytes_stored = 0;

  TimeSample read;
  TimeSample write;
  // Of the reads that asked the catalog.
  TimeSample locate;
  // From a request's begin to the end of its last call.
  TimeSample request;
  // How much later than recorded requests began; of paced replays.
  TimeSample late;

  // Calls whose status was not OK, and the first one's.
  std::uint64_t failed_calls = 0;
  std::string first_failure;

  std::uint64_t wrong_bytes = 0;
  std::uint64_t wrong_blocks = 0;
  std::vector<WrongBlock> listed;

  void CountWrong(const WrongBlock& wrong);
  void Add(const ReplayTally& other);
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_REPLAY_TALLY_H_
