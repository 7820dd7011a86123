// Who is a member, for how long, and whose copies are served.

#include "server/catalog/membership.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/server/catalog/catalog_fixture.h"

namespace firnkv {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class MembershipTest : public CatalogFixture {
 protected:
  absl::Duration Lease() { return life_->membership.lease(); }
  NodeLife Life(std::uint8_t node) {
    return life_->membership.Find(Node(node))->life;
  }

  NamespaceFacts ns_ = MakeNamespace("granite");
  Member node_ = Join(1, 100);
};

TEST_F(MembershipTest, ANodeThatKeepsSilentIsHiddenAtOnce) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));

  Pass(Lease() - absl::Milliseconds(1));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);
  clock_.Advance(absl::Milliseconds(1));

  // Not gone: known at a node that cannot be reached.
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kUnavailable);
}

TEST_F(MembershipTest, KeepAliveRenewsForAFullTerm) {
  Pass(Lease() / 2);
  ASSERT_OK(KeepAlive(node_));
  Pass(Lease() - absl::Milliseconds(1));

  EXPECT_EQ(Life(1), NodeLife::kAlive);
}

TEST_F(MembershipTest, ALeaseThatIsOverIsNotRenewed) {
  Pass(Lease());

  EXPECT_THAT(KeepAlive(node_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Send(&node_, {{&ns_, 7}}), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(MembershipTest, ANodeThatRegistersAgainInItsGraceIsServedAtOnce) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  Pass(Lease() * 2);

  Register(1, 100);

  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);
}

// Rule A6.
TEST_F(MembershipTest, ASecondLiveBootIsRefusedWhileTheLeaseRuns) {
  Pass(Lease() - absl::Milliseconds(1));

  EXPECT_THAT(TryRegister(1, 101), StatusIs(absl::StatusCode::kAlreadyExists,
                                            HasSubstr("host-1:7410")));
  EXPECT_OK(KeepAlive(node_));
}

// Rule A6.
TEST_F(MembershipTest, ASecondBootIsAdmittedOnceTheLeaseIsOver) {
  Pass(Lease());

  EXPECT_OK(TryRegister(1, 101));
}

// Rule A6: it holds the lock of the data directory.
TEST_F(MembershipTest, ABootThatNamesItsPredecessorSupersedesAtOnce) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));

  const Member next = Register(1, 101, /*predecessor=*/100);

  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
  EXPECT_THAT(KeepAlive(node_), StatusIs(absl::StatusCode::kAborted));
  EXPECT_OK(KeepAlive(next));
}

// Rule A6.
TEST_F(MembershipTest, ABootThatNamesAnotherPredecessorIsRefused) {
  EXPECT_THAT(TryRegister(1, 101, /*predecessor=*/99),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

// Rule A6.
TEST_F(MembershipTest, ASupersededBootNeverComesBack) {
  Register(1, 101, /*predecessor=*/100);
  Pass(Lease() * 2);

  EXPECT_THAT(TryRegister(1, 100), StatusIs(absl::StatusCode::kAborted));
  Restart();
  Pass(Lease() * 2);
  EXPECT_THAT(TryRegister(1, 100), StatusIs(absl::StatusCode::kAborted));
}

// Rule A6: the registration is synced, so a power cut does not undo it.
TEST_F(MembershipTest, ASupersededBootStaysSoAfterAPowerCut) {
  Register(1, 101, /*predecessor=*/100);
  store_.PowerCut(nullptr);
  Restart();

  EXPECT_THAT(KeepAlive(node_), StatusIs(absl::StatusCode::kAborted));
}

// Rules A6 and A7.
TEST_F(MembershipTest, ARestartedCatalogRefusesASecondBootForAFullTerm) {
  Pass(Lease() - absl::Milliseconds(1));
  Restart();
  Pass(Lease() - absl::Milliseconds(1));

  EXPECT_THAT(TryRegister(1, 101), StatusIs(absl::StatusCode::kAlreadyExists));
}

// Rule A7.
TEST_F(MembershipTest, ARestartedCatalogServesANodeOnceItHasHeardOfIt) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  Restart();
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kUnavailable);

  ASSERT_OK(KeepAlive(node_));

  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);
}

TEST_F(MembershipTest, AfterARestartBatchesGoOnWhereTheyWere) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  Restart();
  ASSERT_OK(KeepAlive(node_));

  EXPECT_OK(Send(&node_, {{&ns_, 8}}));
}

