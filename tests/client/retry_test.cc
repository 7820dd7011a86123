#include "client/retry.h"

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

constexpr Backoff::Options kQuick = {.first = absl::Milliseconds(100),
                                     .most = absl::Seconds(1)};

BootTime At(absl::Duration time) { return BootTime() + time; }

TEST(BackoffTest, DelaysDoubleUpToTheMostAndVaryInTheirUpperHalf) {
  SeededRandom random(7);
  Backoff backoff(kQuick);
  const absl::Duration whole[] = {
      absl::Milliseconds(100), absl::Milliseconds(200), absl::Milliseconds(400),
      absl::Milliseconds(800), absl::Seconds(1),        absl::Seconds(1)};

  for (const absl::Duration most : whole) {
    const absl::Duration delay = backoff.Next(&random);
    EXPECT_GE(delay, most / 2);
    EXPECT_LE(delay, most);
  }
}

TEST(BackoffTest, ResetBeginsAnew) {
  SeededRandom random(7);
  Backoff backoff(kQuick);
  for (int i = 0; i < 5; ++i) backoff.Next(&random);

  backoff.Reset();

  EXPECT_LE(backoff.Next(&random), absl::Milliseconds(100));
}

TEST(BreakerTest, OneFailureDoesNotOpenIt) {
  SeededRandom random(7);
  Breaker breaker(kQuick);

  breaker.Failed(At(absl::ZeroDuration()), &random);

  EXPECT_TRUE(breaker.MayAsk(At(absl::ZeroDuration())));
}

TEST(BreakerTest, FailuresInARowOpenItForADelay) {
  SeededRandom random(7);
  Breaker breaker(kQuick);
  for (int i = 0; i < Breaker::kFailures; ++i) {
    breaker.Failed(At(absl::ZeroDuration()), &random);
  }

  EXPECT_FALSE(breaker.MayAsk(At(absl::Milliseconds(49))));
  EXPECT_TRUE(breaker.MayAsk(At(absl::Milliseconds(100))));
}

TEST(BreakerTest, OneProbeAtATimeDecides) {
  SeededRandom random(7);
  Breaker breaker(kQuick);
  for (int i = 0; i < Breaker::kFailures; ++i) {
    breaker.Failed(At(absl::ZeroDuration()), &random);
  }
  const BootTime later = At(absl::Milliseconds(100));

  EXPECT_TRUE(breaker.MayAsk(later));
  EXPECT_FALSE(breaker.MayAsk(later));
  breaker.Succeeded();
  EXPECT_TRUE(breaker.MayAsk(later));
  EXPECT_TRUE(breaker.MayAsk(later));
}

TEST(BreakerTest, AProbeThatFailsOpensItAgain) {
  SeededRandom random(7);
  Breaker breaker(kQuick);
  for (int i = 0; i < Breaker::kFailures; ++i) {
    breaker.Failed(At(absl::ZeroDuration()), &random);
  }
  const BootTime later = At(absl::Milliseconds(100));
  ASSERT_TRUE(breaker.MayAsk(later));

  breaker.Failed(later, &random);

  EXPECT_FALSE(breaker.MayAsk(later + absl::Milliseconds(99)));
  EXPECT_TRUE(breaker.MayAsk(later + absl::Milliseconds(200)));
}

TEST(BreakerTest, AProbeWithoutVerdictLeavesRoomForAnother) {
  SeededRandom random(7);
  Breaker breaker(kQuick);
  for (int i = 0; i < Breaker::kFailures; ++i) {
    breaker.Failed(At(absl::ZeroDuration()), &random);
  }
  const BootTime later = At(absl::Milliseconds(100));
  ASSERT_TRUE(breaker.MayAsk(later));

  breaker.NoVerdict();

  EXPECT_TRUE(breaker.MayAsk(later));
}

TEST(BreakerTest, AFailureWithoutDoubtOpensItAtOnce) {
  SeededRandom random(7);
  Breaker breaker(kQuick);

  breaker.FailedForSure(At(absl::ZeroDuration()), &random);

  EXPECT_FALSE(breaker.closed());
  EXPECT_FALSE(breaker.TakeProbe(At(absl::Milliseconds(49))));
  EXPECT_TRUE(breaker.TakeProbe(At(absl::Milliseconds(100))));
  EXPECT_FALSE(breaker.TakeProbe(At(absl::Milliseconds(100))));
}

TEST(BreakerTest, AClosedOneHasNoProbe) {
  Breaker breaker(kQuick);

  EXPECT_TRUE(breaker.closed());
  EXPECT_FALSE(breaker.TakeProbe(At(absl::ZeroDuration())));
}

TEST(RetryBudgetTest, RetriesAreATenthOfTries) {
  RetryBudget budget;
  while (budget.Spend()) {
  }

  budget.Earn(100);

  int retries = 0;
  while (budget.Spend()) ++retries;
  EXPECT_EQ(retries, 10);
}

TEST(RetryBudgetTest, WhatIsSavedUpIsBounded) {
  RetryBudget budget;
  budget.Earn(1'000'000);

  int retries = 0;
  while (budget.Spend()) ++retries;
  EXPECT_EQ(retries, RetryBudget::kMost);
}

}  // namespace
}  // namespace firnkv
