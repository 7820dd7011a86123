// Room: what leaves, what is waited for, how slabs change hands. Regions:
// dram_pool_regions_test.cc.

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

constexpr std::uint64_t kLength = 16 * kKiB;  // 64 a region, 256 in all.

class DramPoolRoomTest : public PoolTest {
 protected:
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

TEST_F(DramPoolRoomTest, RoomForAGuessIsMadeOnlyByWhatIsColder) {
  WriteMany(name_space_, 1, 256, kLength);
  const Warmth then = pool_->NextWarmth();
  std::vector<BlockKey> later;
  for (std::uint64_t n = 3; n <= 256; ++n) later.push_back(Key(n));
  pool_->Release(kReader, {Open(name_space_, later).lease.id});
  ReserveRequest request = Request(
      name_space_,
      {Block(1001, kLength), Block(1002, kLength), Block(1003, kLength)});
  request.evict_below = then;

  const ReserveAnswer answer = Reserve(request);

  EXPECT_EQ(answer.blocks[0].outcome, Outcome::kStored);
  EXPECT_EQ(answer.blocks[1].outcome, Outcome::kStored);
  EXPECT_EQ(answer.blocks[2].outcome, Outcome::kCongested);
  EXPECT_EQ(pool_->Snapshot().evicted_blocks, 2u);
  // A writer is not refused for it.
  EXPECT_EQ(Write(name_space_, Block(1004, kLength)).outcome, Outcome::kStored);
}

// No slab of another size, no region of another tenant goes for a guess.
TEST_F(DramPoolRoomTest, AGuessTakesNothingFromOtherClassesOrTenants) {
  const PoolNamespace other = Namespace(2, 2);
  WriteMany(name_space_, 1, 256, kLength);
  const Warmth now = pool_->NextWarmth();
  ReserveRequest large = Request(name_space_, {Block(1001, 4 * kLength)});
  large.evict_below = now;
  ReserveRequest foreign = Request(other, {Block(1, kLength)});
  foreign.evict_below = now;

  EXPECT_EQ(Reserve(large).blocks[0].outcome, Outcome::kCongested);
  EXPECT_EQ(Reserve(foreign).blocks[0].outcome, Outcome::kCongested);

  EXPECT_EQ(CountHits(name_space_, 1, 256), 256u);
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

// Rule S9: what a writer was told is there is not what makes room for the rest
// of its batch. Another writer's batch may push it out.
TEST_F(DramPoolRoomTest, ABatchIsMadeNoRoomByItsOwnBlocks) {
  WriteMany(name_space_, 1, 256, kLength);
  LeaseAll(name_space_, 13, 244, absl::Seconds(10));
  std::vector<ReserveBlock> batch;
  for (std::uint64_t i = 1; i <= 12; ++i) batch.push_back(Block(i, kLength));
  for (std::uint64_t i = 0; i < 8; ++i)
    batch.push_back(Block(1000 + i, kLength));

  const ReserveAnswer answer = Reserve(Request(name_space_, batch));

  ASSERT_OK(answer.status);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(answer.blocks[i].outcome,
              i < 12 ? Outcome::kAlreadyThere : Outcome::kCongested)
        << i;
  }
  EXPECT_EQ(CountHits(name_space_, 1, 12), 12u);
  EXPECT_EQ(Write(name_space_, Block(1000, kLength)).outcome, Outcome::kStored);
  CheckSums();
}

// Nor can one tenant take the places of the others.
TEST_F(DramPoolRoomTest, TooManyWaitingBatchesAreCongestedAtOnce) {
  WriteMany(name_space_, 1, 256, kLength);
  LeaseAll(name_space_, 1, 256, absl::Seconds(10));
  std::uint64_t waiting = 0;
  for (std::uint64_t tenant = 1; waiting < options_.max_waiting_batches;
       ++tenant) {
    const PoolNamespace own = Namespace(tenant, tenant);
    for (std::size_t i = 0; i < options_.max_waiting_batches_a_tenant; ++i) {
      ASSERT_FALSE(StartOne(own, Block(1000 + i, kLength))->has_value());
      ++waiting;
    }
    auto* const answer = StartOne(own, Block(9999, kLength));
    ASSERT_TRUE(answer->has_value());
    EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kCongested);
  }

  auto* const answer = StartOne(Namespace(99, 99), Block(1, kLength));

  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kCongested);
}

}  // namespace
}  // namespace firnkv
