#include "client/staging.h"

#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_world.h"

namespace firnkv {
namespace {

class StagingTest : public ::testing::Test {
 protected:
  ~StagingTest() override { pool_.Close(); }

  // Empty where it did not come at once or soon.
  StagingPool::Range Take(std::uint64_t bytes) {
    StagingPool::Range taken;
    pool_.StartTake(
        bytes, [&](StagingPool::Range range) { taken = std::move(range); });
    world_.executor()->RunReady();
    return taken;
  }

  SimWorld world_{0};
  SimMachine* machine_ = world_.NewMachine("worker", "host");
  std::uint64_t handed_over_ = 0;
  StagingPool pool_{
      &machine_->seams(),
      {.own_bytes = kMiB, .shared_bytes = 4 * kMiB},
      [this](const std::shared_ptr<SharedMemory>&) { return ++handed_over_; }};
};

TEST_F(StagingTest, MemoryIsMadeWhenItIsFirstNeeded) {
  EXPECT_EQ(machine_->memory()->bytes_made(), 0u);

  const StagingPool::Range range = Take(100);

  EXPECT_TRUE(range);
  EXPECT_EQ(range.bytes().size(), 100u);
  EXPECT_EQ(range.staging(), 1u);
  EXPECT_EQ(machine_->memory()->bytes_made(), kMiB);
}

TEST_F(StagingTest, RangesDoNotOverlap) {
  const StagingPool::Range one = Take(100);
  const StagingPool::Range two = Take(100);

  EXPECT_GE(two.bytes().data(), one.bytes().data() + 100);
}

TEST_F(StagingTest, AWishBeyondTheBoundWaitsForItsTurn) {
  std::optional<StagingPool::Range> whole = Take(kMiB);
  std::vector<int> served;
  std::vector<StagingPool::Range> ranges;
  for (int i = 0; i < 2; ++i) {
    pool_.StartTake(kMiB / 2, [&, i](StagingPool::Range range) {
      served.push_back(i);
      ranges.push_back(std::move(range));
    });
  }
  world_.executor()->RunReady();
  ASSERT_THAT(served, ::testing::IsEmpty());

  whole.reset();
  world_.executor()->RunReady();

  EXPECT_THAT(served, ::testing::ElementsAre(0, 1));
  EXPECT_TRUE(ranges[1]);
}

TEST_F(StagingTest, AForgottenWishIsNotServedAndLetsOthersPass) {
  std::optional<StagingPool::Range> half = Take(kMiB / 2);
  bool big = false;
  bool small = false;
  const std::uint64_t wish =
      pool_.StartTake(kMiB, [&](StagingPool::Range) { big = true; });
  pool_.StartTake(100, [&](StagingPool::Range) { small = true; });
  world_.executor()->RunReady();
  ASSERT_FALSE(small);

  pool_.Forget(wish);
  world_.executor()->RunReady();

  EXPECT_FALSE(big);
  EXPECT_TRUE(small);
}

TEST_F(StagingTest, WithoutMemoryOfTheMachineAWishEndsEmpty) {
  machine_->memory()->FailNext(1);
  std::optional<bool> got;
  pool_.StartTake(
      100, [&](StagingPool::Range range) { got = static_cast<bool>(range); });
  world_.executor()->RunReady();

  EXPECT_EQ(got, false);
  EXPECT_TRUE(Take(100));
}

TEST_F(StagingTest, NeighboursThatComeBackAreOneAgain) {
  std::vector<StagingPool::Range> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(Take(kMiB / 4));

  std::swap(parts[0], parts[2]);
  parts.clear();

  EXPECT_TRUE(Take(kMiB));
}

TEST_F(StagingTest, AtCloseWishesEndEmpty) {
  const StagingPool::Range whole = Take(kMiB);
  std::optional<bool> got;
  pool_.StartTake(
      100, [&](StagingPool::Range range) { got = static_cast<bool>(range); });

  pool_.Close();

  EXPECT_EQ(got, false);
}

TEST_F(StagingTest, SharedMemoryIsKnownByItsBytes) {
  const auto shared = pool_.AllocateShared(10'000);
  ASSERT_OK(shared);
  std::vector<std::byte> elsewhere(10);

  EXPECT_TRUE(pool_.PinShared(*shared));
  EXPECT_TRUE(pool_.PinShared(shared->subspan(9'999, 1)));
  EXPECT_FALSE(pool_.PinShared({shared->data() + 9'000, 10'000}));
  EXPECT_FALSE(pool_.PinShared(absl::MakeConstSpan(elsewhere)));
}

// Rule S1.
TEST_F(StagingTest, PinnedSharedMemoryIsNotGivenOutAgain) {
  const auto shared = pool_.AllocateShared(4 * kMiB);
  ASSERT_OK(shared);
  auto pin = pool_.PinShared(*shared);
  pool_.FreeShared(shared->data());

  EXPECT_THAT(pool_.AllocateShared(4 * kMiB),
              StatusIs(absl::StatusCode::kResourceExhausted));
  pin.reset();
  EXPECT_OK(pool_.AllocateShared(4 * kMiB));
}

TEST_F(StagingTest, FreeingWhatWasNeverGivenDoesNothing) {
  std::byte somewhere{};

  pool_.FreeShared(&somewhere);
  pool_.FreeShared(nullptr);

  EXPECT_OK(pool_.AllocateShared(100));
}

}  // namespace
}  // namespace firnkv
