#include "server/tier/flash_tier.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/tier/flash_fixture.h"

namespace firnkv {
namespace {

class FlashTierTest : public testing::Test {
 protected:
  std::vector<FlashBlock> Many(int count, int tenant = 0, int first = 1) {
    std::vector<FlashBlock> blocks;
    for (int i = 0; i < count; ++i) {
      blocks.push_back(MakeFlashBlock(tenant, first + i, 4096));
    }
    return blocks;
  }
  void StoreOk(const std::vector<FlashBlock>& blocks) {
    for (const std::optional<StoreOutcome>& outcome : flash_.StoreAll(blocks)) {
      ASSERT_EQ(outcome, StoreOutcome::kStored);
    }
  }
  int CountLoaded(const std::vector<FlashBlock>& blocks) {
    int loaded = 0;
    for (const FlashBlock& block : blocks) {
      loaded += flash_.Load(block) == LoadOutcome::kLoaded ? 1 : 0;
    }
    return loaded;
  }
  std::uint64_t segment_bytes() {
    return flash_.tier()->layout().segment_bytes;
  }

  FlashWorld flash_;
};

TEST_F(FlashTierTest, AStoredBlockIsLoadedWhole) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 3000);

  EXPECT_EQ(flash_.Load(block), LoadOutcome::kAbsent);
  EXPECT_EQ(flash_.Store(block), StoreOutcome::kStored);
  EXPECT_EQ(flash_.Load(block), LoadOutcome::kLoaded);
  EXPECT_EQ(flash_.Store(block), StoreOutcome::kAlreadyThere);
}

TEST_F(FlashTierTest, WhatWasStoredSurvivesAnOrderlyEndInTablesOfContents) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Many(200);
  StoreOk(blocks);
  flash_.Restart();

  ASSERT_OK(flash_.Boot());

  EXPECT_EQ(flash_.tier()->recovered().scanned, 0u);
  EXPECT_EQ(flash_.tier()->recovered().records, 200u);
  EXPECT_EQ(CountLoaded(blocks), 200);
}

TEST_F(FlashTierTest, WhatWasStoredSurvivesACrashByScanningOpenSegmentsOnly) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Many(200);
  StoreOk(blocks);
  flash_.Crash();

  ASSERT_OK(flash_.Boot());

  EXPECT_EQ(flash_.tier()->recovered().scanned, 1u);
  EXPECT_GT(flash_.tier()->recovered().sealed, 0u);
  EXPECT_EQ(CountLoaded(blocks), 200);
  // It was sealed then.
  flash_.Crash();
  ASSERT_OK(flash_.Boot());
  EXPECT_EQ(flash_.tier()->recovered().scanned, 0u);
  EXPECT_EQ(CountLoaded(blocks), 200);
}

// Rule C3.
TEST_F(FlashTierTest, NothingRecoveredIsServedBeforeItsOwnerIsConfirmed) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});
  flash_.Crash();
  ASSERT_OK(flash_.Open());

  EXPECT_FALSE(flash_.tier()->MayHold(block.header.block));
  EXPECT_EQ(flash_.Load(block), LoadOutcome::kAbsent);
  EXPECT_EQ(flash_.Store(MakeFlashBlock(0, 2, 4096)), StoreOutcome::kRefused);

  flash_.Confirm(0);
  EXPECT_EQ(flash_.Load(block), LoadOutcome::kLoaded);
}

// Rules C2, C3, P13.
TEST_F(FlashTierTest, WhatWasClearedWhileTheNodeWasDownStaysAway) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});
  flash_.Crash();
  ASSERT_OK(flash_.Open());

  flash_.Confirm(0, ClearEpoch{2});

  EXPECT_EQ(flash_.Load(block), LoadOutcome::kAbsent);
  EXPECT_EQ(flash_.Store(block), StoreOutcome::kRefused);
  EXPECT_EQ(flash_.Store(MakeFlashBlock(0, 1, 4096, ClearEpoch{2})),
            StoreOutcome::kStored);
}

