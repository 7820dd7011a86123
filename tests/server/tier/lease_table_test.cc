// The promise that a lease makes, and how retirement waits for it.

#include "server/tier/lease_table.h"

#include <array>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/tier/pool_fixture.h"
#include "tests/support/manual_clock.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using GrantOutcome = LeaseTable::GrantOutcome;
using Refused = LeaseTable::Refused;
using RenewOutcome = LeaseTable::RenewOutcome;
using RetireOutcome = LeaseTable::RetireOutcome;

SlotId Slot(std::uint32_t n) { return SlotId{.region = 1, .page = n}; }

class LeaseTableTest : public testing::Test {
 protected:
  GrantOutcome Grant(SlotId slot, absl::Duration duration,
                     LeaseUse use = LeaseUse::kCopy,
                     SessionId session = kReader, TenantId tenant = {}) {
    std::array wanted = {LeaseTable::Wanted{.slot = slot}};
    return table_.Grant({session, tenant}, use, absl::MakeSpan(wanted),
                        duration);
  }
  LeaseId Lease(SlotId slot, absl::Duration duration,
                LeaseUse use = LeaseUse::kCopy) {
    return std::get<LeaseTable::Granted>(Grant(slot, duration, use)).id;
  }
  LeaseTable::Ended Sweep() {
    LeaseTable::Ended ended;
    table_.Sweep(/*budget=*/100, &ended);
    return ended;
  }

  ManualClock clock_;
  LeaseTable::Ended ended_;
  LeaseTable table_{{.max_leased_slots = 3,
                     .max_leased_slots_a_session = 2,
                     .longest = absl::Seconds(10),
                     .longest_view = absl::Seconds(8)},
                    &clock_};
};

TEST_F(LeaseTableTest, ASlotUnderLeaseIsNotReclaimable) {
  Lease(Slot(1), absl::Seconds(5));

  EXPECT_EQ(table_.BeginRetire(Slot(1)), RetireOutcome::kStillLeased);
}

TEST_F(LeaseTableTest, ASlotIsReclaimableOnceItsLastLeaseHasEnded) {
  Lease(Slot(1), absl::Seconds(5));
  Lease(Slot(1), absl::Seconds(6));
  ASSERT_EQ(table_.BeginRetire(Slot(1)), RetireOutcome::kStillLeased);

  clock_.Advance(absl::Seconds(5));
  EXPECT_THAT(Sweep().reclaimable, IsEmpty());
  clock_.Advance(absl::Seconds(1));

  EXPECT_THAT(Sweep().reclaimable, ElementsAre(Slot(1)));
  EXPECT_TRUE(table_.IsReclaimable(Slot(1)));
}

TEST_F(LeaseTableTest, AReusedSlotCanBeLeasedAgain) {
  ASSERT_EQ(table_.BeginRetire(Slot(1)), RetireOutcome::kReclaimable);
  table_.EndRetire(Slot(1));

  EXPECT_TRUE(std::holds_alternative<LeaseTable::Granted>(
      Grant(Slot(1), absl::Seconds(1))));
}

TEST_F(LeaseTableTest, ABatchIsLeasedWithoutItsRetiringSlots) {
  ASSERT_EQ(table_.BeginRetire(Slot(1)), RetireOutcome::kReclaimable);
  std::array wanted = {LeaseTable::Wanted{.slot = Slot(1)},
                       LeaseTable::Wanted{.slot = Slot(2)}};

  table_.Grant({kReader, {}}, LeaseUse::kCopy, absl::MakeSpan(wanted),
               absl::Seconds(1));

  EXPECT_FALSE(wanted[0].granted);
  EXPECT_TRUE(wanted[1].granted);
}

TEST_F(LeaseTableTest, NothingToLeaseIsNoLease) {
  ASSERT_EQ(table_.BeginRetire(Slot(1)), RetireOutcome::kReclaimable);

  EXPECT_EQ(std::get<Refused>(Grant(Slot(1), absl::Seconds(1))),
            Refused::kNothingToLease);
}

