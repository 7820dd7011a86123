// Steps one after the other, whatever threads there are.

#include "server/catalog/strand.h"

#include <atomic>
#include <vector>

#include "client/transport/thread_executor.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_executor.h"

namespace firnkv {
namespace {

using testing::ElementsAre;

TEST(StrandTest, StepsRunInTheOrderInWhichTheyWerePosted) {
  // A seed that lets ready tasks run in any order.
  SimExecutor world(5);
  Strand strand(&world);
  std::vector<int> ran;
  for (int i = 0; i < 100; ++i) {
    strand.Post([&ran, i](absl::Status turn) {
      EXPECT_OK(turn);
      ran.push_back(i);
    });
  }
  EXPECT_TRUE(ran.empty());

  world.RunUntilIdle();

  ASSERT_EQ(ran.size(), 100u);
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
}

TEST(StrandTest, AStepPostedByAStepComesAfterIt) {
  SimExecutor world;
  Strand strand(&world);
  std::vector<int> ran;
  strand.Post([&](absl::Status) {
    strand.Post([&](absl::Status) { ran.push_back(2); });
    ran.push_back(1);
  });

  world.RunUntilIdle();

  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST(StrandTest, QueuedStepsAreToldWhenItCloses) {
  SimExecutor world;
  Strand strand(&world);
  absl::Status turn;
  strand.Post([&](absl::Status status) { turn = status; });

  strand.Close();

  EXPECT_THAT(turn, StatusIs(absl::StatusCode::kUnavailable));
  absl::Status late;
  strand.Post([&](absl::Status status) { late = status; });
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kUnavailable));
}

TEST(StrandTest, AFullQueueRefusesAtOnce) {
  SimExecutor world;
  Strand strand(&world);
  for (std::size_t i = 0; i < Strand::kMaxQueued; ++i) {
    strand.Post([](absl::Status) {});
  }
  absl::Status turn;

  strand.Post([&](absl::Status status) { turn = status; });

  EXPECT_THAT(turn, StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(StrandTest, NoTwoStepsRunAtOnceOnManyThreads) {
  SystemClock clock;
  constexpr int kSteps = 2000;
  // Touched by steps without a lock: TSan says if two overlap.
  int plain = 0;
  std::atomic<int> done{0};
  {
    auto made = ThreadExecutor::Make({.threads = 4}, &clock);
    ASSERT_OK(made);
    ThreadExecutor& executor = **made;
    Strand strand(&executor);
    for (int i = 0; i < kSteps; ++i) {
      executor.Post([&strand, &plain, &done] {
        strand.Post([&plain, &done](absl::Status turn) {
          if (turn.ok()) ++plain;
          ++done;
        });
      });
    }
    while (done < kSteps) {
    }
    strand.Close();
  }

  EXPECT_EQ(plain, kSteps);
}

}  // namespace
}  // namespace firnkv
