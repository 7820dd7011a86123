// Room: what leaves, what is waited for, how slabs and regions change hands,
// and what memory the pool takes.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tier/slot_space.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kLength = 16 * kKiB;  // 64 a region, 256 in all.

class DramPoolRoomTest : public PoolTest {
 protected:
  std::uint64_t RegionsOf(const PoolNamespace& name_space) {
    return pool_->RegionsOf(name_space.tenant).size();
  }
  // Starts a reserve of one block that is expected to wait.
  std::optional<ReserveAnswer>* StartOne(const PoolNamespace& name_space,
                                         const ReserveBlock& block) {
    started_.push_back(std::make_unique<std::optional<ReserveAnswer>>());
    auto* const answer = started_.back().get();
    pool_->StartReserve(Request(name_space, {block}),
                        [answer](ReserveAnswer a) { *answer = std::move(a); });
    world_.RunReady();
    return answer;
  }
  // Leases every block first .. first + count - 1; returns the lease.
  LeaseId LeaseAll(const PoolNamespace& name_space, std::uint64_t first,
                   std::uint64_t count, absl::Duration lease) {
    std::vector<BlockKey> keys;
    for (std::uint64_t i = first; i < first + count; ++i)
      keys.push_back(Key(i));
    return Open(name_space, keys, kReader, lease).lease.id;
  }

  std::vector<std::unique_ptr<std::optional<ReserveAnswer>>> started_;
};

TEST_F(DramPoolRoomTest, AFullPoolEvictsItsColdestBlock) {
  WriteMany(name_space_, 1, 256, kLength);
  Open(name_space_, {Key(1)});

  WriteMany(name_space_, 1000, 1, kLength);

  EXPECT_EQ(Look(name_space_, 1), Outcome::kHit);
  EXPECT_EQ(Look(name_space_, 2), Outcome::kMiss);
  EXPECT_EQ(pool_->Snapshot().evicted_blocks, 1u);
  CheckSums();
}

TEST_F(DramPoolRoomTest, AParentIsNotEvictedBeforeItsChild) {
  ASSERT_EQ(Write(name_space_, Chained(1, kLength, 0)).outcome,
            Outcome::kStored);
  ASSERT_EQ(Write(name_space_, Chained(2, kLength, 1)).outcome,
            Outcome::kStored);
  WriteMany(name_space_, 100, 254, kLength);
  Open(name_space_, {Key(2)});  // The parent is the coldest now.

  WriteMany(name_space_, 1000, 200, kLength);

  EXPECT_EQ(Look(name_space_, 1), Outcome::kHit);
  EXPECT_EQ(Look(name_space_, 2), Outcome::kHit);
}

TEST_F(DramPoolRoomTest, EvictFreesTheTargetAndNotOneBlockMore) {
  WriteMany(name_space_, 1, 100, kLength);

  EXPECT_EQ(pool_->Evict(10 * kLength), 10 * kLength);
  EXPECT_EQ(CountHits(name_space_, 1, 100), 90u);
  EXPECT_EQ(pool_->Evict(kLength + 1), 2 * kLength);
  EXPECT_EQ(CountHits(name_space_, 1, 100), 88u);
}

TEST_F(DramPoolRoomTest, ADeclaredBlockSizeGetsSlotsOfExactlyThatSize) {
  PoolNamespace declared = name_space_;
  declared.block_bytes = 36 * kKiB;
  WriteMany(declared, 1, 10, 36 * kKiB);

  EXPECT_EQ(pool_->Snapshot().resident_bytes, 10 * 36 * kKiB);
}

TEST_F(DramPoolRoomTest, OtherSlotsWasteAtMostAFifth) {
  for (std::uint64_t pages = 1; pages <= 64; ++pages) {
    const std::uint64_t slot = SlotSpace::SlotBytesFor(pages * kPageBytes, 0);
    EXPECT_GE(slot, pages * kPageBytes);
    EXPECT_LE((slot - pages * kPageBytes) * 5, slot) << pages;
  }
}

// A slot class that has nothing takes a slab from one that has everything.
TEST_F(DramPoolRoomTest, ALargeBlockFindsRoomAmongSmallOnes) {
  WriteMany(name_space_, 1, 1024, 4 * kKiB);
  ASSERT_EQ(pool_->Snapshot().unused_unit_bytes, 0u);

  EXPECT_EQ(Write(name_space_, Block(5000, 256 * kKiB)).outcome,
            Outcome::kStored);

  EXPECT_GE(CountHits(name_space_, 1, 1024), 1024u - 64u);
  CheckSums();
}

