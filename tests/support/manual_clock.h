// A clock that a test moves by hand. For code that only asks what time it is;
// code with timers gets a SimExecutor (sim_executor.h), whose clock moves with
// them.
//
// Threading. Thread-safe.

#ifndef FIRNKV_TESTS_SUPPORT_MANUAL_CLOCK_H_
#define FIRNKV_TESTS_SUPPORT_MANUAL_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace firnkv {

class ManualClock : public Clock {
 public:
  // Starts at an arbitrary instant that is neither zero nor "infinite".
  ManualClock() = default;

  BootTime Now() const override { return BootTime::FromNanos(boot_nanos_); }
  absl::Time WallNow() const override {
    return absl::FromUnixNanos(wall_nanos_);
  }

  // Both clocks go on.
  void Advance(absl::Duration by) {
    boot_nanos_ += absl::ToInt64Nanoseconds(by);
    wall_nanos_ += absl::ToInt64Nanoseconds(by);
  }

  // Somebody sets the wall clock; boot time does not notice.
  void SetWall(absl::Time wall) { wall_nanos_ = absl::ToUnixNanos(wall); }

 private:
  std::atomic<std::int64_t> boot_nanos_{1'000'000'000'000};
  // 2025-01-01.
  std::atomic<std::int64_t> wall_nanos_{1'735'689'600'000'000'000};
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_MANUAL_CLOCK_H_
