// Writers' claims: caps, repeated answers, ends.

#include "server/node/reservations.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kLength = 16 * kKiB;
const SessionId kWriter = MakeId<SessionId>(21);
const SessionId kOtherWriter = MakeId<SessionId>(22);

class ReservationsTest : public PoolTest {
 protected:
  using Answer = Reservations::CommitAnswer;

  ReservationsTest()
      : copier_(std::make_unique<Copier>(
            Copier::Options{.max_queued_bytes = 4 * kLength,
                            .step_bytes = kLength,
                            .max_parallel = 1},
            Copier::Parts{.pool = pool_.get(),
                          .executor = &world_,
                          .foreground_busy = [this] { return busy_; }})),
        reservations_(std::make_unique<Reservations>(
            Reservations::Options{.max_bytes_a_session = 8 * kLength,
                                  .max_bytes_a_tenant = 10 * kLength,
                                  .max_reservations_a_session = 4,
                                  .max_blocks_a_session = 20,
                                  .max_blocks_a_tenant = 24,
                                  .max_finished_a_session = 3,
                                  .max_finished_blocks_a_session = 12,
                                  .max_finished_blocks = 16},
            Reservations::Parts{.pool = pool_.get(),
                                .copier = copier_.get(),
                                .executor = &world_})),
        bytes_(kLength, std::byte{5}) {}
  void TearDown() override {
    copier_->Drain();
    reservations_.reset();
    copier_.reset();
    PoolTest::TearDown();
  }

  void StartReserve(std::vector<ReserveBlock> blocks, SessionId session,
                    std::optional<Reservations::ReserveAnswer>* answer) {
    reservations_->StartReserve({.session = session,
                                 .name_space = name_space_,
                                 .blocks = std::move(blocks),
                                 .deadline = world_.Now() + absl::Seconds(1),
                                 .reserve_for = absl::Seconds(20)},
                                [answer](Reservations::ReserveAnswer a) {
                                  ASSERT_FALSE(answer->has_value());
                                  *answer = std::move(a);
                                });
  }
  Reservations::ReserveAnswer Claim(std::vector<ReserveBlock> blocks,
                                    SessionId session = kWriter) {
    std::optional<Reservations::ReserveAnswer> answer;
    StartReserve(std::move(blocks), session, &answer);
    world_.RunUntil([&answer] { return answer.has_value(); });
    return *answer;
  }
  // `count` blocks from `first` on.
  std::vector<ReserveBlock> Blocks(std::uint64_t first, std::uint64_t count) {
    std::vector<ReserveBlock> blocks;
    for (std::uint64_t i = 0; i < count; ++i) {
      blocks.push_back(Block(first + i, kLength));
    }
    return blocks;
  }

  Reservations::CommitRequest CommitOf(ReservationId id,
                                       std::vector<std::uint32_t> indexes,
                                       SessionId session = kWriter) {
    Reservations::CommitRequest request;
    request.session = session;
    request.reservation = id;
    request.deadline = world_.Now() + absl::Seconds(1);
    for (const std::uint32_t index : indexes) {
      request.blocks.push_back(
          {.index = index,
           .source = {{.bytes = bytes_, .keeps_mapped = {}}},
           .pieces = PieceChecksums(bytes_)});
    }
    return request;
  }
  std::optional<Answer>* StartCommit(Reservations::CommitRequest request) {
    commits_.push_back(std::make_unique<std::optional<Answer>>());
    auto* const answer = commits_.back().get();
    reservations_->StartCommit(std::move(request), [answer](Answer a) {
      ASSERT_FALSE(answer->has_value());
      *answer = std::move(a);
    });
    return answer;
  }
  Answer Commit(ReservationId id, std::vector<std::uint32_t> indexes,
                SessionId session = kWriter) {
    auto* const answer = StartCommit(CommitOf(id, std::move(indexes), session));
    world_.RunUntil([answer] { return answer->has_value(); });
    return **answer;
  }
  static std::vector<Outcome> OutcomesOf(const Answer& answer) {
    std::vector<Outcome> outcomes;
    for (const auto& block : answer.blocks) outcomes.push_back(block.outcome);
    return outcomes;
  }

