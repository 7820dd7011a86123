// Regions: how they come and go, who maps them, and what memory the pool takes.

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kLength = 16 * kKiB;  // 64 a region, 256 in all.

class DramPoolRegionsTest : public PoolTest {
 protected:
  std::uint64_t RegionsOf(const PoolNamespace& name_space) {
    return pool_->RegionsOf(name_space.tenant).size();
  }
  // Starts a reserve of one block that is expected to wait.
  std::optional<ReserveAnswer>* StartOne(const PoolNamespace& name_space,
                                         const ReserveBlock& block) {
    started_.push_back(std::make_unique<std::optional<ReserveAnswer>>());
    auto* const answer = started_.back().get();
    ReserveRequest request = Request(name_space, {block});
    request.deadline = world_.Now() + absl::Seconds(10);
    pool_->StartReserve(std::move(request),
                        [answer](ReserveAnswer a) { *answer = std::move(a); });
    world_.RunReady();
    return answer;
  }

  std::vector<std::unique_ptr<std::optional<ReserveAnswer>>> started_;
};

TEST_F(DramPoolRegionsTest, TheArenaGrowsByNeedAndNeverBeyondItsTarget) {
  EXPECT_EQ(pool_->Snapshot().region_bytes, 0u);
  WriteMany(name_space_, 1, 1, kLength);
  EXPECT_EQ(pool_->Snapshot().region_bytes, kMiB);
  WriteMany(name_space_, 2, 600, kLength);
  EXPECT_EQ(pool_->Snapshot().region_bytes, 4 * kMiB);
}

// Rule P11.
TEST_F(DramPoolRegionsTest, TheArenaGrowsOnlyBelowTheLimits) {
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

// Rule P11: of two that see the same free memory, only one may take it.
TEST_F(DramPoolRegionsTest, TenantsThatGrowAtOnceStayBelowTheLimitTogether) {
  limits_.available_bytes = 2 * kMiB;  // One region and its header table.
  bool inside = false;
  limits_.while_reading = [&] {
    // The other one looks while this one has not taken its memory yet.
    if (!std::exchange(inside, true)) world_.Step();
  };
  std::optional<ReserveAnswer> answers[2];
  for (std::uint64_t i = 0; i < 2; ++i) {
    pool_->StartReserve(
        Request(Namespace(i + 1, i + 1), {Block(1, kLength)}),
        [&answers, i](ReserveAnswer a) { answers[i] = std::move(a); });
  }
  world_.RunReady();

  EXPECT_TRUE(inside);
  EXPECT_EQ(pool_->Snapshot().region_bytes, kMiB);
  EXPECT_EQ(pool_->Snapshot().growth_refusals, 1u);
  EXPECT_TRUE(answers[0].has_value());
  pool_->CancelWaiting();
}

// Rule P11: a failure that is over when the node looks, since its victim is
// gone.
TEST_F(DramPoolRegionsTest, AFailedAllocationAtALimitCostsOneRegion) {
  WriteMany(name_space_, 1, 256, kLength);
  limits_.out_of_memory = 3;
  pool_->CheckMemory(0);
  EXPECT_EQ(RegionsOf(name_space_), 4u) << "it was before this run";
  limits_.out_of_memory = 5;
  pool_->CheckMemory(0);
  pool_->CheckMemory(0);

  EXPECT_EQ(RegionsOf(name_space_), 3u);
}

// Rule P11: staging that the node maps counts at nominal size.
TEST_F(DramPoolRegionsTest, MappedMemoryOfOthersCountsAgainstTheLimits) {
  limits_.available_bytes = 8 * kMiB;
  pool_->CheckMemory(/*other_mapped_bytes=*/7 * kMiB);

  EXPECT_EQ(Write(name_space_, Block(1, kLength)).outcome, Outcome::kCongested);

  pool_->CheckMemory(0);
  world_.RunFor(options_.growth_pause);
  EXPECT_EQ(Write(name_space_, Block(2, kLength)).outcome, Outcome::kStored);
}

// Rule P11.
TEST_F(DramPoolRegionsTest, TheArenaShrinksUnderPressure) {
  WriteMany(name_space_, 1, 256, kLength);
  ASSERT_EQ(RegionsOf(name_space_), 4u);
  limits_.available_bytes = 0;

  pool_->CheckMemory(3 * kMiB / 2);
  world_.RunReady();

  EXPECT_EQ(RegionsOf(name_space_), 2u);
  EXPECT_EQ(memory_.bytes_punched(), 2 * kMiB);
  CheckSums();
}

TEST_F(DramPoolRegionsTest, MemoryThatCannotBeMadeIsAnOutcome) {
  memory_.FailNext(1);
  ReserveRequest request = Request(name_space_, {Block(1, kLength)});
  request.deadline = world_.Now() + 2 * options_.growth_pause;

  EXPECT_EQ(Reserve(request).blocks[0].outcome, Outcome::kStored)
      << "made after the pause, before the deadline";
  EXPECT_EQ(pool_->Snapshot().growth_refusals, 1u);
}

TEST_F(DramPoolRegionsTest, ALowerTargetRetiresTheColdestRegions) {
  WriteMany(name_space_, 1, 256, kLength);

  pool_->SetTarget(kMiB);
  world_.RunReady();

  EXPECT_EQ(pool_->Snapshot().region_bytes, kMiB);
  EXPECT_EQ(CountHits(name_space_, 193, 64), 64u);
  pool_->SetTarget(2 * kMiB);
  WriteMany(name_space_, 1000, 128, kLength);
  EXPECT_EQ(pool_->Snapshot().region_bytes, 2 * kMiB);
}

TEST_F(DramPoolRegionsTest, ATargetOfLessThanARegionIsRefused) {
  EXPECT_THAT(pool_->CheckTarget(kMiB - 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("hold no region; one has 1MiB")));
  EXPECT_OK(pool_->CheckTarget(kMiB));
}

// Rule P11.
TEST_F(DramPoolRegionsTest, ATargetBeyondTheLimitsIsRefusedWithTheLimit) {
  limits_.available_bytes = 3 * kMiB;
  pool_->CheckMemory(/*other_mapped_bytes=*/4096);

  EXPECT_THAT(
      pool_->CheckTarget(4 * kMiB),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("the test has 3145728 bytes left"),
                     HasSubstr("4096 bytes mapped of others at most 2MiB"),
                     HasSubstr("not 4MiB"))));

  EXPECT_OK(pool_->CheckTarget(2 * kMiB));
  WriteMany(name_space_, 1, 128, kLength);
  EXPECT_OK(pool_->CheckTarget(4 * kMiB)) << "two regions are there already";
}