TEST_F(DramPoolRoomTest, ASmallBlockFindsRoomAmongLargeOnes) {
  WriteMany(name_space_, 1, 16, 256 * kKiB);

  EXPECT_EQ(Write(name_space_, Block(5000, 4 * kKiB)).outcome,
            Outcome::kStored);
  EXPECT_EQ(CountHits(name_space_, 1, 16), 15u);
}

// A class that thrashes takes slabs that are colder than its own coldest block.
TEST_F(DramPoolRoomTest, AnIdleClassGivesItsSlabsToABusyOne) {
  WriteMany(name_space_, 1, 1024, 4 * kKiB);  // Never used again.

  WriteMany(name_space_, 5000, 600, kLength);

  EXPECT_GE(CountHits(name_space_, 5000, 600), 240u);
  EXPECT_LE(CountHits(name_space_, 1, 1024), 64u);
  CheckSums();
}

TEST_F(DramPoolRoomTest, AnAllocationWithEverythingLeasedWaitsForALease) {
  WriteMany(name_space_, 1, 256, kLength);
  const LeaseId lease = LeaseAll(name_space_, 1, 256, absl::Seconds(10));

  auto* const answer = StartOne(name_space_, Block(1000, kLength));
  ASSERT_FALSE(answer->has_value());
  pool_->Release(kReader, {lease});
  world_.RunReady();

  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kStored);
}

TEST_F(DramPoolRoomTest, AWaitingBatchIsServedWhenALeaseEndsByTime) {
  WriteMany(name_space_, 1, 256, kLength);
  LeaseAll(name_space_, 1, 256, absl::Milliseconds(500));

  auto* const answer = StartOne(name_space_, Block(1000, kLength));
  world_.RunFor(absl::Milliseconds(500));

  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kStored);
}

TEST_F(DramPoolRoomTest, WhereNothingCanLeaveTheDeadlineSaysCongested) {
  WriteMany(name_space_, 1, 256, kLength);
  LeaseAll(name_space_, 1, 256, absl::Seconds(10));

  auto* const answer = StartOne(name_space_, Block(1000, kLength));
  world_.RunFor(absl::Seconds(1));

  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kCongested);
  EXPECT_EQ(CountHits(name_space_, 1, 256), 256u) << "nothing was lost";
  EXPECT_EQ(pool_->Snapshot().waiting_batches, 0u);
}

TEST_F(DramPoolRoomTest, AHoldIsWaitedForToo) {
  PoolNamespace large = Namespace(9, 1);
  WriteMany(large, 1, 16, 256 * kKiB);
  std::vector<HeldBlock> held;
  for (std::uint64_t i = 1; i <= 16; ++i) held.push_back(HoldOne(large, i));

  auto* const answer = StartOne(large, Block(1000, 256 * kKiB));
  ASSERT_FALSE(answer->has_value());
  held[3].hold.End();
  world_.RunReady();

  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kStored);
  EXPECT_EQ(Look(large, 4), Outcome::kMiss);
}

TEST_F(DramPoolRoomTest, TooManyWaitingBatchesAreCongestedAtOnce) {
  WriteMany(name_space_, 1, 256, kLength);
  LeaseAll(name_space_, 1, 256, absl::Seconds(10));
  for (std::size_t i = 0; i < options_.max_waiting_batches; ++i) {
    StartOne(name_space_, Block(1000 + i, kLength));
  }

  auto* const answer = StartOne(name_space_, Block(9999, kLength));

  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kCongested);
}

// --- Regions.

TEST_F(DramPoolRoomTest, TheArenaGrowsByNeedAndNeverBeyondItsTarget) {
  EXPECT_EQ(pool_->Snapshot().region_bytes, 0u);
  WriteMany(name_space_, 1, 1, kLength);
  EXPECT_EQ(pool_->Snapshot().region_bytes, kMiB);
  WriteMany(name_space_, 2, 600, kLength);
  EXPECT_EQ(pool_->Snapshot().region_bytes, 4 * kMiB);
}

// Rule P11.
TEST_F(DramPoolRoomTest, TheArenaGrowsOnlyBelowTheLimits) {
  limits_.available_bytes = 2 * kMiB;  // One region and its header table.
  WriteMany(name_space_, 1, 1, kLength);
  limits_.available_bytes = kMiB;

  WriteMany(name_space_, 2, 300, kLength);

  EXPECT_EQ(pool_->Snapshot().region_bytes, kMiB);
  EXPECT_GE(pool_->Snapshot().growth_refusals, 1u);
  limits_.available_bytes = kGiB;
  world_.RunFor(options_.growth_pause);
  WriteMany(name_space_, 1000, 300, kLength);
  EXPECT_EQ(pool_->Snapshot().region_bytes, 4 * kMiB);
}