// Rule S3.
TEST_F(LeaseTableTest, ALeaseIsNotEndedByAnotherSession) {
  const LeaseId id = Lease(Slot(1), absl::Seconds(5));

  table_.Release(kOtherReader, id, &ended_);

  EXPECT_TRUE(table_.IsLeased(Slot(1)));
  EXPECT_EQ(table_.Renew(kOtherReader, id, absl::Seconds(5)),
            RenewOutcome::kEnded);
}

TEST_F(LeaseTableTest, ASessionsEndEndsItsLeases) {
  Lease(Slot(1), absl::Seconds(5));
  Lease(Slot(2), absl::Seconds(5));
  ASSERT_EQ(table_.BeginRetire(Slot(1)), RetireOutcome::kStillLeased);

  table_.EndSession(kReader, &ended_);

  EXPECT_THAT(ended_.reclaimable, ElementsAre(Slot(1)));
  EXPECT_EQ(table_.leases(), 0u);
  EXPECT_EQ(table_.leased_slots(), 0u);
}

// Rule S3: caps by session and by node.
TEST_F(LeaseTableTest, AFullTableRefusesInsteadOfGrowing) {
  Lease(Slot(1), absl::Seconds(1));
  Lease(Slot(2), absl::Seconds(1));
  EXPECT_EQ(std::get<Refused>(Grant(Slot(3), absl::Seconds(1))),
            Refused::kTableFull);

  EXPECT_TRUE(std::holds_alternative<LeaseTable::Granted>(
      Grant(Slot(3), absl::Seconds(1), LeaseUse::kCopy, kOtherReader)));
  EXPECT_EQ(std::get<Refused>(Grant(Slot(4), absl::Seconds(1), LeaseUse::kCopy,
                                    kOtherReader)),
            Refused::kTableFull);
}

// Rule S3: caps by tenant, however many sessions it has.
TEST_F(LeaseTableTest, ATenantLeavesRoomForOthers) {
  LeaseTable table({.max_leased_slots = 3, .max_leased_slots_a_tenant = 2},
                   &clock_);
  const auto grant = [&](std::uint8_t session, TenantId tenant) {
    SessionId id;
    id.bytes.fill(session);
    std::array wanted = {LeaseTable::Wanted{.slot = Slot(session)}};
    return table.Grant({id, tenant}, LeaseUse::kCopy, absl::MakeSpan(wanted),
                       absl::Seconds(5));
  };
  TenantId greedy;
  TenantId other;
  greedy.bytes.fill(1);
  other.bytes.fill(2);
  grant(1, greedy);
  const LeaseId last = std::get<LeaseTable::Granted>(grant(2, greedy)).id;

  EXPECT_EQ(std::get<Refused>(grant(3, greedy)), Refused::kTableFull);
  EXPECT_TRUE(std::holds_alternative<LeaseTable::Granted>(grant(4, other)));

  SessionId second;
  second.bytes.fill(2);
  table.Release(second, last, &ended_);
  EXPECT_TRUE(std::holds_alternative<LeaseTable::Granted>(grant(3, greedy)));
}

TEST_F(LeaseTableTest, ALongerLeaseThanTheLongestIsCut) {
  const auto granted =
      std::get<LeaseTable::Granted>(Grant(Slot(1), absl::Hours(1)));

  EXPECT_EQ(granted.valid_for, absl::Seconds(10));
}

TEST_F(LeaseTableTest, RenewingNeverBringsTheEndNearer) {
  const LeaseId id = Lease(Slot(1), absl::Seconds(9));

  ASSERT_EQ(table_.Renew(kReader, id, absl::Seconds(1)),
            RenewOutcome::kRenewed);

  clock_.Advance(absl::Seconds(8));
  EXPECT_EQ(Sweep().leases, 0u);
}

TEST_F(LeaseTableTest, ALeaseOfARetiringSlotIsNotRenewed) {
  const LeaseId id = Lease(Slot(1), absl::Seconds(5));
  table_.BeginRetire(Slot(1));

  EXPECT_EQ(table_.Renew(kReader, id, absl::Seconds(5)),
            RenewOutcome::kSlotRetiring);
}