// A power cut loses the tail; the node must not believe it is known.
TEST_F(MembershipTest, ANodeWhoseBatchesWereLostIsToldToRegisterAgain) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  store_.PowerCut(nullptr);
  Restart();

  EXPECT_THAT(KeepAlive(node_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("lost")));
}

// Rule A7: a renewal may have been lost in the stall.
TEST_F(MembershipTest, AfterAStallEveryLeaseGetsAFullTerm) {
  Pass(Lease() / 2);
  clock_.Advance(Lease() * 3);

  EXPECT_EQ(Life(1), NodeLife::kAlive);
  EXPECT_THAT(TryRegister(1, 101), StatusIs(absl::StatusCode::kAlreadyExists));
  Pass(Lease() - absl::Milliseconds(1));
  EXPECT_OK(KeepAlive(node_));
}

// Rule A7.
TEST_F(MembershipTest, ReadersSeeNoExpiryInAStallEither) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  clock_.Advance(Lease() * 3);

  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);
}

// Rule A7: late by less than a quarter lease is no stall.
TEST_F(MembershipTest, ALateTickDoesNotProlongALease) {
  Pass(Lease() - life_->membership.tick());
  clock_.Advance(life_->membership.tick() + Lease() / 8);

  EXPECT_THAT(KeepAlive(node_), StatusIs(absl::StatusCode::kNotFound));
}

// Rule A7: what had ended before the stall stays ended.
TEST_F(MembershipTest, AStallRevivesNothing) {
  Pass(Lease() + life_->membership.tick());
  clock_.Advance(Lease() * 3);

  EXPECT_THAT(KeepAlive(node_), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(MembershipTest, AnEarlierRegistrationDoesNotKeepAlive) {
  Register(1, 100);

  EXPECT_THAT(KeepAlive(node_), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(MembershipTest, AfterTheGraceANodeIsOverdue) {
  Pass(Lease());
  Pass(absl::Minutes(15) - absl::Seconds(2));
  EXPECT_THAT(overdue_, IsEmpty());
  Pass(absl::Seconds(2));

  ASSERT_THAT(overdue_, SizeIs(1));
  const auto reaped = life_->membership.Reap(overdue_[0]);
  ASSERT_OK(reaped);
  EXPECT_TRUE(*reaped);
  EXPECT_EQ(Life(1), NodeLife::kReaped);
}

// Rule A3.
TEST_F(MembershipTest, ANodeThatHasRegisteredAgainIsNotReaped) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  Pass(Lease() + absl::Minutes(15));
  ASSERT_THAT(overdue_, SizeIs(1));
  const Membership::Overdue late = overdue_[0];
  node_ = Register(1, 100);

  const auto reaped = life_->membership.Reap(late);

  ASSERT_OK(reaped);
  EXPECT_FALSE(*reaped);
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);
}

// Rule A3: the applied number becomes none, in the same write.
TEST_F(MembershipTest, AReapedNodeHasNoAppliedNumberAlsoAfterARestart) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  Pass(Lease() + absl::Minutes(15));
  ASSERT_OK(life_->membership.Reap(overdue_[0]));
  Restart();

  EXPECT_EQ(life_->membership.Find(Node(1))->applied.applied, 0u);
  EXPECT_EQ(Life(1), NodeLife::kReaped);
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rule A3.
TEST_F(MembershipTest, WhatAReapedNodeNamesAnewCounts) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}, {&ns_, 8}}));
  Pass(Lease() + absl::Minutes(15));
  ASSERT_OK(life_->membership.Reap(overdue_[0]));

  node_ = Register(1, 100);
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryPart, {{&ns_, 7}}));

  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(ns_, 8), Outcome::kMiss);
}

