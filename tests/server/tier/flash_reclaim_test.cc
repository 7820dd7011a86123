// What leaves a flash device, and in which order; and who takes one into use.

#include <cstring>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "server/policy/byte_budget.h"
#include "server/policy/segment_order.h"
#include "tests/server/tier/flash_fixture.h"

namespace firnkv {
namespace {

using testing::HasSubstr;

class FlashReclaimTest : public testing::Test {
 protected:
  // Fills segments of one tenant, `count` blocks from `first` on.
  std::vector<FlashBlock> Fill(int count, int first, int tenant = 0) {
    std::vector<FlashBlock> blocks;
    for (int i = 0; i < count; ++i) {
      blocks.push_back(MakeFlashBlock(tenant, first + i, 4096));
    }
    for (const auto& outcome : flash_.StoreAll(blocks)) {
      EXPECT_EQ(outcome, StoreOutcome::kStored);
    }
    return blocks;
  }
  std::uint64_t SegmentBytes() { return flash_.tier()->layout().segment_bytes; }

  FlashWorld flash_;
};

TEST_F(FlashReclaimTest, WholeSegmentsGoUntilTheTargetIsReached) {
  ASSERT_OK(flash_.Boot());
  Fill(400, 1);
  const std::uint32_t free = flash_.tier()->Look().free;

  EXPECT_EQ(flash_.Reclaim(1), SegmentBytes());
  EXPECT_EQ(flash_.tier()->Look().free, free + 1);
  EXPECT_EQ(flash_.Reclaim(SegmentBytes() + 1), 2 * SegmentBytes());
  EXPECT_EQ(flash_.tier()->Look().free, free + 3);
}

TEST_F(FlashReclaimTest, WhatGoesIsAMissAndWhatStaysIsThere) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(200, 1);

  flash_.Reclaim(1);

  EXPECT_EQ(flash_.Load(blocks.front()), LoadOutcome::kAbsent);
  EXPECT_EQ(flash_.Load(blocks.back()), LoadOutcome::kLoaded);
}

TEST_F(FlashReclaimTest, ThereIsNoMoreToReclaimThanIsSealed) {
  ASSERT_OK(flash_.Boot());
  Fill(10, 1);

  EXPECT_EQ(flash_.Reclaim(SegmentBytes()), 0u);
}

// Rules F4, P8.
TEST_F(FlashReclaimTest, ASegmentIsNotReusedWhileItIsRead) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(200, 1);
  const std::uint32_t free = flash_.tier()->Look().free;
  std::vector<std::byte> bytes(4096);
  std::optional<LoadOutcome> outcome;
  std::vector<Tier::LoadRequest> batch(1);
  batch[0].block = blocks.front().header.block;
  batch[0].destination = absl::MakeSpan(bytes);
  batch[0].done = [&](LoadOutcome done, const SlotHeader&) { outcome = done; };
  flash_.device()->Stall();
  flash_.tier()->Load(absl::MakeSpan(batch), BootTime::Infinite());

  // The segment of the first blocks is the coldest.
  const std::optional<std::uint64_t> freed = flash_.Reclaim(1);

  EXPECT_EQ(freed, std::nullopt);
  EXPECT_EQ(flash_.tier()->Look().free, free);
  EXPECT_EQ(flash_.tier()->Look().retiring, 1u);
  EXPECT_EQ(outcome, std::nullopt);
  flash_.device()->Resume();
  flash_.world()->RunFor(absl::Seconds(1));
  EXPECT_EQ(outcome, LoadOutcome::kLoaded);
  EXPECT_EQ(bytes, blocks.front().bytes);
  EXPECT_EQ(flash_.tier()->Look().free, free + 1);
}

TEST_F(FlashReclaimTest, WhatIsReadOftenIsWrittenOnceMore) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(200, 1);
  // Twice is worth it, once is not; then the second segment is the colder one.
  for (int i = 0; i < 2; ++i) flash_.Load(blocks[3]);
  flash_.Load(blocks[4]);
  for (const FlashBlock& block : blocks) {
    if (&block - blocks.data() > 100) flash_.Load(block);
  }

  EXPECT_EQ(flash_.Reclaim(1), SegmentBytes());

  EXPECT_EQ(flash_.Load(blocks[3]), LoadOutcome::kLoaded);
  EXPECT_EQ(flash_.Load(blocks[4]), LoadOutcome::kAbsent);
  EXPECT_EQ(flash_.tier()->ledger().reappended_bytes.value(), 4096u);
}