TEST_F(DramPoolRegionsTest, AnEmptyRegionGoesBackToTheMachine) {
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
TEST_F(DramPoolRegionsTest, NoTwoTenantsShareARegion) {
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

TEST_F(DramPoolRegionsTest, ANewTenantGetsARegionOfTheOneWithMost) {
  const PoolNamespace other = Namespace(2, 2);
  WriteMany(name_space_, 1, 256, kLength);

  EXPECT_EQ(Write(other, Block(1, kLength)).outcome, Outcome::kStored);

  EXPECT_EQ(RegionsOf(name_space_), 3u);
  EXPECT_EQ(RegionsOf(other), 1u);
  EXPECT_EQ(CountHits(name_space_, 65, 192), 192u) << "the coldest region went";
  CheckSums();
}

TEST_F(DramPoolRegionsTest, ABusyTenantGrowsAtTheCostOfAnIdleOne) {
  const PoolNamespace busy = Namespace(2, 2);
  WriteMany(name_space_, 1, 256, kLength);

  WriteMany(busy, 1, 600, kLength);
  world_.RunReady();

  EXPECT_EQ(RegionsOf(name_space_), 2u) << "no further than half";
  EXPECT_EQ(RegionsOf(busy), 2u);
  CheckSums();
}

// Rule P3.
TEST_F(DramPoolRegionsTest, ARegionsNumberNeverComesBack) {
  WriteMany(name_space_, 1, 1, kLength);
  const auto before = pool_->RegionsOf(name_space_.tenant);
  pool_->SetTarget(0);
  world_.RunReady();
  pool_->SetTarget(4 * kMiB);
  WriteMany(name_space_, 2, 1, kLength);

  EXPECT_GT(pool_->RegionsOf(name_space_.tenant)[0], before[0]);
}

// Rule P6, the order of its steps.
TEST_F(DramPoolRegionsTest, ARegionRetiresInTheOrderOfItsRule) {
  WriteMany(name_space_, 1, 3, kLength);
  const OpenAnswer leased = Open(name_space_, {Key(1)});
  HeldBlock held = HoldOne(name_space_, 2);
  const SlotCopy copies[] = {leased.blocks[0].copy, held.hold.copy()};
  const Mapped mapped = MapRegion(name_space_, copies[0].slot.region);
  const auto bumped = [&](const SlotCopy& copy) {
    return mapped.ReadGeneration(copy.slot) > copy.generation;
  };
  hooks_.in_step = [&](const std::string& step) {
    EXPECT_TRUE(events_.present.empty()) << step << ": retired first";
    const bool waits = step == "retiring";
    EXPECT_EQ(bumped(copies[0]), !waits) << step;
    EXPECT_EQ(bumped(copies[1]), !waits) << step;
    EXPECT_EQ(memory_.bytes_punched(), step == "gone" ? kMiB : 0u) << step;
    EXPECT_EQ(pool_->Snapshot().region_bytes, kMiB) << step;
  };

  pool_->SetTarget(0);
  world_.RunFor(absl::Seconds(1));
  EXPECT_THAT(hooks_.steps, ElementsAre("made 1", "retiring 1"))
      << "a lease and a hold are waited for";
  pool_->Release(kReader, {leased.lease.id});
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(hooks_.steps.size(), 2u);
  EXPECT_FALSE(bumped(copies[1])) << "it is held";
  held.hold.End();
  world_.RunReady();

  EXPECT_THAT(hooks_.steps, ElementsAre("made 1", "retiring 1", "io 1",
                                        "transports 1", "gone 1"));
  EXPECT_EQ(mapped.ByteAt(copies[0].slot), std::byte{0});
}

// Rules P6 and P8: of a writer in the middle of its copy.
TEST_F(DramPoolRegionsTest, ARunningCopyKeepsItsRegionHoweverLongItTakes) {
  for (const bool ended : {false, true}) {
    pool_->SetTarget(kMiB);
    const ReservedBlock reserved = ReserveOne(name_space_, Block(1, kLength));
    CopyTarget target = std::get<CopyTarget>(pool_->BeginCopy(reserved.copy));
    const std::uint64_t punched = memory_.bytes_punched();
    pool_->SetTarget(0);
    if (ended) pool_->EndReservation({&reserved.copy, 1});
    world_.RunFor(absl::Seconds(20));
    EXPECT_EQ(memory_.bytes_punched(), punched) << "it is being written to";

    std::memset(target.bytes.data(), 9, target.bytes.size());
    std::vector<std::uint32_t> pieces = PieceChecksums(target.bytes);
    EXPECT_EQ(pool_->Commit(std::move(target), std::move(pieces)).outcome,
              ended ? Outcome::kReservationOver : Outcome::kStored);
    world_.RunReady();

    EXPECT_EQ(memory_.bytes_punched(), punched + kMiB);
    EXPECT_TRUE(events_.present.empty());
  }
}

// Rules P6 and P9: beyond its lease a view may see the bytes go, never the
// generation stay.
TEST_F(DramPoolRegionsTest, AViewsGenerationIsGoneWhenItsBytesAre) {
  WriteMany(name_space_, 1, 1, kLength);
  const SlotCopy copy =
      Open(name_space_, {Key(1)}, kReader, absl::Seconds(5), LeaseUse::kView)
          .blocks[0]
          .copy;
  const Mapped mapped = MapRegion(name_space_, copy.slot.region);

  pool_->SetTarget(0);
  world_.RunFor(absl::Seconds(4));
  pool_->Sweep(100);
  EXPECT_EQ(mapped.ByteAt(copy.slot), std::byte{7});
  EXPECT_EQ(mapped.ReadGeneration(copy.slot), copy.generation);
  world_.RunFor(absl::Seconds(1));
  pool_->Sweep(100);
  world_.RunReady();

  EXPECT_EQ(mapped.ByteAt(copy.slot), std::byte{0});
  EXPECT_GT(mapped.ReadGeneration(copy.slot), copy.generation);
}

// Rule A4: what retires during an inventory was named before it is withdrawn,
// or is not named.
TEST_F(DramPoolRegionsTest, AnInventoryAcrossARetirementEndsInWhatIsHere) {
  WriteMany(name_space_, 1, 128, kLength);
  std::map<BlockId, Generation> known;
  const auto name = [&known](const SlotHeader& copy) {
    known[copy.block] = copy.generation;
  };
  std::uint32_t cursor = 0;
  ASSERT_TRUE(pool_->EachResident(&cursor, 40, name));

  pool_->SetTarget(kMiB);
  while (pool_->EachResident(&cursor, 40, name)) {
  }

  for (const SlotHeader& copy : events_.withdrawn) known.erase(copy.block);
  EXPECT_EQ(known, events_.present);
  EXPECT_EQ(known.size(), 64u);
}

// Rule P11: at nominal size.
TEST_F(DramPoolRegionsTest, ARegionThatASessionStillMapsCountsUntilItDoesNot) {
  WriteMany(name_space_, 1, 256, kLength);
  const std::uint64_t region = pool_->RegionsOf(name_space_.tenant)[0];
  MapRegion(name_space_, region);

  const PoolNamespace other = Namespace(2, 2);
  auto* const answer = StartOne(other, Block(1, kLength));
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_FALSE(answer->has_value());
  EXPECT_EQ(pool_->Snapshot().mapped_after_retirement_bytes, kMiB);
  EXPECT_EQ(RegionsOf(name_space_), 3u);
  pool_->NoteUnmapped(kReader, region);
  world_.RunFor(absl::Milliseconds(1));

  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->blocks[0].outcome, Outcome::kStored);
}

// Telling a session, and its unmapping, take a moment: the other regions must
// not go meanwhile for the same need.
TEST_F(DramPoolRegionsTest, ForARegionThatIsBeingUnmappedNoOtherGoes) {
  WriteMany(name_space_, 1, 256, kLength);
  for (const std::uint64_t region : pool_->RegionsOf(name_space_.tenant)) {
    MapRegion(name_space_, region);
  }

  auto* const answer = StartOne(Namespace(2, 2), Block(1, kLength));
  world_.RunFor(options_.unmap_patience - absl::Milliseconds(1));
  EXPECT_EQ(RegionsOf(name_space_), 3u);
  EXPECT_FALSE(answer->has_value());
  world_.RunFor(absl::Milliseconds(1));

  EXPECT_EQ(RegionsOf(name_space_), 2u) << "nobody unmaps it";
}

TEST_F(DramPoolRegionsTest, PressureWaitsForARegionThatIsBeingUnmapped) {
  WriteMany(name_space_, 1, 256, kLength);
  for (const std::uint64_t region : pool_->RegionsOf(name_space_.tenant)) {
    MapRegion(name_space_, region);
  }
  limits_.available_bytes = 0;
  pool_->CheckMemory(kMiB / 2);
  world_.RunReady();
  limits_.available_bytes = kMiB;  // It was punched.

  pool_->CheckMemory(kMiB / 2);
  EXPECT_EQ(RegionsOf(name_space_), 3u);
  world_.RunFor(options_.unmap_patience);
  pool_->CheckMemory(kMiB / 2);

  EXPECT_EQ(RegionsOf(name_space_), 2u) << "it may come to be charged again";
}

// Rules P9 and P11: no session can keep memory from the others for ever.
TEST_F(DramPoolRegionsTest, ASessionThatNeverUnmapsIsReported) {
  WriteMany(name_space_, 1, 1, kLength);
  MapRegion(name_space_, pool_->RegionsOf(name_space_.tenant)[0]);
  pool_->SetTarget(0);
  world_.RunFor(options_.leases.longest + options_.unmap_grace -
                absl::Milliseconds(1));
  EXPECT_THAT(pool_->Sweep(100).mappings, IsEmpty());

  world_.RunFor(absl::Milliseconds(1));

  EXPECT_THAT(pool_->Sweep(100).mappings, ElementsAre(kReader));
}

TEST_F(DramPoolRegionsTest, ASessionsEndUnmapsWhatItHad) {
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
TEST_F(DramPoolRegionsTest, ACommitIntoARetiringRegionLeavesAgainAtOnce) {
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

// Rule P9.
TEST_F(HugePagePoolTest, ARegionWithAnOpenViewIsNotPunchedWhateverIsSaid) {
  WriteMany(name_space_, 1, 1, kLength);
  const LeaseId lease =
      Open(name_space_, {Key(1)}, kReader, absl::Seconds(5), LeaseUse::kView)
          .lease.id;
  const std::uint64_t region = pool_->RegionsOf(name_space_.tenant)[0];
  MapRegion(name_space_, region);
  pool_->SetTarget(0);
  pool_->NoteUnmapped(kReader, region);
  world_.RunFor(absl::Seconds(6));
  pool_->Sweep(100);
  world_.RunReady();
  EXPECT_EQ(memory_.bytes_punched(), 0u);

  pool_->Release(kReader, {lease});
  world_.RunReady();

  EXPECT_EQ(memory_.bytes_punched(), kMiB);
}

// Rule P9: its process may go on, with a view; a look at a punched huge page
// is a SIGBUS where no page is free.
TEST_F(HugePagePoolTest, ARegionThatASessionLeftMappedIsNotPunched) {
  WriteMany(name_space_, 1, 1, kLength);
  MapRegion(name_space_, pool_->RegionsOf(name_space_.tenant)[0]);

  pool_->EndSession(kReader);
  pool_->SetTarget(0);
  world_.RunFor(absl::Seconds(1));

  EXPECT_EQ(pool_->Snapshot().region_bytes, 0u);
  EXPECT_EQ(memory_.bytes_punched(), 0u);
  // Its pages go with the last mapping of them, and nobody has one here.
  EXPECT_EQ(memory_.bytes_made(), 0u);
}

// Rule P9: it waits for the unmapping, however long, and says who it is.
TEST_F(HugePagePoolTest, ASessionThatNeverUnmapsARetiringRegionIsReported) {
  WriteMany(name_space_, 1, 1, kLength);
  MapRegion(name_space_, pool_->RegionsOf(name_space_.tenant)[0]);
  pool_->SetTarget(0);
  world_.RunFor(options_.leases.longest + options_.unmap_grace);

  EXPECT_EQ(memory_.bytes_punched(), 0u);
  EXPECT_THAT(pool_->Sweep(100).mappings, ElementsAre(kReader));
}

}  // namespace
}  // namespace firnkv
