#include "proto/base/clock.h"

#include "gtest/gtest.h"

namespace firnkv {
namespace {

TEST(BootTime, MovesByDurations) {
  const BootTime start = BootTime::FromNanos(1'000'000'000);

  EXPECT_EQ((start + absl::Milliseconds(5)).nanos(), 1'005'000'000);
  EXPECT_EQ((start - absl::Milliseconds(5)).nanos(), 995'000'000);
  EXPECT_EQ((start + absl::Seconds(3)) - start, absl::Seconds(3));
}

TEST(BootTime, ALongWaitIsForEverAndNotInThePast) {
  const BootTime now = BootTime::FromNanos(1'000);

  EXPECT_EQ(now + absl::InfiniteDuration(), BootTime::Infinite());
  EXPECT_EQ(BootTime::Infinite() + absl::Nanoseconds(1), BootTime::Infinite());
  EXPECT_GT(now + absl::Hours(24 * 365 * 1'000), now);
}

TEST(BootTime, IsOrdered) {
  EXPECT_LT(BootTime::FromNanos(1), BootTime::FromNanos(2));
  EXPECT_LT(BootTime::FromNanos(2), BootTime::Infinite());
}

TEST(SystemClock, NeverGoesBack) {
  const SystemClock clock;
  BootTime last = clock.Now();

  for (int i = 0; i < 1'000; ++i) {
    const BootTime now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, BootTime());
}

TEST(SystemClock, WallTimeIsOfThisCentury) {
  EXPECT_GT(SystemClock().WallNow(), absl::FromUnixSeconds(1'600'000'000));
}

}  // namespace
}  // namespace firnkv