// Rule C4.
TEST_F(LeaseTableTest, WhatIsNotRenewableEndsWhenItWasGrantedTo) {
  std::vector<LeaseTable::Wanted> wanted = {{.slot = Slot(1)}};
  const auto granted =
      table_.Grant({.session = kReader, .renewable = false}, LeaseUse::kCopy,
                   absl::MakeSpan(wanted), absl::Seconds(5));

  EXPECT_EQ(table_.Renew(kReader, std::get<LeaseTable::Granted>(granted).id,
                         absl::Seconds(20)),
            RenewOutcome::kSlotRetiring);
}

TEST_F(LeaseTableTest, ALeaseThatHasEndedIsNotRenewedThoughNotYetSwept) {
  const LeaseId id = Lease(Slot(1), absl::Seconds(5));
  clock_.Advance(absl::Seconds(5));

  EXPECT_EQ(table_.Renew(kReader, id, absl::Seconds(5)), RenewOutcome::kEnded);
}

TEST_F(LeaseTableTest, ASweepEndsNoMoreThanItsBudget) {
  Lease(Slot(1), absl::Seconds(1));
  Lease(Slot(2), absl::Seconds(1));
  clock_.Advance(absl::Seconds(1));

  table_.Sweep(/*budget=*/1, &ended_);

  EXPECT_EQ(ended_.leases, 1u);
  EXPECT_EQ(table_.leases(), 1u);
}

// Rule P9.
TEST_F(LeaseTableTest, AViewCountsAfterItsSlotsAreFreeUntilItsRelease) {
  const LeaseId id = Lease(Slot(1), absl::Seconds(2), LeaseUse::kView);
  ASSERT_EQ(table_.BeginRetire(Slot(1)), RetireOutcome::kStillLeased);

  clock_.Advance(absl::Seconds(2));
  EXPECT_THAT(Sweep().reclaimable, ElementsAre(Slot(1)));
  EXPECT_TRUE(table_.HasViews(1));
  EXPECT_EQ(table_.Renew(kReader, id, absl::Seconds(1)), RenewOutcome::kEnded);
  table_.Release(kReader, id, &ended_);

  EXPECT_FALSE(table_.HasViews(1));
}

// Rule P9.
TEST_F(LeaseTableTest, AViewBeyondItsHardAgeReportsItsSession) {
  const LeaseId id = Lease(Slot(1), absl::Seconds(5), LeaseUse::kView);
  clock_.Advance(absl::Seconds(4));
  ASSERT_EQ(table_.Renew(kReader, id, absl::Seconds(10)),
            RenewOutcome::kRenewed);

  clock_.Advance(absl::Seconds(3));
  EXPECT_THAT(Sweep().overdue_views, IsEmpty());
  clock_.Advance(absl::Seconds(1));

  EXPECT_THAT(Sweep().overdue_views, ElementsAre(kReader));
  EXPECT_FALSE(table_.HasViews(1));
  EXPECT_FALSE(table_.IsLeased(Slot(1)));
}

TEST_F(LeaseTableTest, AViewIsChargedForAsLongAsItIsOpen) {
  Lease(Slot(1), absl::Seconds(1), LeaseUse::kView);
  Lease(Slot(2), absl::Seconds(1), LeaseUse::kView);
  clock_.Advance(absl::Seconds(1));
  Sweep();

  EXPECT_EQ(std::get<Refused>(Grant(Slot(3), absl::Seconds(1))),
            Refused::kTableFull);
}

TEST_F(LeaseTableTest, NextEndIsWhenASweepHasSomethingToDo) {
  EXPECT_EQ(table_.NextEnd(), BootTime::Infinite());
  Lease(Slot(1), absl::Seconds(5));
  Lease(Slot(2), absl::Seconds(2));

  EXPECT_EQ(table_.NextEnd(), clock_.Now() + absl::Seconds(2));
}

}  // namespace
}  // namespace firnkv
