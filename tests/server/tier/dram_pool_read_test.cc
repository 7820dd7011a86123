// Reading: look-up, leases, holds, and what a slot's reuse waits for.

#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kLength = 16 * kKiB;

class DramPoolReadTest : public PoolTest {};

TEST_F(DramPoolReadTest, ACommittedBlockIsAHitWithItsBytesAndHeader) {
  ASSERT_EQ(Write(name_space_, Block(1, 5000), 42).outcome, Outcome::kStored);

  const OpenAnswer answer = Open(name_space_, {Key(1)});

  ASSERT_EQ(answer.blocks[0].outcome, Outcome::kHit);
  EXPECT_EQ(answer.blocks[0].length, 5000u);
  EXPECT_NE(answer.lease.id, LeaseId::kNone);
  const SlotCopy copy = answer.blocks[0].copy;
  const Mapped mapped = MapRegion(name_space_, copy.slot.region);
  EXPECT_EQ(mapped.ByteAt(copy.slot), std::byte{42});
  const auto header = mapped.Header(copy.slot);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->block, (BlockId{name_space_.id, Key(1)}));
  EXPECT_EQ(header->generation, copy.generation);
  EXPECT_EQ(header->clear_epoch, ClearEpoch{1});
}

// Rule C1.
TEST_F(DramPoolReadTest, AnEqualKeyOfAnotherNamespaceIsAMiss) {
  ASSERT_EQ(Write(name_space_, Block(1, kLength)).outcome, Outcome::kStored);

  EXPECT_EQ(Look(Namespace(2, 1), 1), Outcome::kMiss);
  EXPECT_EQ(Look(Namespace(3, 2), 1), Outcome::kMiss);
}

TEST_F(DramPoolReadTest, ALeadingRunEndsAtTheFirstMiss) {
  WriteMany(name_space_, 1, 2, kLength);
  WriteMany(name_space_, 4, 1, kLength);
  const std::vector<BlockKey> keys = {Key(1), Key(2), Key(3), Key(4)};
  OpenRequest request{.name_space = &name_space_,
                      .session = kReader,
                      .keys = keys,
                      .span = ReadSpan::kLeadingRun,
                      .use = LeaseUse::kCopy,
                      .lease = absl::Seconds(1)};

  const OpenAnswer answer = pool_->Open(request);

  EXPECT_EQ(answer.blocks[1].outcome, Outcome::kHit);
  EXPECT_EQ(answer.blocks[2].outcome, Outcome::kMiss);
  EXPECT_EQ(answer.blocks[3].outcome, Outcome::kSkipped);
}

TEST_F(DramPoolReadTest, AReservedBlockIsBeingWrittenUntilItsDeadline) {
  ReserveOne(name_space_, Block(1, kLength));

  EXPECT_EQ(Look(name_space_, 1), Outcome::kBeingWritten);
  world_.RunFor(absl::Seconds(30));
  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
}

TEST_F(DramPoolReadTest, AnAbortedReservationIsAMissAtOnce) {
  const ReservedBlock reserved = ReserveOne(name_space_, Block(1, kLength));

  pool_->EndReservation(absl::MakeConstSpan(&reserved.copy, 1));

  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
  EXPECT_EQ(pool_->Snapshot().reserved_bytes, 0u);
}

TEST_F(DramPoolReadTest, ABlockOlderThanItsRetentionIsExpiredThenAMiss) {
  name_space_.retention = absl::Minutes(5);
  ASSERT_EQ(Write(name_space_, Block(1, kLength)).outcome, Outcome::kStored);

  world_.RunFor(absl::Minutes(5));
  EXPECT_EQ(Look(name_space_, 1), Outcome::kHit);
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(Look(name_space_, 1), Outcome::kExpired);
  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
}

// Rules P2 and P7: a lease granted with the look-up keeps the very slot.
TEST_F(DramPoolReadTest, ASlotUnderLeaseIsNotReused) {
  ASSERT_EQ(Write(name_space_, Block(1, kLength), 11).outcome,
            Outcome::kStored);
  const OpenAnswer answer = Open(name_space_, {Key(1)});
  const SlotCopy copy = answer.blocks[0].copy;
  const Mapped mapped = MapRegion(name_space_, copy.slot.region);

  pool_->Remove(name_space_.id, {Key(1)});
  WriteMany(name_space_, 100, 300, kLength);  // More than the pool holds.

  EXPECT_EQ(mapped.ByteAt(copy.slot), std::byte{11});
  EXPECT_EQ(mapped.ReadGeneration(copy.slot), copy.generation);
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 1u);
}