  bool busy_ = false;
  std::unique_ptr<Copier> copier_;
  std::unique_ptr<Reservations> reservations_;
  std::vector<std::byte> bytes_;
  std::vector<std::unique_ptr<std::optional<Answer>>> commits_;
};

TEST_F(ReservationsTest, WhatIsReservedAndCommittedIsResident) {
  const auto claim = Claim(Blocks(1, 3));
  ASSERT_THAT(claim.outcomes, Each(Outcome::kStored));
  EXPECT_EQ(claim.valid_for, absl::Seconds(20));

  const Answer answer = Commit(claim.reservation, {0, 1, 2});

  EXPECT_THAT(OutcomesOf(answer), Each(Outcome::kStored));
  EXPECT_EQ(answer.blocks[1].block, (BlockId{name_space_.id, Key(2)}));
  EXPECT_EQ(answer.blocks[1].generation,
            events_.present.at(answer.blocks[1].block));
  EXPECT_EQ(CountHits(name_space_, 1, 3), 3u);
  EXPECT_EQ(reservations_->totals().reserved_bytes, 0u);
  EXPECT_EQ(reservations_->totals().live, 0u);
}

TEST_F(ReservationsTest, AllAlreadyThereMakesNoReservation) {
  Commit(Claim(Blocks(1, 2)).reservation, {0, 1});

  const auto again = Claim(Blocks(1, 2), kOtherWriter);

  EXPECT_THAT(again.outcomes, Each(Outcome::kAlreadyThere));
  EXPECT_NE(again.generations[0], Generation::kNone);
  EXPECT_EQ(again.reservation, ReservationId::kNone);
  EXPECT_EQ(reservations_->totals().reserved_bytes, 0u);
}

TEST_F(ReservationsTest, AReservationMayBeCommittedInParts) {
  const auto claim = Claim(Blocks(1, 3));

  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {2})),
              ElementsAre(Outcome::kStored));
  EXPECT_EQ(reservations_->totals().reserved_bytes, 2 * kLength);
  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0, 1})),
              Each(Outcome::kStored));
}

// Rule S5.
TEST_F(ReservationsTest, AFinishedCommitRepeatsItsAnswerForAMinute) {
  const auto claim = Claim(Blocks(1, 1));
  const Answer first = Commit(claim.reservation, {0});
  pool_->Remove(name_space_.id, {Key(1)});

  world_.RunFor(absl::Seconds(59));
  const Answer again = Commit(claim.reservation, {0});
  EXPECT_EQ(again.blocks[0].outcome, Outcome::kStored);
  EXPECT_EQ(again.blocks[0].generation, first.blocks[0].generation);
  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss) << "repeated, not redone";

  world_.RunFor(absl::Seconds(1));
  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0})),
              ElementsAre(Outcome::kReservationOver));
}

// Rule S5.
TEST_F(ReservationsTest, ARunningCommitIsJoined) {
  busy_ = true;
  const auto claim = Claim(Blocks(1, 1));
  auto* const first = StartCommit(CommitOf(claim.reservation, {0}));
  auto* const second = StartCommit(CommitOf(claim.reservation, {0}));
  ASSERT_FALSE(first->has_value());

  world_.RunFor(absl::Milliseconds(100));

  EXPECT_EQ((*first)->blocks[0].outcome, Outcome::kStored);
  EXPECT_EQ((*second)->blocks[0].generation, (*first)->blocks[0].generation);
  EXPECT_EQ(pool_->Snapshot().commits, 1u);
}

// Rule S5.
TEST_F(ReservationsTest, PastItsDeadlineACommitIsOver) {
  const auto claim = Claim(Blocks(1, 2));
  ASSERT_THAT(OutcomesOf(Commit(claim.reservation, {0})),
              ElementsAre(Outcome::kStored));

  world_.RunFor(absl::Seconds(20));

  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0, 1})),
              ElementsAre(Outcome::kStored, Outcome::kReservationOver));
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
}

TEST_F(ReservationsTest, AnAbortFreesTheSlotsAndIsIdempotent) {
  const auto claim = Claim(Blocks(1, 2));

  reservations_->Abort(kWriter, claim.reservation);
  reservations_->Abort(kWriter, claim.reservation);

  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
  EXPECT_EQ(reservations_->totals().reserved_bytes, 0u);
  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0})),
              ElementsAre(Outcome::kReservationOver));
}

