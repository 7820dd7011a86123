// Writing: reservations, commits, races, clears, and what is refused.

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kLength = 16 * kKiB;

class DramPoolWriteTest : public PoolTest {
 protected:
  absl::Status Refusal(const PoolNamespace& name_space,
                       std::vector<ReserveBlock> blocks) {
    return Reserve(Request(name_space, std::move(blocks))).status;
  }
  CopyTarget Begin(SlotCopy reserved) {
    return std::get<CopyTarget>(pool_->BeginCopy(reserved));
  }
  CommitResult Finish(CopyTarget target) {
    std::vector<std::uint32_t> pieces = PieceChecksums(target.bytes);
    return pool_->Commit(std::move(target), std::move(pieces));
  }
};

TEST_F(DramPoolWriteTest, ABlockIsInvisibleUntilItsCommit) {
  const ReservedBlock reserved = ReserveOne(name_space_, Block(1, kLength));
  CopyTarget target = Begin(reserved.copy);

  EXPECT_NE(Look(name_space_, 1), Outcome::kHit);
  EXPECT_TRUE(events_.published.empty());
  EXPECT_EQ(Finish(std::move(target)).outcome, Outcome::kStored);
  EXPECT_EQ(Look(name_space_, 1), Outcome::kHit);
}

// Rule S9.
TEST_F(DramPoolWriteTest, AResidentBlockIsAlreadyThereAndTouched) {
  WriteMany(name_space_, 1, 256, kLength);  // The pool is full.

  const ReservedBlock again = ReserveOne(name_space_, Block(1, kLength));
  ASSERT_EQ(Write(name_space_, Block(999, kLength)).outcome, Outcome::kStored);

  EXPECT_EQ(again.outcome, Outcome::kAlreadyThere);
  EXPECT_EQ(again.copy.generation,
            events_.present.at({name_space_.id, Key(1)}));
  EXPECT_EQ(Look(name_space_, 1), Outcome::kHit);
  EXPECT_EQ(Look(name_space_, 2), Outcome::kMiss) << "the coldest left";
}

TEST_F(DramPoolWriteTest, TheFirstCommitWinsAndTheOthersAreAlreadyThere) {
  const ReservedBlock first = ReserveOne(name_space_, Block(1, kLength));
  const ReservedBlock second = ReserveOne(name_space_, Block(1, kLength));
  ASSERT_EQ(second.outcome, Outcome::kStored);
  CopyTarget late = Begin(first.copy);

  const CommitResult winner = FillAndCommit(second.copy, 2);
  const CommitResult loser = Finish(std::move(late));

  EXPECT_EQ(winner.outcome, Outcome::kStored);
  EXPECT_EQ(loser.outcome, Outcome::kAlreadyThere);
  EXPECT_EQ(loser.generation, winner.generation);
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
  EXPECT_EQ(pool_->Snapshot().lost_commit_races, 1u);
  CheckSums();
}

// Rule S7.
TEST_F(DramPoolWriteTest, AnEndedReservationsSlotWaitsForItsCopyThenIsFree) {
  const ReservedBlock reserved = ReserveOne(name_space_, Block(1, kLength));
  CopyTarget target = Begin(reserved.copy);

  pool_->EndReservation(absl::MakeConstSpan(&reserved.copy, 1));
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 1u) << "bytes still arrive";
  EXPECT_EQ(Finish(std::move(target)).outcome, Outcome::kReservationOver);

  EXPECT_EQ(pool_->Snapshot().retiring_slots, 0u);
  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
}

// Rule S5.
TEST_F(DramPoolWriteTest, ACommitPastItsDeadlineIsOver) {
  const ReservedBlock early = ReserveOne(name_space_, Block(1, kLength));
  const ReservedBlock begun = ReserveOne(name_space_, Block(2, kLength));
  CopyTarget target = Begin(begun.copy);

  world_.RunFor(absl::Seconds(30));

  EXPECT_EQ(FillAndCommit(early.copy, 1).outcome, Outcome::kReservationOver);
  EXPECT_EQ(Finish(std::move(target)).outcome, Outcome::kReservationOver);
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
  EXPECT_TRUE(events_.published.empty());
}

TEST_F(DramPoolWriteTest, ASecondCommitOfOneReservationIsOver) {
  const ReservedBlock reserved = ReserveOne(name_space_, Block(1, kLength));

  ASSERT_EQ(FillAndCommit(reserved.copy, 1).outcome, Outcome::kStored);

  EXPECT_EQ(FillAndCommit(reserved.copy, 2).outcome, Outcome::kReservationOver);
}

