#include "proto/base/clock.h"

#include <time.h>

#include "absl/time/clock.h"
#include "proto/base/check.h"

namespace firnkv {

BootTime SystemClock::Now() const {
  timespec now;
  // Fails only for an unknown clock: Linux has had this one since 2.6.39.
  CHECK(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
  return BootTime::FromNanos(now.tv_sec * INT64_C(1'000'000'000) + now.tv_nsec);
}

absl::Time SystemClock::WallNow() const { return absl::Now(); }

}  // namespace firnkv