TEST_F(FlashReclaimTest, WritingOnceMoreStaysWithinTheEnduranceBudget) {
  flash_.options()->endurance = {.bytes_a_day = 1,
                                 .burst_bytes = 200 * 4096ULL};
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(200, 1);
  for (int i = 0; i < 3; ++i) flash_.Load(blocks[3]);
  for (const FlashBlock& block : blocks) {
    if (&block - blocks.data() > 100) flash_.Load(block);
  }

  EXPECT_EQ(flash_.Reclaim(1), SegmentBytes());

  EXPECT_EQ(flash_.Load(blocks[3]), LoadOutcome::kAbsent);
  EXPECT_EQ(flash_.tier()->ledger().reappended_bytes.value(), 0u);
}

TEST_F(FlashReclaimTest, ADeviceThatIsWrittenRoundAndRoundTakesOn) {
  flash_.options()->keep_free_segments = 2;
  ASSERT_OK(flash_.Boot());

  for (int i = 0; i < 30; ++i) Fill(80, 1 + i * 80);

  EXPECT_GT(flash_.tier()->ledger().reclaimed_segments.value(), 10u);
  EXPECT_GE(flash_.tier()->Look().free, 2u);
}

// Rule F1. One block a round, so that the records of both laps begin at the
// same places: a scan that went on would find a whole record there.
TEST_F(FlashReclaimTest, AnOldLapsRecordsNeverComeBack) {
  ASSERT_OK(flash_.Boot());
  std::vector<FlashBlock> old;
  while (flash_.tier()->Look().free > 0) {
    old.push_back(Fill(1, 1 + static_cast<int>(old.size()))[0]);
  }
  const std::uint32_t sealed = flash_.tier()->Look().sealed;
  ASSERT_EQ(flash_.Reclaim(sealed * SegmentBytes()), sealed * SegmentBytes());
  // On to the first segment's next lap, in which two records more follow.
  int key = 10'000;
  while (flash_.tier()->Look().sealed == 0) Fill(1, ++key);
  for (int i = 0; i < 2; ++i) Fill(1, ++key);
  flash_.Crash();

  ASSERT_OK(flash_.Boot());

  ASSERT_EQ(flash_.tier()->recovered().scanned, 1u);
  // The first segment's share of the old ones.
  const std::size_t first = old.size() / (sealed + 1);
  ASSERT_GT(first, 20u);
  for (std::size_t i = 0; i < first; ++i) {
    EXPECT_EQ(flash_.Load(old[i]), LoadOutcome::kAbsent) << i;
  }
}

TEST_F(FlashReclaimTest, TheScrubberFindsDamageWithinItsBudget) {
  flash_.options()->scrubber.budget = {.bytes_a_day = 86'400 * 4096ULL,
                                       .burst_bytes = 8192};
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(50, 1);
  const std::uint64_t before = flash_.tier()->ledger().scrubbed_bytes.value();
  flash_.device()->CorruptOneByte(flash_.tier()->layout().SegmentOffset(0) +
                                  3 * kFlashPage);
  flash_.world()->RunFor(absl::Seconds(20));
  // A block a second.
  EXPECT_LE(flash_.tier()->ledger().scrubbed_bytes.value() - before,
            23 * 4096u);

  flash_.world()->RunFor(absl::Hours(2));

  EXPECT_GE(flash_.tier()->scrub_progress().passes, 1u);
  EXPECT_EQ(flash_.tier()->ledger().corrupt_records.value(), 1u);
  EXPECT_EQ(flash_.tier()->Look().records, 49u);
}

// --- Taking a device into use.