// Rules C3, C5.
TEST_F(FlashTierTest, ASegmentOfAnotherTenantAnswersForNothing) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});
  flash_.Crash();
  ASSERT_OK(flash_.Open());

  flash_.tier()->Confirm({.name_space = NamespaceOf(0),
                          .tenant = TenantOf(1),
                          .clear_epoch = ClearEpoch{1}});

  EXPECT_EQ(flash_.Load(block), LoadOutcome::kAbsent);
}

// Rule F0.
TEST_F(FlashTierTest, RecoveredRecordsHaveGenerationsOfThisRun) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});
  const Generation before = flash_.generations()[0];
  flash_.Crash();
  ASSERT_OK(flash_.Boot());

  const FlashWorld::Loaded loaded = flash_.LoadAll({block.header.block})[0];

  ASSERT_EQ(loaded.outcome, LoadOutcome::kLoaded);
  EXPECT_GT(loaded.header.generation, before);
  EXPECT_GE(static_cast<std::uint64_t>(loaded.header.generation),
            1'000'000'000u);
}

// Rules F3, P12.
TEST_F(FlashTierTest, AFlippedByteAnywhereIsFoundAndNeverServedAgain) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Many(20);
  StoreOk(blocks);
  // A record of 4,344 bytes has at least one byte that begins a page.
  const std::uint64_t begin = flash_.tier()->layout().SegmentOffset(0);
  for (std::uint64_t page = 1; page < 25; ++page) {
    flash_.device()->CorruptOneByte(begin + page * kFlashPage);
  }

  for (const FlashBlock& block : blocks) {
    const FlashWorld::Loaded loaded = flash_.LoadAll({block.header.block})[0];
    ASSERT_EQ(loaded.outcome, LoadOutcome::kCorrupt);
    // Rule C5: nothing of it is left in the slot.
    for (const std::byte byte : loaded.bytes) {
      ASSERT_TRUE(byte == std::byte{0} || byte == std::byte{0xee});
    }
    EXPECT_EQ(flash_.Load(block), LoadOutcome::kAbsent);
  }
  EXPECT_EQ(flash_.tier()->ledger().corrupt_records.value(), 20u);
}

TEST_F(FlashTierTest, ReadersOfOneBlockShareOneRead) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});
  const std::uint64_t before = flash_.device()->reads();

  const auto loaded =
      flash_.LoadAll(std::vector<BlockId>(10, block.header.block));

  for (const FlashWorld::Loaded& one : loaded) {
    EXPECT_EQ(one.outcome, LoadOutcome::kLoaded);
    EXPECT_TRUE(FlashWorld::IsRight(block, one));
  }
  EXPECT_EQ(flash_.device()->reads() - before, 1u);
  EXPECT_EQ(flash_.tier()->ledger().shared_reads.value(), 9u);
}

TEST_F(FlashTierTest, ABatchIsReadInParallel) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Many(128);
  StoreOk(blocks);
  std::vector<BlockId> ids;
  for (const FlashBlock& block : blocks) ids.push_back(block.header.block);

  const auto loaded = flash_.LoadAll(ids);

  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSERT_TRUE(FlashWorld::IsRight(blocks[i], loaded[i]));
  }
  EXPECT_EQ(flash_.device()->deepest(), 128u);
}

TEST_F(FlashTierTest, RecordsWithEqualFingerprintsAreAllReachable) {
  flash_.options()->space.fingerprint_bits = 1;
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Many(12);
  StoreOk(blocks);

  EXPECT_EQ(CountLoaded(blocks), 12);
  EXPECT_EQ(flash_.Load(MakeFlashBlock(0, 99, 4096)), LoadOutcome::kAbsent);
  EXPECT_GT(flash_.tier()->ledger().collisions.value(), 0u);
  EXPECT_EQ(flash_.tier()->ledger().corrupt_records.value(), 0u);
  EXPECT_EQ(flash_.Store(blocks[3]), StoreOutcome::kAlreadyThere);
}

// Rule F5.
TEST_F(FlashTierTest, AReadThatFailsCostsNothingButItself) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});

  flash_.device()->FailNext(1);
  EXPECT_EQ(flash_.Load(block), LoadOutcome::kDeviceFailed);
  flash_.device()->ShortenNextReads(1);
  EXPECT_EQ(flash_.Load(block), LoadOutcome::kDeviceFailed);

  EXPECT_EQ(flash_.Load(block), LoadOutcome::kLoaded);
}