// Rule S7.
TEST_F(ReservationsTest, AnAbortDuringACommitEndsItWithItsCopy) {
  busy_ = true;
  const auto claim = Claim(Blocks(1, 2));
  auto* const commit = StartCommit(CommitOf(claim.reservation, {0, 1}));

  reservations_->Abort(kWriter, claim.reservation);
  EXPECT_FALSE(commit->has_value());
  world_.RunFor(absl::Milliseconds(100));

  EXPECT_THAT(OutcomesOf(**commit), Each(Outcome::kReservationOver));
  EXPECT_EQ(CountHits(name_space_, 1, 2), 0u);
  EXPECT_EQ(reservations_->totals().reserved_bytes, 0u);
}

// Rule S3.
TEST_F(ReservationsTest, AnotherSessionCanNeitherCommitNorAbort) {
  const auto claim = Claim(Blocks(1, 1));

  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0}, kOtherWriter)),
              ElementsAre(Outcome::kReservationOver));
  reservations_->Abort(kOtherWriter, claim.reservation);

  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0})),
              ElementsAre(Outcome::kStored));
}

// Rule S3.
TEST_F(ReservationsTest, ASessionsEndEndsItsReservationsAtOnce) {
  const auto claim = Claim(Blocks(1, 2));
  const auto other = Claim(Blocks(5, 1), kOtherWriter);

  reservations_->EndSession(kWriter);

  EXPECT_EQ(pool_->Snapshot().reserved_slots, 1u);
  EXPECT_EQ(reservations_->totals().live, 1u);
  EXPECT_THAT(OutcomesOf(Commit(other.reservation, {0}, kOtherWriter)),
              ElementsAre(Outcome::kStored));
}

TEST_F(ReservationsTest, ASessionsEndDuringACommitLeavesNothing) {
  busy_ = true;
  const auto claim = Claim(Blocks(1, 1));
  auto* const commit = StartCommit(CommitOf(claim.reservation, {0}));

  reservations_->EndSession(kWriter);
  world_.RunFor(absl::Milliseconds(100));

  EXPECT_EQ((*commit)->blocks[0].outcome, Outcome::kReservationOver);
  EXPECT_EQ(reservations_->totals().reserved_bytes, 0u);
  EXPECT_EQ(reservations_->totals().finished, 0u);
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
}

TEST_F(ReservationsTest, AClaimThatWaitsForRoomDiesWithItsSession) {
  pool_->SetTarget(0);
  std::optional<Reservations::ReserveAnswer> answer;
  StartReserve(Blocks(1, 1), kWriter, &answer);
  world_.RunReady();
  ASSERT_FALSE(answer.has_value());

  reservations_->EndSession(kWriter);
  pool_->SetTarget(4 * kMiB);
  world_.RunFor(absl::Milliseconds(10));

  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(answer->outcomes, ElementsAre(Outcome::kCancelled));
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 0u);
  EXPECT_EQ(reservations_->totals().reserved_bytes, 0u);
}

// Rule S7.
TEST_F(ReservationsTest, BytesReservedAreCappedBySession) {
  const auto claim = Claim(Blocks(1, 9));

  EXPECT_EQ(claim.outcomes[7], Outcome::kStored);
  EXPECT_EQ(claim.outcomes[8], Outcome::kCongested);
  EXPECT_GT(claim.retry_after, absl::ZeroDuration());
  EXPECT_THAT(Claim(Blocks(100, 1)).outcomes, Each(Outcome::kCongested));
  Commit(claim.reservation, {0});
  EXPECT_THAT(Claim(Blocks(100, 1)).outcomes, Each(Outcome::kStored));
}

// Rule S7: the cap is the sum's, not of what there was before.
TEST_F(ReservationsTest, ABlockThatFitsOnlyInPartIsCongested) {
  std::vector<ReserveBlock> blocks = Blocks(1, 7);
  blocks.push_back(Block(20, 2 * kLength));

  EXPECT_EQ(Claim(std::move(blocks)).outcomes.back(), Outcome::kCongested);
}

// Rule S7.
TEST_F(ReservationsTest, BytesReservedAreCappedByTenant) {
  Claim(Blocks(1, 8));

  EXPECT_THAT(
      Claim(Blocks(50, 3), kOtherWriter).outcomes,
      ElementsAre(Outcome::kStored, Outcome::kStored, Outcome::kCongested));
}