// Rule P7.
TEST_F(DramPoolReadTest, TheGenerationIsBumpedWhenTheLastLeaseHasEnded) {
  WriteMany(name_space_, 1, 2, kLength);
  const OpenAnswer first = Open(name_space_, {Key(1)});
  const OpenAnswer second = Open(name_space_, {Key(1)}, kOtherReader);
  const SlotCopy copy = first.blocks[0].copy;
  const Mapped mapped = MapRegion(name_space_, copy.slot.region);
  pool_->Remove(name_space_.id, {Key(1)});

  pool_->Release(kReader, {first.lease.id});
  EXPECT_EQ(mapped.ReadGeneration(copy.slot), copy.generation);
  pool_->Release(kOtherReader, {second.lease.id});

  EXPECT_GT(mapped.ReadGeneration(copy.slot), copy.generation);
  EXPECT_FALSE(mapped.Header(copy.slot).has_value());
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 0u);
}

TEST_F(DramPoolReadTest, ALeaseEndsByTimeAtASweep) {
  WriteMany(name_space_, 1, 1, kLength);
  Open(name_space_, {Key(1)}, kReader, absl::Seconds(5));
  pool_->Remove(name_space_.id, {Key(1)});

  world_.RunFor(absl::Seconds(5));
  pool_->Sweep(100);

  EXPECT_EQ(pool_->Snapshot().retiring_slots, 0u);
  EXPECT_EQ(pool_->Snapshot().leases, 0u);
}

// Rule S3.
TEST_F(DramPoolReadTest, ALeaseIsNotEndedByAnotherSession) {
  WriteMany(name_space_, 1, 1, kLength);
  const OpenAnswer answer = Open(name_space_, {Key(1)});

  pool_->Release(kOtherReader, {answer.lease.id});
  pool_->EndSession(kOtherReader);

  EXPECT_EQ(pool_->Snapshot().leases, 1u);
}

TEST_F(DramPoolReadTest, ARenewedLeaseOutlivesItsFirstEnd) {
  WriteMany(name_space_, 1, 1, kLength);
  const OpenAnswer answer =
      Open(name_space_, {Key(1)}, kReader, absl::Seconds(5));
  world_.RunFor(absl::Seconds(4));

  EXPECT_EQ(pool_->Renew(kReader, {answer.lease.id}, absl::Seconds(5))[0],
            LeaseTable::RenewOutcome::kRenewed);
  world_.RunFor(absl::Seconds(4));
  pool_->Sweep(100);

  EXPECT_EQ(pool_->Snapshot().leases, 1u);
}

TEST_F(DramPoolReadTest, ALeaseOfARetiringSlotIsNotRenewed) {
  WriteMany(name_space_, 1, 1, kLength);
  const OpenAnswer answer = Open(name_space_, {Key(1)});
  pool_->Remove(name_space_.id, {Key(1)});

  EXPECT_EQ(pool_->Renew(kReader, {answer.lease.id}, absl::Seconds(5))[0],
            LeaseTable::RenewOutcome::kSlotRetiring);
}

// Rule P8.
TEST_F(DramPoolReadTest, AHoldKeepsItsSlotHoweverLongItTakes) {
  ASSERT_EQ(Write(name_space_, Block(1, kLength), 11).outcome,
            Outcome::kStored);
  HeldBlock held = HoldOne(name_space_, 1);
  ASSERT_EQ(held.outcome, Outcome::kHit);
  pool_->Remove(name_space_.id, {Key(1)});

  world_.RunFor(absl::Hours(1));
  pool_->Sweep(100);
  pool_->EndSession(kReader);
  WriteMany(name_space_, 100, 300, kLength);

  EXPECT_EQ(held.bytes[0], std::byte{11});
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 1u);
  held.hold.End();
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 0u);
}

TEST_F(DramPoolReadTest, AMovedHoldEndsOnce) {
  WriteMany(name_space_, 1, 1, kLength);
  HeldBlock held = HoldOne(name_space_, 1);

  Hold second = std::move(held.hold);
  held.hold.End();
  EXPECT_EQ(pool_->Snapshot().holds, 1u);
  second.End();
  second.End();

  EXPECT_EQ(pool_->Snapshot().holds, 0u);
}

TEST_F(DramPoolReadTest, ABlockLongerThanTheReadersRoomIsTheWrongSize) {
  WriteMany(name_space_, 1, 1, kLength);
  const HeldRequest::Key key{.key = Key(1), .room = kLength - 1};
  HeldRequest request;
  request.name_space = &name_space_;
  request.keys = absl::MakeConstSpan(&key, 1);

  EXPECT_EQ(pool_->OpenHeld(request).blocks[0].outcome, Outcome::kWrongSize);
}