TEST_F(FlashReclaimTest, ADeviceOfAnotherClusterIsRefused) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(3, 1);
  flash_.Crash();
  const ClusterId ours = flash_.options()->opening.cluster;
  flash_.options()->opening.cluster = CountingId<ClusterId>(0x77);

  EXPECT_THAT(flash_.Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("cluster")));

  flash_.Crash();
  flash_.options()->opening.cluster = ours;
  ASSERT_OK(flash_.Boot());
  EXPECT_EQ(flash_.Load(blocks[0]), LoadOutcome::kLoaded);
}

TEST_F(FlashReclaimTest, ADeviceOfAnotherNodeIsAdoptedOnlyWhenTold) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(3, 1);
  flash_.Crash();
  flash_.options()->opening.node = CountingId<NodeId>(0x33);
  EXPECT_THAT(flash_.Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("node")));
  flash_.Crash();
  flash_.options()->opening.takeover = FlashTakeover::kAdopt;

  ASSERT_OK(flash_.Boot());

  EXPECT_EQ(flash_.Load(blocks[0]), LoadOutcome::kLoaded);
  flash_.Crash();
  flash_.options()->opening.takeover = FlashTakeover::kRefuse;
  EXPECT_OK(flash_.Boot());
}

TEST_F(FlashReclaimTest, ADeviceThatIsFormattedAnewHasNothingOfBefore) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(100, 1);
  flash_.Crash();
  flash_.options()->opening.takeover = FlashTakeover::kFormat;

  ASSERT_OK(flash_.Boot());

  EXPECT_EQ(flash_.tier()->recovered().records, 0u);
  EXPECT_EQ(flash_.Load(blocks[0]), LoadOutcome::kAbsent);
}

TEST_F(FlashReclaimTest, OneDamagedSuperblockIsSurvivedAndTwoAreRefused) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Fill(3, 1);
  flash_.Crash();
  flash_.device()->CorruptOneByte(100);
  ASSERT_OK(flash_.Boot());
  EXPECT_EQ(flash_.Load(blocks[0]), LoadOutcome::kLoaded);
  flash_.Crash();
  flash_.device()->CorruptOneByte(kFlashPage + 100);

  EXPECT_THAT(flash_.Open(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(FlashReclaimTest, ADeviceThatIsTooSmallSaysWhatItNeeds) {
  FlashWorld small(1, 2 * kMiB);

  EXPECT_THAT(small.Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("at least 4")));
}

// --- The pure parts.

TEST(SegmentOrderTest, EmptySegmentsGoFirstThenTheColdest) {
  const auto at = [](int seconds) {
    return BootTime::FromNanos(seconds * 1'000'000'000LL);
  };
  SegmentFacts warm{.segment = 1, .live_records = 5, .sealed_at = at(1)};
  warm.last_read = at(100);
  const SegmentFacts cold{.segment = 2, .live_records = 5, .sealed_at = at(9)};
  const SegmentFacts empty{
      .segment = 3, .live_records = 0, .sealed_at = at(50)};

  const std::vector<SegmentFacts> order =
      ColdestSegmentFirst().Order({warm, cold, empty});

  EXPECT_EQ(order[0].segment, 3u);
  EXPECT_EQ(order[1].segment, 2u);
  EXPECT_EQ(order[2].segment, 1u);
  EXPECT_FALSE(ColdestSegmentFirst(0).WorthKeeping(15));
}

TEST(ByteBudgetTest, ABudgetFillsByTheClockUpToItsBurst) {
  ByteBudget budget({.bytes_a_day = 86'400, .burst_bytes = 10});
  BootTime now = BootTime::FromNanos(1'000'000'000);
  EXPECT_TRUE(budget.Take(10, now));
  EXPECT_FALSE(budget.Take(1, now));
  EXPECT_EQ(budget.WaitFor(5, now), absl::Seconds(5));

  now = now + absl::Seconds(5);
  EXPECT_TRUE(budget.Take(5, now));
  now = now + absl::Hours(1);
  EXPECT_FALSE(budget.Take(11, now));
  EXPECT_TRUE(budget.Take(10, now));
  budget.GiveBack(3);
  EXPECT_TRUE(budget.Take(3, now));
}

}  // namespace
}  // namespace firnkv
