// Time, in two kinds that do not mix.
//
// BootTime is an instant of CLOCK_BOOTTIME: it goes on while the machine is
// suspended and never jumps, so leases and deadlines are counted in it. It
// means nothing outside this boot of this host, so it never crosses the wire:
// durations do. Wall time is for logs, display and retention only.
//
// Clock is a seam: SystemClock here, ManualClock in tests/support, virtual time
// in the simulator.

#ifndef FIRNKV_PROTO_BASE_CLOCK_H_
#define FIRNKV_PROTO_BASE_CLOCK_H_

#include <compare>
#include <cstdint>

#include "absl/time/time.h"

namespace firnkv {

class BootTime {
 public:
  constexpr BootTime() = default;

  static constexpr BootTime FromNanos(std::int64_t nanos) {
    BootTime time;
    time.nanos_ = nanos;
    return time;
  }
  static constexpr BootTime Infinite() { return FromNanos(INT64_MAX); }
  constexpr std::int64_t nanos() const { return nanos_; }

  friend constexpr auto operator<=>(BootTime, BootTime) = default;
  // Saturates at Infinite().
  friend BootTime operator+(BootTime time, absl::Duration delta) {
    const std::int64_t add = absl::ToInt64Nanoseconds(delta);
    std::int64_t sum = 0;
    if (__builtin_add_overflow(time.nanos_, add, &sum)) return Infinite();
    return FromNanos(sum);
  }
  friend BootTime operator-(BootTime time, absl::Duration delta) {
    return time + -delta;
  }
  friend absl::Duration operator-(BootTime a, BootTime b) {
    return absl::Nanoseconds(a.nanos_) - absl::Nanoseconds(b.nanos_);
  }

 private:
  std::int64_t nanos_ = 0;
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual BootTime Now() const = 0;
  // For logs, display and retention; never for a lease or a deadline.
  virtual absl::Time WallNow() const = 0;
};

// The one place that reads the machine's clocks.
class SystemClock : public Clock {
 public:
  BootTime Now() const override;
  absl::Time WallNow() const override;
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_CLOCK_H_