TEST_F(DramPoolReadTest, AHeldBatchStopsAtItsBytesAndGoesOnFromThere) {
  WriteMany(name_space_, 1, 3, kLength);
  std::vector<HeldRequest::Key> keys = {
      {.key = Key(1)}, {.key = Key(2)}, {.key = Key(3)}};
  HeldRequest request;
  request.name_space = &name_space_;
  request.keys = keys;
  request.max_bytes = 2 * kLength;

  EXPECT_EQ(pool_->OpenHeld(request).decided, 2u);
  request.max_bytes = 1;  // One at least.
  EXPECT_EQ(pool_->OpenHeld(request).decided, 1u);
}

TEST_F(DramPoolReadTest, AFullLeaseTableIsCongestionNotAMiss) {
  WriteMany(name_space_, 1, 1, kLength);
  std::vector<BlockKey> keys(options_.leases.max_leased_slots_a_session + 1,
                             Key(1));

  const OpenAnswer answer = Open(name_space_, keys);

  EXPECT_EQ(answer.blocks[0].outcome, Outcome::kCongested);
  EXPECT_EQ(answer.lease.id, LeaseId::kNone);
}

// Rule P9.
TEST_F(DramPoolReadTest, ASessionWithAViewBeyondItsHardAgeIsReported) {
  WriteMany(name_space_, 1, 1, kLength);
  Open(name_space_, {Key(1)}, kReader, absl::Seconds(5), LeaseUse::kView);

  world_.RunFor(absl::Seconds(29));
  EXPECT_THAT(pool_->Sweep(100).views, testing::IsEmpty());
  world_.RunFor(absl::Seconds(1));
  EXPECT_THAT(pool_->Sweep(100).views, testing::ElementsAre(kReader));
}

// Rule P12.
TEST_F(DramPoolReadTest, ACopyThatFailsItsChecksumIsIsolated) {
  WriteMany(name_space_, 1, 2, kLength);
  const OpenAnswer answer = Open(name_space_, {Key(1), Key(2)});
  const SlotCopy bad = answer.blocks[0].copy;
  MapRegion(name_space_, bad.slot.region).slots->bytes()[bad.slot.offset()] ^=
      std::byte{1};

  EXPECT_EQ(pool_->Verify({name_space_.id, Key(1)}, bad.generation),
            Outcome::kCorrupt);

  EXPECT_EQ(Look(name_space_, 1), Outcome::kMiss);
  EXPECT_EQ(events_.withdrawn.back().generation, bad.generation);
  EXPECT_EQ(pool_->Snapshot().corrupt_copies, 1u);
}

// Rule P12: a client cannot evict another's blocks by reporting them.
TEST_F(DramPoolReadTest, ASoundCopySurvivesAReport) {
  WriteMany(name_space_, 1, 1, kLength);
  const Generation generation = events_.present.begin()->second;

  EXPECT_EQ(pool_->Verify({name_space_.id, Key(1)}, generation), Outcome::kHit);
  EXPECT_EQ(pool_->Verify({name_space_.id, Key(1)}, Generation{9999}),
            Outcome::kMiss);
  EXPECT_EQ(Look(name_space_, 1), Outcome::kHit);
}

TEST_F(DramPoolReadTest, DroppingACopyLeavesANewerOne) {
  WriteMany(name_space_, 1, 1, kLength);
  const Generation old = events_.present.begin()->second;
  pool_->Remove(name_space_.id, {Key(1)});
  WriteMany(name_space_, 1, 1, kLength);

  EXPECT_EQ(pool_->Drop({name_space_.id, Key(1)}, old), Outcome::kMiss);
  EXPECT_EQ(Look(name_space_, 1), Outcome::kHit);
}

TEST_F(DramPoolReadTest, AnInventoryAndTheEventsDuringItNameEveryCopy) {
  WriteMany(name_space_, 1, 20, kLength);
  std::map<BlockId, Generation> seen;
  std::size_t events_before = events_.published.size();
  std::size_t withdrawn_before = events_.withdrawn.size();
  std::uint32_t cursor = 0;
  const auto note = [&seen](const SlotHeader& header) {
    seen[header.block] = header.generation;
  };

  pool_->EachResident(&cursor, 5, note);
  pool_->Remove(name_space_.id, {Key(1), Key(15)});
  WriteMany(name_space_, 50, 3, kLength);
  while (pool_->EachResident(&cursor, 5, note)) {
  }

  for (; withdrawn_before < events_.withdrawn.size(); ++withdrawn_before) {
    const SlotHeader& gone = events_.withdrawn[withdrawn_before];
    const auto it = seen.find(gone.block);
    if (it != seen.end() && it->second == gone.generation) seen.erase(it);
  }
  for (; events_before < events_.published.size(); ++events_before) {
    const SlotHeader& come = events_.published[events_before];
    seen[come.block] = come.generation;
  }
  EXPECT_EQ(seen, events_.present);
}

}  // namespace
}  // namespace firnkv
