#include "server/io/service_estimate.h"

#include "gtest/gtest.h"
#include "proto/base/bytes.h"

namespace firnkv {
namespace {

BootTime At(absl::Duration time) {
  return BootTime::FromNanos(absl::ToInt64Nanoseconds(time));
}

// A device that moves a MiB a millisecond, one transfer after the other.
ServiceEstimate Learned() {
  ServiceEstimate estimate;
  for (int i = 0; i < 1000; ++i) {
    estimate.Started(kMiB, At(absl::Milliseconds(i)));
    estimate.Ended(kMiB, At(absl::Milliseconds(i + 1)));
  }
  return estimate;
}

TEST(ServiceEstimateTest, AnIdleDeviceWaitsForNothing) {
  EXPECT_EQ(Learned().PredictWait(At(absl::Seconds(5))), absl::ZeroDuration());
}

TEST(ServiceEstimateTest, AQueueTakesAsLongAsTheLastOnesDid) {
  ServiceEstimate estimate = Learned();
  for (int i = 0; i < 10; ++i) {
    estimate.Started(kMiB, At(absl::Seconds(1)));
  }

  const absl::Duration wait = estimate.PredictWait(At(absl::Seconds(1)));

  EXPECT_GT(wait, absl::Milliseconds(9));
  EXPECT_LT(wait, absl::Milliseconds(11));
}

TEST(ServiceEstimateTest, IdleTimeIsNoSlowness) {
  ServiceEstimate estimate = Learned();
  estimate.Started(kMiB, At(absl::Hours(1)));

  EXPECT_LT(estimate.PredictWait(At(absl::Hours(1))), absl::Milliseconds(2));
}

TEST(ServiceEstimateTest, AStallCountsForAsLongAsItLasts) {
  ServiceEstimate estimate = Learned();
  estimate.Started(kMiB, At(absl::Seconds(2)));

  EXPECT_GE(estimate.PredictWait(At(absl::Seconds(62))), absl::Seconds(60));
}

TEST(ServiceEstimateTest, ADeviceThatBecameSlowIsSeenSoon) {
  ServiceEstimate estimate = Learned();
  BootTime now = At(absl::Seconds(2));
  for (int i = 0; i < 20; ++i) {
    estimate.Started(kMiB, now);
    now = now + absl::Milliseconds(20);
    estimate.Ended(kMiB, now);
  }
  estimate.Started(kMiB, now);

  EXPECT_GT(estimate.PredictWait(now), absl::Milliseconds(10));
}

}  // namespace
}  // namespace firnkv