// Rule P7: a stale name of a slot never reaches what is there next.
TEST_F(DramPoolWriteTest, AnOldReservationCannotTouchTheSlotsNextLife) {
  const ReservedBlock old = ReserveOne(name_space_, Block(1, kLength));
  pool_->EndReservation(absl::MakeConstSpan(&old.copy, 1));
  const ReservedBlock next = ReserveOne(name_space_, Block(2, kLength));
  ASSERT_EQ(next.copy.slot, old.copy.slot);

  EXPECT_EQ(FillAndCommit(old.copy, 1).outcome, Outcome::kReservationOver);
  pool_->EndReservation(absl::MakeConstSpan(&old.copy, 1));

  EXPECT_EQ(FillAndCommit(next.copy, 2).outcome, Outcome::kStored);
}

// Rule P3.
TEST_F(DramPoolWriteTest, NoTwoCopiesOfARunShareAGeneration) {
  std::set<Generation> seen;
  for (std::uint64_t i = 1; i <= 600; ++i) {  // Slots are reused.
    const ReservedBlock reserved =
        ReserveOne(name_space_, Block(i, i % 3 == 0 ? 4096 : kLength));
    ASSERT_TRUE(seen.insert(reserved.copy.generation).second);
    FillAndCommit(reserved.copy, 1);
  }
}

TEST_F(DramPoolWriteTest, ABatchIsReservedInOneStep) {
  std::vector<ReserveBlock> blocks;
  for (std::uint32_t i = 0; i < 50; ++i) {
    blocks.push_back(Chained(100 + i, kLength, i));
  }

  const ReserveAnswer answer = Reserve(Request(name_space_, blocks));

  for (const ReservedBlock& block : answer.blocks) {
    EXPECT_EQ(block.outcome, Outcome::kStored);
  }
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 50u);
}

// Rule P14.
TEST_F(DramPoolWriteTest, ACopyInAnotherPlaceOfTheChainIsReplaced) {
  ReserveBlock wrong = Chained(2, kLength, 1);
  wrong.place.anchor = Key(77);
  ASSERT_EQ(Write(name_space_, wrong).outcome, Outcome::kStored);

  const CommitResult right = Write(name_space_, Chained(2, kLength, 1), 9);

  EXPECT_EQ(right.outcome, Outcome::kStored);
  EXPECT_EQ(pool_->Snapshot().replaced_copies, 1u);
  EXPECT_EQ(events_.withdrawn.size(), 1u);
  EXPECT_EQ(events_.present.at({name_space_.id, Key(2)}), right.generation);
}

// Rule P14, field by field.
TEST_F(DramPoolWriteTest, EveryFieldOfTheplaceAndTheLengthMustAgree) {
  const ReserveBlock good = Chained(2, kLength, 1);
  std::vector<ReserveBlock> others(7, good);
  others[0].place.anchor = Key(9);
  others[1].place.parent = Key(9);
  others[2].place.position = 5;
  others[3].place.first_token = 1;
  others[4].place.tokens = 16;
  others[5].place.shard = {.count = 2, .index = 1};
  others[6].length = kLength - 1;
  for (const ReserveBlock& other : others) {
    ASSERT_EQ(Write(name_space_, good).outcome, Outcome::kStored);
    EXPECT_EQ(Write(name_space_, other).outcome, Outcome::kStored);
  }
  EXPECT_EQ(pool_->Snapshot().replaced_copies, 13u);
}

// Rule P14, where the other copy came between Reserve and Commit.
TEST_F(DramPoolWriteTest, ACommitReplacesAWrongCopyThatCameMeanwhile) {
  const ReservedBlock right = ReserveOne(name_space_, Chained(2, kLength, 1));
  ReserveBlock wrong = Chained(2, kLength, 1);
  wrong.place.tokens = 99;
  ASSERT_EQ(Write(name_space_, wrong).outcome, Outcome::kStored);

  EXPECT_EQ(FillAndCommit(right.copy, 1).outcome, Outcome::kStored);
  EXPECT_EQ(pool_->Snapshot().replaced_copies, 1u);
}