// Rule F5.
TEST_F(FlashTierTest, AFullDeviceTakesNothingAndServesWhatItHas) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock first = MakeFlashBlock(0, 1, 4096);
  const FlashBlock second = MakeFlashBlock(0, 2, 4096);
  StoreOk({first});
  flash_.device()->set_full(true);

  EXPECT_EQ(flash_.Store(second), StoreOutcome::kDeviceFailed);

  EXPECT_EQ(flash_.Load(first), LoadOutcome::kLoaded);
  EXPECT_EQ(flash_.Load(second), LoadOutcome::kAbsent);
  flash_.device()->set_full(false);
  EXPECT_EQ(flash_.Store(second), StoreOutcome::kStored);
}

// Rule F2.
TEST_F(FlashTierTest, AfterAFailedFlushNothingOfTheRoundCounts) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> before = Many(5);
  StoreOk(before);
  const std::vector<FlashBlock> lost = Many(5, 0, 100);
  flash_.device()->SetFaults({.failed_flushes = 1000});

  for (const auto& outcome : flash_.StoreAll(lost)) {
    EXPECT_EQ(outcome, StoreOutcome::kDeviceFailed);
  }
  flash_.device()->SetFaults({});
  // Until the breaker lets somebody try.
  flash_.world()->RunFor(absl::Seconds(10));

  EXPECT_EQ(CountLoaded(before), 5);
  EXPECT_EQ(CountLoaded(lost), 0);
  StoreOk(Many(5, 0, 200));
  flash_.Restart();
  ASSERT_OK(flash_.Boot());
  EXPECT_EQ(CountLoaded(before), 5);
  EXPECT_EQ(CountLoaded(lost), 0);
}

TEST_F(FlashTierTest, ALostWriteIsFoundByReadingBack) {
  flash_.options()->writer.check_one_in = 1;
  ASSERT_OK(flash_.Boot());
  StoreOk(Many(1));
  flash_.device()->SetFaults({.lost_writes = 1000});

  EXPECT_EQ(flash_.Store(MakeFlashBlock(0, 2, 4096)),
            StoreOutcome::kDeviceFailed);

  EXPECT_EQ(flash_.tier()->ledger().failed_checks.value(), 1u);
  EXPECT_EQ(flash_.Load(MakeFlashBlock(0, 2, 4096)), LoadOutcome::kAbsent);
}

TEST_F(FlashTierTest, ALoadThatWouldBeLateIsCongested) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});
  const std::uint64_t before = flash_.device()->reads();
  flash_.device()->set_predicted_wait(absl::Seconds(20));

  EXPECT_EQ(flash_.Load(block), LoadOutcome::kCongested);

  EXPECT_EQ(flash_.device()->reads(), before);
}

// Rule F5.
TEST_F(FlashTierTest, AStalledDeviceIsNotAskedAnyMore) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});
  flash_.device()->set_predicted_wait(absl::Seconds(60));

  EXPECT_TRUE(flash_.tier()->failing());
  EXPECT_EQ(flash_.Load(block), LoadOutcome::kDeviceFailed);
  EXPECT_EQ(flash_.Store(MakeFlashBlock(0, 2, 4096)),
            StoreOutcome::kDeviceFailed);

  flash_.device()->set_predicted_wait(absl::ZeroDuration());
  EXPECT_FALSE(flash_.tier()->failing());
  EXPECT_EQ(flash_.Load(block), LoadOutcome::kLoaded);
}

// Rule F5.
TEST_F(FlashTierTest, ARunOfFailuresOpensTheBreakerUntilATrySucceeds) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});
  flash_.device()->SetFaults({.failed_reads = 1000});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(flash_.Load(block), LoadOutcome::kDeviceFailed);
  }
  EXPECT_TRUE(flash_.tier()->failing());
  flash_.device()->SetFaults({});

  // Two at once: one is the try.
  const auto loaded = flash_.LoadAll({block.header.block, block.header.block});

  EXPECT_EQ(loaded[0].outcome, LoadOutcome::kLoaded);
  EXPECT_EQ(loaded[1].outcome, LoadOutcome::kDeviceFailed);
  EXPECT_FALSE(flash_.tier()->failing());
}