// Rule P11: staging that the node maps counts at nominal size.
TEST_F(DramPoolRoomTest, MappedMemoryOfOthersCountsAgainstTheLimits) {
  limits_.available_bytes = 8 * kMiB;
  pool_->CheckMemory(/*other_mapped_bytes=*/7 * kMiB);

  EXPECT_EQ(Write(name_space_, Block(1, kLength)).outcome, Outcome::kCongested);

  pool_->CheckMemory(0);
  world_.RunFor(options_.growth_pause);
  EXPECT_EQ(Write(name_space_, Block(2, kLength)).outcome, Outcome::kStored);
}

// Rule P11.
TEST_F(DramPoolRoomTest, TheArenaShrinksUnderPressure) {
  WriteMany(name_space_, 1, 256, kLength);
  ASSERT_EQ(RegionsOf(name_space_), 4u);
  limits_.available_bytes = 0;

  pool_->CheckMemory(3 * kMiB / 2);
  world_.RunReady();

  EXPECT_EQ(RegionsOf(name_space_), 2u);
  EXPECT_EQ(memory_.bytes_punched(), 2 * kMiB);
  CheckSums();
}

TEST_F(DramPoolRoomTest, MemoryThatCannotBeMadeIsAnOutcome) {
  memory_.FailNext(1);
  ReserveRequest request = Request(name_space_, {Block(1, kLength)});
  request.deadline = world_.Now() + 2 * options_.growth_pause;

  EXPECT_EQ(Reserve(request).blocks[0].outcome, Outcome::kStored)
      << "made after the pause, before the deadline";
  EXPECT_EQ(pool_->Snapshot().growth_refusals, 1u);
}

TEST_F(DramPoolRoomTest, ALowerTargetRetiresTheColdestRegions) {
  WriteMany(name_space_, 1, 256, kLength);

  pool_->SetTarget(kMiB);
  world_.RunReady();

  EXPECT_EQ(pool_->Snapshot().region_bytes, kMiB);
  EXPECT_EQ(CountHits(name_space_, 193, 64), 64u);
  pool_->SetTarget(2 * kMiB);
  WriteMany(name_space_, 1000, 128, kLength);
  EXPECT_EQ(pool_->Snapshot().region_bytes, 2 * kMiB);
}

TEST_F(DramPoolRoomTest, AnEmptyRegionGoesBackToTheMachine) {
  WriteMany(name_space_, 1, 1, kLength);
  pool_->Remove(name_space_.id, {Key(1)});

  pool_->Sweep(100);
  EXPECT_EQ(pool_->Snapshot().region_bytes, kMiB) << "it may be wanted again";
  world_.RunFor(options_.empty_region_linger);
  pool_->Sweep(100);
  world_.RunReady();

  EXPECT_EQ(pool_->Snapshot().region_bytes, 0u);
  EXPECT_EQ(memory_.bytes_made(), 0u);
}