// Rule P14, where it came while the bytes were being copied.
TEST_F(DramPoolWriteTest, ACommitReplacesAWrongCopyThatCameDuringItsCopy) {
  const ReservedBlock right = ReserveOne(name_space_, Chained(2, kLength, 1));
  CopyTarget target = Begin(right.copy);
  ReserveBlock wrong = Chained(2, kLength, 1);
  wrong.place.shard = {.count = 2, .index = 1};
  ASSERT_EQ(Write(name_space_, wrong).outcome, Outcome::kStored);

  const CommitResult result = Finish(std::move(target));

  EXPECT_EQ(result.outcome, Outcome::kStored);
  EXPECT_EQ(pool_->Snapshot().replaced_copies, 1u);
  EXPECT_EQ(events_.present.at({name_space_.id, Key(2)}), result.generation);
}

TEST_F(DramPoolWriteTest, AReplacedCopyStaysForItsReaders) {
  ASSERT_EQ(Write(name_space_, Block(1, kLength), 11).outcome,
            Outcome::kStored);
  const OpenAnswer answer = Open(name_space_, {Key(1)});
  const SlotCopy old = answer.blocks[0].copy;

  ASSERT_EQ(Write(name_space_, Block(1, kLength / 2), 22).outcome,
            Outcome::kStored);

  const Mapped mapped = MapRegion(name_space_, old.slot.region);
  EXPECT_EQ(mapped.ByteAt(old.slot), std::byte{11});
  EXPECT_EQ(mapped.ReadGeneration(old.slot), old.generation);
}

