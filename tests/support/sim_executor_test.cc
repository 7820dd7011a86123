#include "tests/support/sim_executor.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;

TEST(SimExecutorTest, WithSeedZeroReadyTasksRunInOrder) {
  SimExecutor world;
  std::vector<int> ran;
  for (int i = 0; i < 4; ++i) world.Post([&ran, i] { ran.push_back(i); });

  world.RunReady();

  EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3));
}

std::uint64_t HashOfARun(std::uint64_t seed) {
  SimExecutor world(seed);
  SimProcess* a = world.NewProcess("a");
  SimProcess* b = world.NewProcess("b");
  for (int i = 0; i < 20; ++i) {
    a->Post([] {});
    b->PostAfter(world.Between(absl::ZeroDuration(), absl::Seconds(1)), [] {});
  }
  world.RunUntilIdle();
  return world.event_hash();
}

TEST(SimExecutorTest, TheSameSeedTwiceGivesTheSameHash) {
  EXPECT_EQ(HashOfARun(7), HashOfARun(7));
  EXPECT_NE(HashOfARun(7), HashOfARun(8));
}

TEST(SimExecutorTest, ATimerRunsAtItsTimeAndNotBefore) {
  SimExecutor world;
  bool ran = false;
  world.PostAt(world.Now() + absl::Seconds(5), [&] { ran = true; });

  world.RunFor(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_FALSE(ran);
  world.RunFor(absl::Nanoseconds(1));
  EXPECT_TRUE(ran);
}

TEST(SimExecutorTest, ATimerOfADriftingClockIsNeverEarlyByThatClock) {
  SimExecutor world(3);
  for (std::int64_t drift : {-30'000, -1, 1, 30'000}) {
    SimProcess* process = world.NewProcess("drifts");
    process->sim_clock()->SetDrift(drift);
    const BootTime when = process->clock()->Now() + absl::Seconds(1000);
    BootTime ran;
    process->PostAt(when, [&] { ran = process->clock()->Now(); });

    world.RunFor(absl::Seconds(2000));

    EXPECT_GE(ran, when);
    EXPECT_LE(ran, when + absl::Milliseconds(1));
  }
}

TEST(SimExecutorTest, ACancelledTimerNeverRunsAndItsCapturesAreGone) {
  SimExecutor world;
  auto captured = std::make_shared<int>(0);
  const TimerId timer =
      world.PostAt(world.Now() + absl::Seconds(1), [captured] { ++*captured; });

  EXPECT_TRUE(world.Cancel(timer));
  EXPECT_EQ(captured.use_count(), 1);
  EXPECT_FALSE(world.Cancel(timer));
  world.RunUntilIdle();

  EXPECT_EQ(*captured, 0);
}

TEST(SimExecutorTest, APausedProcessRunsNothingAndCatchesUpAfterwards) {
  SimExecutor world;
  SimProcess* process = world.NewProcess("stopped");
  int ran = 0;
  process->PostAt(process->clock()->Now() + absl::Seconds(1), [&] { ++ran; });
  process->Post([&] { ++ran; });

  process->Pause();
  world.RunFor(absl::Seconds(10));
  EXPECT_EQ(ran, 0);
  process->Resume();
  world.RunReady();

  EXPECT_EQ(ran, 2);
}

TEST(SimExecutorTest, AKilledProcessRunsNothingAnyMoreAndItsWatchersLearn) {
  SimExecutor world;
  SimProcess* process = world.NewProcess("dies");
  bool ran = false;
  bool told = false;
  process->WatchDeath([&] { told = true; });
  process->Post([&] { ran = true; });

  process->Kill();
  process->Post([&] { ran = true; });
  process->PostAt(world.Now(), [&] { ran = true; });
  world.RunUntilIdle();

  EXPECT_TRUE(told);
  EXPECT_FALSE(ran);
}

TEST(SimExecutorTest, RunUntilStopsAtItsLimit) {
  SimExecutor world;
  const BootTime start = world.Now();
  world.PostAt(start + absl::Hours(1), [] {});

  EXPECT_FALSE(world.RunUntil([] { return false; }, absl::Seconds(3)));

  EXPECT_EQ(world.Now(), start + absl::Seconds(3));
}

}  // namespace
}  // namespace firnkv