// Rule C5.
TEST_F(DramPoolRoomTest, NoTwoTenantsShareARegion) {
  const PoolNamespace other = Namespace(2, 2);
  WriteMany(name_space_, 1, 10, kLength);
  WriteMany(other, 1, 10, kLength);

  const auto mine = pool_->RegionsOf(name_space_.tenant);
  const auto theirs = pool_->RegionsOf(other.tenant);
  EXPECT_EQ(mine.size(), 1u);
  EXPECT_EQ(theirs.size(), 1u);
  EXPECT_NE(mine, theirs);
  EXPECT_THAT(pool_->MapRegion(other.tenant, kReader, mine[0]),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(DramPoolRoomTest, ANewTenantGetsARegionOfTheOneWithMost) {
  const PoolNamespace other = Namespace(2, 2);
  WriteMany(name_space_, 1, 256, kLength);

  EXPECT_EQ(Write(other, Block(1, kLength)).outcome, Outcome::kStored);

  EXPECT_EQ(RegionsOf(name_space_), 3u);
  EXPECT_EQ(RegionsOf(other), 1u);
  EXPECT_EQ(CountHits(name_space_, 65, 192), 192u) << "the coldest region went";
  CheckSums();
}

TEST_F(DramPoolRoomTest, ABusyTenantGrowsAtTheCostOfAnIdleOne) {
  const PoolNamespace busy = Namespace(2, 2);
  WriteMany(name_space_, 1, 256, kLength);

  WriteMany(busy, 1, 600, kLength);
  world_.RunReady();

  EXPECT_EQ(RegionsOf(name_space_), 2u) << "no further than half";
  EXPECT_EQ(RegionsOf(busy), 2u);
  CheckSums();
}

// Rule P3.
TEST_F(DramPoolRoomTest, ARegionsNumberNeverComesBack) {
  WriteMany(name_space_, 1, 1, kLength);
  const auto before = pool_->RegionsOf(name_space_.tenant);
  pool_->SetTarget(0);
  world_.RunReady();
  pool_->SetTarget(4 * kMiB);
  WriteMany(name_space_, 2, 1, kLength);

  EXPECT_GT(pool_->RegionsOf(name_space_.tenant)[0], before[0]);
}

// Rule P6, the order of its steps.
TEST_F(DramPoolRoomTest, ARegionRetiresInTheOrderOfItsRule) {
  WriteMany(name_space_, 1, 3, kLength);
  const OpenAnswer leased = Open(name_space_, {Key(1)});
  HeldBlock held = HoldOne(name_space_, 2);
  const SlotCopy copies[] = {leased.blocks[0].copy, held.hold.copy()};
  const Mapped mapped = MapRegion(name_space_, copies[0].slot.region);
  hooks_.before_io = [&](std::uint64_t) {
    for (const SlotCopy& copy : copies) {
      EXPECT_GT(mapped.ReadGeneration(copy.slot), copy.generation);
    }
    EXPECT_EQ(memory_.bytes_punched(), 0u);
  };

  pool_->SetTarget(0);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(Look(name_space_, 3), Outcome::kMiss) << "its slots have retired";
  EXPECT_THAT(hooks_.steps, ElementsAre("made 1", "retiring 1"))
      << "a lease and a hold are waited for";
  pool_->Release(kReader, {leased.lease.id});
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(hooks_.steps.size(), 2u);
  held.hold.End();
  world_.RunReady();

  EXPECT_THAT(hooks_.steps, ElementsAre("made 1", "retiring 1", "io 1",
                                        "transports 1", "gone 1"));
  EXPECT_EQ(memory_.bytes_punched(), kMiB);
  EXPECT_EQ(mapped.ByteAt(copies[0].slot), std::byte{0});
}

// Rule P11: at nominal size.
TEST_F(DramPoolRoomTest, ARegionThatASessionStillMapsCountsUntilItDoesNot) {
  WriteMany(name_space_, 1, 256, kLength);
  const std::uint64_t region = pool_->RegionsOf(name_space_.tenant)[0];
  MapRegion(name_space_, region);

  const PoolNamespace other = Namespace(2, 2);
  auto* const answer = StartOne(other, Block(1, kLength));
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_FALSE(answer->has_value());
  EXPECT_EQ(pool_->Snapshot().mapped_after_retirement_bytes, kMiB);
  pool_->NoteUnmapped(kReader, region);
  world_.RunFor(absl::Milliseconds(1));

  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kStored);
}

TEST_F(DramPoolRoomTest, ASessionsEndUnmapsWhatItHad) {
  WriteMany(name_space_, 1, 1, kLength);
  MapRegion(name_space_, pool_->RegionsOf(name_space_.tenant)[0]);
  pool_->SetTarget(0);
  world_.RunReady();
  ASSERT_EQ(pool_->Snapshot().mapped_after_retirement_bytes, kMiB);

  pool_->EndSession(kReader);

  EXPECT_EQ(pool_->Snapshot().mapped_after_retirement_bytes, 0u);
}

// A commit into a region that retires meanwhile is kept for nobody, but never
// lost half way.
TEST_F(DramPoolRoomTest, ACommitIntoARetiringRegionLeavesAgainAtOnce) {
  const ReservedBlock reserved = ReserveOne(name_space_, Block(1, kLength));
  pool_->SetTarget(0);
  world_.RunReady();
  ASSERT_EQ(pool_->Snapshot().retiring_region_bytes, kMiB);

  EXPECT_EQ(FillAndCommit(reserved.copy, 1).outcome, Outcome::kStored);
  world_.RunReady();

  EXPECT_TRUE(events_.present.empty());
  EXPECT_EQ(pool_->Snapshot().region_bytes, 0u);
}

class HugePagePoolTest : public PoolTest {
 protected:
  static PoolOptions HugePages() {
    PoolOptions options = SmallPool();
    options.huge_pages = true;
    return options;
  }
  HugePagePoolTest() : PoolTest(HugePages()) {}
};

// Rule P9.
TEST_F(HugePagePoolTest, ARegionIsPunchedOnlyOnceEverySessionUnmappedIt) {
  WriteMany(name_space_, 1, 1, kLength);
  const std::uint64_t region = pool_->RegionsOf(name_space_.tenant)[0];
  MapRegion(name_space_, region);
  pool_->SetTarget(0);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(memory_.bytes_punched(), 0u);

  pool_->NoteUnmapped(kReader, region);
  world_.RunReady();

  EXPECT_EQ(memory_.bytes_punched(), kMiB);
}

}  // namespace
}  // namespace firnkv