// Rule P14.
TEST_F(DramPoolWriteTest, ChainedAndUnchainedBlocksDoNotMix) {
  PoolNamespace unchained = Namespace(5, 1);
  unchained.chained = false;
  ReserveBlock orphan = Chained(2, kLength, 1);
  orphan.place.parent = BlockKey{};

  EXPECT_THAT(
      Refusal(unchained, {Chained(2, kLength, 1)}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not chained")));
  EXPECT_THAT(
      Refusal(name_space_, {orphan}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is chained")));
  EXPECT_OK(Refusal(unchained, {Block(3, kLength)}));
}

TEST_F(DramPoolWriteTest, ABatchThatNamesAKeyTwiceIsRefusedWhole) {
  EXPECT_THAT(
      Refusal(name_space_,
              {Block(1, kLength), Block(2, kLength), Block(1, kLength)}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block 2")));
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
}

TEST_F(DramPoolWriteTest, ABlockOverTheLargestIsRefusedWithBothSizes) {
  const std::uint64_t over = pool_->largest_block() + 1;

  EXPECT_THAT(
      Refusal(name_space_, {Block(1, over)}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("262145 bytes; the largest block of this node has "
                         "262144")));
  EXPECT_EQ(Write(name_space_, Block(2, over - 1)).outcome, Outcome::kStored);
}

TEST_F(DramPoolWriteTest, WhatNoBlockCanBeIsRefused) {
  ReserveBlock shard = Block(1, kLength);
  shard.place.shard = {.count = 2, .index = 2};
  PoolNamespace declared = Namespace(6, 1);
  declared.block_bytes = kLength;

  for (const absl::Status& status :
       {Refusal(name_space_, {Block(1, 0)}), Refusal(name_space_, {shard}),
        Refusal(name_space_, {ReserveBlock{.length = 1}}),
        Refusal(declared, {Block(1, kLength + 1)}),
        Refusal(declared, {Block(1, kLength - 1)}),
        Refusal(PoolNamespace{}, {Block(1, kLength)})}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

// Rule C2.
TEST_F(DramPoolWriteTest, AClearedCopyIsNeverServedAgain) {
  WriteMany(name_space_, 1, 3, kLength);

  pool_->SetClearEpoch(name_space_.id, ClearEpoch{2});

  // Also to a client, or a cache of the node, that has not heard of it.
  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
  EXPECT_EQ(Open(name_space_, {Key(2)}).blocks[0].outcome, Outcome::kMiss);
  EXPECT_EQ(HoldOne(name_space_, 3).outcome, Outcome::kMiss);
  EXPECT_EQ(Open(name_space_, {Key(2)}).clear_epoch, ClearEpoch{2});
  EXPECT_EQ(events_.withdrawn.size(), 3u);
}

// Rule C2: a request that has seen a newer epoch teaches the pool.
TEST_F(DramPoolWriteTest, ANewerEpochOfARequestClearsTheOlderCopies) {
  WriteMany(name_space_, 1, 1, kLength);
  name_space_.clear_epoch = ClearEpoch{2};

  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
  name_space_.clear_epoch = ClearEpoch{1};
  EXPECT_EQ(Write(name_space_, Block(1, kLength)).outcome, Outcome::kStored);
  EXPECT_EQ(events_.published.back().clear_epoch, ClearEpoch{2});
}

// Rule C2.
TEST_F(DramPoolWriteTest, AWriteBegunBeforeTheClearDoesNotBecomeVisible) {
  const ReservedBlock early = ReserveOne(name_space_, Block(1, kLength));
  const ReservedBlock begun = ReserveOne(name_space_, Block(2, kLength));
  CopyTarget target = Begin(begun.copy);

  pool_->SetClearEpoch(name_space_.id, ClearEpoch{2});

  EXPECT_EQ(FillAndCommit(early.copy, 1).outcome, Outcome::kCleared);
  EXPECT_EQ(Finish(std::move(target)).outcome, Outcome::kCleared);
  EXPECT_TRUE(events_.published.empty());
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
}

// Rule P13.
TEST_F(DramPoolWriteTest, ACopyOfACopyCarriesItsSourcesEpoch) {
  ReserveRequest current = Request(name_space_, {Block(1, kLength)});
  current.source_epoch = ClearEpoch{1};
  const ReservedBlock reserved = Reserve(current).blocks[0];
  ASSERT_EQ(reserved.outcome, Outcome::kStored);

  pool_->SetClearEpoch(name_space_.id, ClearEpoch{2});
  EXPECT_EQ(FillAndCommit(reserved.copy, 1).outcome, Outcome::kCleared);
  EXPECT_EQ(Reserve(current).blocks[0].outcome, Outcome::kCleared);
}

// Rule P14: a copy of a copy comes by hearsay. What stands here is a writer's,
// and stays, also where it came while the copy was on its way.
TEST_F(DramPoolWriteTest, ACopyOfACopyReplacesNothing) {
  ReserveBlock elsewhere = Block(1, kLength);
  elsewhere.place.tokens = 99;
  ReserveRequest copied = Request(name_space_, {elsewhere});
  copied.source_epoch = ClearEpoch{1};
  const ReservedBlock on_its_way = Reserve(copied).blocks[0];
  ASSERT_EQ(on_its_way.outcome, Outcome::kStored);
  ASSERT_EQ(Write(name_space_, Block(1, kLength)).outcome, Outcome::kStored);

  EXPECT_EQ(FillAndCommit(on_its_way.copy, 1).outcome, Outcome::kAlreadyThere);
  EXPECT_EQ(Reserve(copied).blocks[0].outcome, Outcome::kAlreadyThere);

  EXPECT_EQ(pool_->Snapshot().replaced_copies, 0u);
  EXPECT_EQ(HoldOne(name_space_, 1).header.place, Block(1, kLength).place);
}

// Retention counts from the first commit, however often a block was copied.
TEST_F(DramPoolWriteTest, ACopyOfACopyIsNoYoungerThanItsSource) {
  const std::int64_t now = absl::ToUnixNanos(world_.clock()->WallNow());
  for (const std::int64_t source : {now - 1000, now + 1'000'000'000'000}) {
    ReserveRequest request =
        Request(name_space_, {Block(source < now ? 1 : 2, kLength)});
    request.source_epoch = ClearEpoch{1};
    CopyTarget target = Begin(Reserve(request).blocks[0].copy);
    std::vector<std::uint32_t> pieces = PieceChecksums(target.bytes);
    ASSERT_EQ(
        pool_->Commit(std::move(target), std::move(pieces), source).outcome,
        Outcome::kStored);
  }

  EXPECT_EQ(HoldOne(name_space_, 1).header.commit_time_nanos, now - 1000);
  EXPECT_LE(HoldOne(name_space_, 2).header.commit_time_nanos,
            absl::ToUnixNanos(world_.clock()->WallNow()));
}

TEST_F(DramPoolWriteTest, LocalReadsOfCopiesAreCounted) {
  ReserveRequest request = Request(name_space_, {Block(1, kLength)});
  request.source_epoch = ClearEpoch{1};
  ASSERT_EQ(FillAndCommit(Reserve(request).blocks[0].copy, 1).outcome,
            Outcome::kStored);
  WriteMany(name_space_, 2, 1, kLength);

  Open(name_space_, {Key(1), Key(2)});
  Open(name_space_, {Key(1)});

  EXPECT_EQ(pool_->Snapshot().copied_hits, 2u);
}

// Rule P13: the clear comes while a copy waits for room, or is on its way.
TEST_F(DramPoolWriteTest, ACopyOfACopyIsRefusedWhenTheClearComesOnItsWay) {
  ReserveRequest first = Request(name_space_, {Block(1, kLength)});
  first.source_epoch = ClearEpoch{1};
  const ReservedBlock reserved = Reserve(first).blocks[0];
  CopyTarget target = Begin(reserved.copy);
  pool_->SetTarget(0);
  ReserveRequest second = Request(name_space_, {Block(2, kLength)});
  second.source_epoch = ClearEpoch{1};
  std::optional<ReserveAnswer> answer;
  pool_->StartReserve(second,
                      [&answer](ReserveAnswer a) { answer = std::move(a); });
  ASSERT_FALSE(answer.has_value());

  pool_->SetClearEpoch(name_space_.id, ClearEpoch{2});
  pool_->SetTarget(4 * kMiB);
  world_.RunUntil([&answer] { return answer.has_value(); });

  EXPECT_EQ(Finish(std::move(target)).outcome, Outcome::kCleared);
  ASSERT_EQ(answer->blocks[0].outcome, Outcome::kStored);
  EXPECT_EQ(FillAndCommit(answer->blocks[0].copy, 1).outcome,
            Outcome::kCleared);
  EXPECT_TRUE(events_.published.empty());
}

TEST_F(DramPoolWriteTest, AClearIsPendingUntilTheLastOldCopyIsGone) {
  WriteMany(name_space_, 1, 5, kLength);
  const OpenAnswer answer = Open(name_space_, {Key(3)});

  pool_->SetClearEpoch(name_space_.id, ClearEpoch{2});
  EXPECT_EQ(pool_->ClearPending(name_space_.id), 5u);
  WriteMany(name_space_, 1, 2, kLength);  // Of the new epoch: not pending.
  while (pool_->ClearPending(name_space_.id) > 1) pool_->Sweep(2);
  EXPECT_EQ(pool_->ClearPending(name_space_.id), 1u) << "it is leased";
  pool_->Release(kReader, {answer.lease.id});

  EXPECT_EQ(pool_->ClearPending(name_space_.id), 0u);
  EXPECT_EQ(CountHits(name_space_, 1, 5), 2u);
}

// It left out as many old copies as new blocks came: `clear --wait` of a strict
// namespace did not end before they were evicted.
TEST_F(DramPoolWriteTest, AClearIsSweptThoughNewBlocksComeMeanwhile) {
  WriteMany(name_space_, 1, 10, kLength);
  pool_->SetClearEpoch(name_space_.id, ClearEpoch{2});
  pool_->Sweep(5);

  WriteMany(name_space_, 11, 10, kLength);
  for (int i = 0; i < 10; ++i) pool_->Sweep(5);

  EXPECT_EQ(pool_->ClearPending(name_space_.id), 0u);
}

TEST_F(DramPoolWriteTest, AnEarlierEpochChangesNothing) {
  pool_->SetClearEpoch(name_space_.id, ClearEpoch{5});
  WriteMany(name_space_, 1, 1, kLength);

  pool_->SetClearEpoch(name_space_.id, ClearEpoch{4});

  EXPECT_EQ(Look(name_space_, 1), Outcome::kHit);
}

TEST_F(DramPoolWriteTest, RemovingSaysWhatWasHere) {
  WriteMany(name_space_, 1, 1, kLength);

  EXPECT_THAT(pool_->Remove(name_space_.id, {Key(1), Key(2)}),
              testing::ElementsAre(Outcome::kHit, Outcome::kMiss));
  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
}

TEST_F(DramPoolWriteTest, ABatchThatWaitsIsCancelledWithThePool) {
  pool_->SetTarget(0);
  std::optional<ReserveAnswer> answer;
  pool_->StartReserve(Request(name_space_, {Block(1, kLength)}),
                      [&answer](ReserveAnswer a) { answer = std::move(a); });
  world_.RunReady();
  ASSERT_FALSE(answer.has_value());

  pool_.reset();

  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->blocks[0].outcome, Outcome::kCancelled);
}

}  // namespace
}  // namespace firnkv