// Rule S7: what a slot takes of the pool counts, not what is in it.
TEST_F(ReservationsTest, ATinyBlockCountsAsThePageThatItTakes) {
  std::vector<ReserveBlock> tiny;
  for (std::uint64_t i = 1; i <= 10; ++i) tiny.push_back(Block(i, 1));
  Claim(std::move(tiny));
  EXPECT_EQ(reservations_->totals().reserved_bytes, 10 * kPageBytes);
  EXPECT_EQ(pool_->Snapshot().reserved_bytes, 10 * kPageBytes);
}

// Rule S7: waiting would not help.
TEST_F(ReservationsTest, ABlockLargerThanACapIsOverQuota) {
  const auto claim = Claim({Block(1, kLength), Block(2, 9 * kLength)});

  EXPECT_THAT(claim.outcomes,
              ElementsAre(Outcome::kStored, Outcome::kOverQuota));
  EXPECT_THAT(Claim({Block(2, 9 * kLength)}).outcomes,
              ElementsAre(Outcome::kOverQuota));
}

// Rule S3: a reservation remembers also the blocks that cost no bytes.
TEST_F(ReservationsTest, BlocksNamedAreCappedBySessionAndByTenant) {
  const auto tiny = [](std::uint64_t count) {
    std::vector<ReserveBlock> blocks;
    for (std::uint64_t i = 1; i <= count; ++i) blocks.push_back(Block(i, 1));
    return blocks;
  };
  WriteMany(name_space_, 1, 19, 1);
  const auto claim = Claim(tiny(20));
  ASSERT_EQ(claim.outcomes[19], Outcome::kStored);

  EXPECT_THAT(Claim(tiny(1)).outcomes, Each(Outcome::kCongested));
  const auto other = Claim(tiny(5), kOtherWriter);
  EXPECT_EQ(other.outcomes[3], Outcome::kAlreadyThere);
  EXPECT_EQ(other.outcomes[4], Outcome::kCongested);
  reservations_->Abort(kWriter, claim.reservation);
  EXPECT_THAT(Claim(tiny(1)).outcomes, Each(Outcome::kAlreadyThere));
}

TEST_F(ReservationsTest, ReservationsAreCappedBySession) {
  for (std::uint64_t i = 1; i <= 4; ++i) Claim(Blocks(i, 1));

  EXPECT_THAT(Claim(Blocks(50, 1)).outcomes, Each(Outcome::kCongested));
  EXPECT_THAT(Claim(Blocks(50, 1), kOtherWriter).outcomes,
              Each(Outcome::kStored));
}

// Rule S8.
TEST_F(ReservationsTest, AFullCopyQueueRefusesReservesButNoCommit) {
  busy_ = true;
  const auto claim = Claim(Blocks(1, 5));
  auto* const first = StartCommit(CommitOf(claim.reservation, {0, 1, 2, 3}));
  ASSERT_TRUE(copier_->Full(name_space_.tenant));

  EXPECT_THAT(Claim(Blocks(50, 1)).outcomes, Each(Outcome::kCongested));
  auto* const second = StartCommit(CommitOf(claim.reservation, {4}));
  world_.RunFor(absl::Milliseconds(500));

  EXPECT_THAT(OutcomesOf(**first), Each(Outcome::kStored));
  EXPECT_THAT(OutcomesOf(**second), Each(Outcome::kStored));
}

// Rule S8.
TEST_F(ReservationsTest, ABlockTimedOutInTheQueueMayBeCommittedAgain) {
  busy_ = true;
  const auto claim = Claim(Blocks(1, 1));
  Reservations::CommitRequest hasty = CommitOf(claim.reservation, {0});
  hasty.deadline = world_.Now() + absl::Milliseconds(1);
  auto* const commit = StartCommit(std::move(hasty));
  world_.RunFor(absl::Milliseconds(50));
  ASSERT_EQ((*commit)->blocks[0].outcome, Outcome::kTimedOut);

  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0})),
              ElementsAre(Outcome::kStored));
}

