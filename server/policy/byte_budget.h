// A budget of bytes as a token bucket: so many a second on average, so many at
// once. What limits what is written to flash (endurance), and what the scrubber
// reads. Pure: time is given.
//
// Threading. None: its owner's mutex protects it.

#ifndef FIRNKV_SERVER_POLICY_BYTE_BUDGET_H_
#define FIRNKV_SERVER_POLICY_BYTE_BUDGET_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace firnkv {

class ByteBudget {
 public:
  struct Options {
    // 0: no limit.
    std::uint64_t bytes_a_day = 0;
    // What may be taken at once after a quiet time; at least the largest take,
    // else that is never given.
    std::uint64_t burst_bytes = 0;
  };
  // Full at the beginning.
  explicit ByteBudget(const Options& options)
      : options_(options), left_(static_cast<double>(options.burst_bytes)) {}

  // False, and nothing is taken: not now.
  bool Take(std::uint64_t bytes, BootTime now) {
    if (options_.bytes_a_day == 0) return true;
    Fill(now);
    if (left_ < static_cast<double>(bytes)) return false;
    left_ -= static_cast<double>(bytes);
    return true;
  }
  // What was taken for nothing.
  void GiveBack(std::uint64_t bytes) {
    left_ = std::min(left_ + static_cast<double>(bytes),
                     static_cast<double>(options_.burst_bytes));
  }
  // How long until `bytes` can be taken, if nobody else takes any.
  absl::Duration WaitFor(std::uint64_t bytes, BootTime now) {
    if (options_.bytes_a_day == 0) return absl::ZeroDuration();
    Fill(now);
    const double missing = static_cast<double>(bytes) - left_;
    if (missing <= 0) return absl::ZeroDuration();
    return absl::Hours(24) *
           (missing / static_cast<double>(options_.bytes_a_day));
  }

 private:
  void Fill(BootTime now) {
    const double days = absl::FDivDuration(now - filled_, absl::Hours(24));
    if (started_ && days > 0) {
      left_ = std::min(left_ + days * static_cast<double>(options_.bytes_a_day),
                       static_cast<double>(options_.burst_bytes));
    }
    started_ = true;
    filled_ = now;
  }

  const Options options_;
  double left_;
  BootTime filled_;
  bool started_ = false;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_POLICY_BYTE_BUDGET_H_