TEST_F(FlashTierTest, AnErasedBlockIsAbsent) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, 4096);
  StoreOk({block});

  flash_.tier()->Erase(block.header.block);

  EXPECT_EQ(flash_.Load(block), LoadOutcome::kAbsent);
}

TEST_F(FlashTierTest, TheEnduranceBudgetBoundsWhatIsWritten) {
  flash_.options()->endurance = {.bytes_a_day = 86'400 * 4096ULL,
                                 .burst_bytes = 2 * 4096ULL};
  ASSERT_OK(flash_.Boot());

  const auto outcomes = flash_.StoreAll(Many(3));

  EXPECT_EQ(outcomes[0], StoreOutcome::kStored);
  EXPECT_EQ(outcomes[1], StoreOutcome::kStored);
  EXPECT_EQ(outcomes[2], StoreOutcome::kOverBudget);
  // Ten seconds later there is room again.
  EXPECT_EQ(flash_.Store(MakeFlashBlock(0, 3, 4096)), StoreOutcome::kStored);
}

// How many records of a run of stores went into the first segment.
TEST_F(FlashTierTest, SmallRecordsCostATenthAtMost) {
  FlashWorld flash(1, 20 * kMiB);
  flash.options()->opening.least_segment_bytes = 4 * kMiB;
  flash.options()->writer.round_bytes = kMiB;
  ASSERT_OK(flash.Boot());
  const std::vector<FlashBlock> blocks = Many(1024);

  flash.StoreAll(blocks);

  const std::vector<Generation>& generations = flash.generations();
  std::uint64_t first = 1;
  while (static_cast<std::uint64_t>(generations[first]) ==
         static_cast<std::uint64_t>(generations[0]) + first) {
    ++first;
  }
  EXPECT_EQ(flash.tier()->Look().sealed, 1u);
  EXPECT_LE(flash.tier()->layout().segment_bytes * 100, first * 4096 * 110);
}

// Of 256 KiB and more, padded ones: a fiftieth.
TEST(FlashPlacesTest, LargeRecordsCostAFiftiethAtMost) {
  for (const std::uint64_t length : {256 * kKiB, 512 * kKiB, 4 * kMiB}) {
    const RecordPlace place = PlaceRecord(kFlashPage, length);

    EXPECT_TRUE(place.padded);
    EXPECT_EQ(place.payload % kFlashPage, 0u);
    EXPECT_LE((place.end - place.offset + 124) * 100, length * 102);
  }
}

TEST_F(FlashTierTest, WriteAmplificationIsATwentiethAtMost) {
  FlashWorld flash(1, 64 * kMiB);
  flash.options()->opening.largest_block_bytes = 256 * kKiB;
  flash.options()->writer.round_bytes = 4 * kMiB;
  flash.options()->reader.buffer_bytes = 8 * kMiB;
  ASSERT_OK(flash.Boot());
  std::vector<FlashBlock> blocks;
  for (int i = 0; i < 120; ++i) {
    blocks.push_back(MakeFlashBlock(0, i + 1, 256 * kKiB));
  }

  flash.StoreAll(blocks);

  EXPECT_EQ(flash.tier()->ledger().admitted_bytes.value(), 120 * 256 * kKiB);
  EXPECT_EQ(flash.tier()->ledger().written_bytes.value(),
            flash.device()->written_bytes() - 2 * kFlashPage);
  EXPECT_LE(flash.tier()->ledger().WriteAmplification(), 1.05);
}

TEST(FlashLedgerTest, LifeIsProjectedFromThePace) {
  FlashLedger ledger;
  EXPECT_EQ(ledger.ProjectedLife(kGiB, 0, absl::Hours(1)),
            absl::InfiniteDuration());
  ledger.written_bytes.Add(kMiB);

  EXPECT_EQ(ledger.ProjectedLife(11 * kMiB, 0, absl::Hours(1)),
            absl::Hours(10));
  EXPECT_EQ(ledger.ProjectedLife(kMiB, kMiB, absl::Hours(1)),
            absl::ZeroDuration());
}

}  // namespace
}  // namespace firnkv