TEST_F(ReservationsTest, AnsweredIsWhatTheReserveSaidOfABlockNotReserved) {
  Commit(Claim(Blocks(1, 1)).reservation, {0});
  const auto claim = Claim(Blocks(1, 2));
  ASSERT_THAT(claim.outcomes,
              ElementsAre(Outcome::kAlreadyThere, Outcome::kStored));

  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0, 1})),
              ElementsAre(Outcome::kAlreadyThere, Outcome::kStored));
}

TEST_F(ReservationsTest, ACommitThatMakesNoSenseBeginsNothing) {
  const auto claim = Claim(Blocks(1, 2));
  auto twice = CommitOf(claim.reservation, {0, 0});
  auto beyond = CommitOf(claim.reservation, {0, 2});
  auto longer = CommitOf(claim.reservation, {0, 1});
  longer.blocks[1].source.push_back(longer.blocks[0].source[0]);
  auto unsummed = CommitOf(claim.reservation, {0, 1});
  unsummed.blocks[1].pieces.clear();

  for (auto* const answer :
       {StartCommit(std::move(twice)), StartCommit(std::move(beyond)),
        StartCommit(std::move(longer)), StartCommit(std::move(unsummed))}) {
    ASSERT_TRUE(answer->has_value());
    EXPECT_THAT((*answer)->status,
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_EQ(copier_->queued_bytes(), 0u);
  EXPECT_THAT(OutcomesOf(Commit(claim.reservation, {0, 1})),
              Each(Outcome::kStored));
}

TEST_F(ReservationsTest, AnswersOfASessionAreKeptUpToABound) {
  std::vector<ReservationId> ids;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    ids.push_back(Claim(Blocks(i, 1)).reservation);
    Commit(ids.back(), {0});
  }

  EXPECT_EQ(reservations_->totals().finished, 3u);
  EXPECT_THAT(OutcomesOf(Commit(ids[0], {0})),
              ElementsAre(Outcome::kReservationOver));
  EXPECT_THAT(OutcomesOf(Commit(ids[4], {0})), ElementsAre(Outcome::kStored));
}

// Rule S5 within bounds: a writer of large batches leaves no more than one of
// small ones, and all sessions together leave so much.
TEST_F(ReservationsTest, AnswersAreKeptUpToABoundOfBlocks) {
  std::vector<ReservationId> claims;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const SessionId session = i < 2 ? kWriter : kOtherWriter;
    const auto claim = Claim(Blocks(10 * i + 1, 8), session);
    claims.push_back(claim.reservation);
    Commit(claim.reservation, {0, 1, 2, 3, 4, 5, 6, 7}, session);
    // Two of one session are 16 blocks, and 12 are kept.
    EXPECT_EQ(reservations_->totals().finished, i == 2 ? 2u : 1u);
  }
  const auto claim = Claim(Blocks(50, 1), kOtherWriter);
  Commit(claim.reservation, {0}, kOtherWriter);
  Claim({Block(1, kLength)});  // The bound is looked at with each call.

  EXPECT_EQ(reservations_->totals().finished, 2u) << "17 of 16 blocks";
  EXPECT_THAT(OutcomesOf(Commit(claims[1], {0})),
              ElementsAre(Outcome::kReservationOver));
  EXPECT_THAT(OutcomesOf(Commit(claims[2], {0}, kOtherWriter)),
              ElementsAre(Outcome::kStored));
}

TEST_F(ReservationsTest, WhatIsRememberedOfASessionEndsWithIt) {
  for (std::uint64_t i = 1; i <= 3; ++i) {
    Commit(Claim(Blocks(i, 1)).reservation, {0});
  }
  ASSERT_EQ(reservations_->totals().finished, 3u);

  reservations_->EndSession(kWriter);

  EXPECT_EQ(reservations_->totals().finished, 0u);
}

TEST_F(ReservationsTest, AClaimStillWaitingWhenTheNodeEndsIsCancelled) {
  pool_->SetTarget(0);
  std::optional<Reservations::ReserveAnswer> answer;
  StartReserve(Blocks(1, 2), kWriter, &answer);

  copier_->Drain();
  reservations_.reset();
  copier_.reset();
  pool_.reset();

  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(answer->outcomes, Each(Outcome::kCancelled));
  copier_ = std::make_unique<Copier>(
      Copier::Options{}, Copier::Parts{.pool = nullptr, .executor = &world_});
}

}  // namespace
}  // namespace firnkv