// Rule A3: one step, as after lease and grace, and nobody waits for either.
TEST_F(MembershipTest, WhatANodeHadCountsNoMoreOnceItUnregistered) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));

  ASSERT_OK(Unregister(node_));

  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
  EXPECT_THAT(life_->membership.List(), IsEmpty());
  EXPECT_THAT(KeepAlive(node_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Send(&node_, {{&ns_, 8}}), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(MembershipTest, ANodeThatUnregisteredStaysSoAfterARestart) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  ASSERT_OK(Unregister(node_));

  Restart();

  EXPECT_THAT(life_->membership.List(), IsEmpty());
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
  Pass(Lease() * 2 + absl::Minutes(15));
  EXPECT_THAT(overdue_, IsEmpty());
}

// Rule A3: a call that was late ends nothing that came after it.
TEST_F(MembershipTest, OnlyTheLastRegistrationOfANodeIsUnregistered) {
  const Member late = node_;
  node_ = Register(1, 100);
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryPart, {{&ns_, 7}}));

  EXPECT_THAT(Unregister(late), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);

  const Member next = Register(1, 101, /*predecessor=*/100);
  EXPECT_THAT(Unregister(node_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(KeepAlive(next));
}

TEST_F(MembershipTest, ALeaseThatIsOverIsNotUnregistered) {
  Pass(Lease());

  EXPECT_THAT(Unregister(node_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(Life(1), NodeLife::kExpired);
}

TEST_F(MembershipTest, UnregisteringTwiceFindsNothingTheSecondTime) {
  ASSERT_OK(Unregister(node_));

  EXPECT_THAT(Unregister(node_), StatusIs(absl::StatusCode::kNotFound));
  Member nobody = node_;
  nobody.registration = RegistrationId{};
  EXPECT_THAT(Unregister(nobody), StatusIs(absl::StatusCode::kNotFound));
}

// Rule A6: its lease has ended, so nobody waits for it.
TEST_F(MembershipTest, AnotherBootOfANodeThatUnregisteredIsAdmittedAtOnce) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  ASSERT_OK(Unregister(node_));

  const Member next = Join(1, 101);

  EXPECT_OK(KeepAlive(next));
  EXPECT_THAT(life_->membership.List(), SizeIs(1));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rule A6: that it left does not make its superseded runs forgotten.
TEST_F(MembershipTest, ASupersededBootDoesNotComeBackAfterTheLaterOneHasLeft) {
  const Member next = Register(1, 101, /*predecessor=*/100);
  ASSERT_OK(Unregister(next));
  Restart();

  EXPECT_THAT(TryRegister(1, 100), StatusIs(absl::StatusCode::kAborted));
}

// Rule A3: the same run may change its mind.
TEST_F(MembershipTest, WhatARunNamesAfterItUnregisteredCounts) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}, {&ns_, 8}}));
  ASSERT_OK(Unregister(node_));

  node_ = Register(1, 100);
  EXPECT_FALSE(node_.kept);
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryPart, {{&ns_, 7}}));

  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(ns_, 8), Outcome::kMiss);
}

// Not synced, as reaping is not: then it is a node that has vanished.
TEST_F(MembershipTest, APowerCutMayBringBackANodeThatLeftAsOneThatVanished) {
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  ASSERT_OK(Unregister(node_));
  store_.PowerCut(nullptr);
  Restart();

  EXPECT_NE(OutcomeOf(ns_, 7), Outcome::kHit);
  Pass(Lease() + absl::Minutes(15));
  ASSERT_THAT(overdue_, SizeIs(1));
  EXPECT_OK(life_->membership.Reap(overdue_[0]));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

TEST_F(MembershipTest, TooManyNodesAreRefusedUntilOneIsReaped) {
  Membership small({.max_nodes = 1}, {&store_, &clock_, &random_});
  ASSERT_OK(small.Load());
  Membership::Boot boot;
  boot.address = AddressOf(2, 200);
  EXPECT_THAT(small.Register(boot),
              StatusIs(absl::StatusCode::kResourceExhausted));

  for (int i = 0; i < 1000; ++i) {
    clock_.Advance(small.tick());
    for (const auto& overdue : small.Tick()) ASSERT_OK(small.Reap(overdue));
  }

  EXPECT_OK(small.Register(boot));
  EXPECT_FALSE(small.Find(Node(1)).has_value());
}

TEST_F(MembershipTest, ANodeNeedsAnIdAndAnEpoch) {
  EXPECT_THAT(TryRegister(1, 0), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Rule C2: a run that comes back is told what was cleared meanwhile, whatever
// it remembers.
TEST_F(MembershipTest, ARunThatRegistersAgainIsToldFromWhatItHasConfirmed) {
  Membership::Boot boot;
  boot.address = AddressOf(3, 300);
  boot.namespace_cursor = 5;
  const auto first = life_->membership.Register(boot);
  ASSERT_OK(first);
  EXPECT_EQ(first->namespace_cursor, 5u);

  boot.namespace_cursor = 9;
  const auto again = life_->membership.Register(boot);
  ASSERT_OK(again);
  EXPECT_EQ(again->namespace_cursor, 5u);

  Restart();
  const auto later = life_->membership.Register(boot);
  ASSERT_OK(later);
  EXPECT_EQ(later->namespace_cursor, 0u);
}

}  // namespace
}  // namespace firnkv
