// What a node confirms of clears (rule C4).

#include "server/node/clear_drain.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/server/node/link_fixture.h"

namespace firnkv {
namespace {

class ClearDrainTest : public LinkFixture {
 protected:
  ClearDrainTest() : strict_(MakeStrict()) {
    namespaces_.Learn({strict_, granite_});
    session_.bytes[0] = 1;
  }

  NamespaceFacts MakeStrict() {
    NamespaceFacts facts = catalog_.AddNamespace("alice");
    facts.strict_clear = true;
    catalog_.name_spaces[facts.name_space] = facts;
    return facts;
  }
  // A read lease on block 1 of the namespace.
  LeaseId Lease(const NamespaceFacts& facts) {
    const PoolNamespace name_space = ToPoolNamespace(facts);
    const BlockKey key = KeyOf(1);
    const OpenAnswer answer = pool_->Open({.name_space = &name_space,
                                           .session = session_,
                                           .keys = {&key, 1},
                                           .lease = absl::Seconds(60)});
    EXPECT_EQ(answer.blocks[0].outcome, Outcome::kHit);
    return answer.lease.id;
  }
  void SweepPool() { pool_->Sweep(10'000); }
  std::uint64_t Known() const {
    return catalog_.beats.back().namespace_cursor();
  }
  std::uint64_t Drained() const {
    return catalog_.beats.back().drained_cursor();
  }

  const NamespaceFacts strict_;
  SessionId session_;
};

// Rule C4.
TEST_F(ClearDrainTest, AClearIsKnownAtOnceAndDrainedOnceItsLeasesHaveEnded) {
  Store(strict_, 1);
  Settle();
  const LeaseId lease = Lease(strict_);
  RunFor(absl::Seconds(3));
  const std::uint64_t before = Known();
  ASSERT_EQ(Drained(), before);
  catalog_.Clear(strict_.name_space);

  RunFor(absl::Seconds(5));
  SweepPool();
  RunFor(absl::Seconds(5));
  EXPECT_GT(Known(), before);
  EXPECT_EQ(Drained(), before);

  pool_->Release(session_, {&lease, 1});
  // Much less than a heartbeat's quarter of the lease.
  RunFor(absl::Milliseconds(200));
  EXPECT_EQ(Drained(), Known());
}

// Rule C4: a registration confirms nothing by itself.
TEST_F(ClearDrainTest, AClearDuringAnOutageWaitsForLeasesFromBeforeIt) {
  Store(strict_, 1);
  Settle();
  const LeaseId lease = Lease(strict_);
  catalog_.silent = true;
  RunFor(absl::Seconds(15));
  ASSERT_EQ(link_->state(), CatalogLink::State::kAway);
  catalog_.Clear(strict_.name_space);
  catalog_.silent = false;

  RunFor(absl::Seconds(10));
  SweepPool();
  RunFor(absl::Seconds(10));
  ASSERT_EQ(link_->state(), CatalogLink::State::kRegistered);
  EXPECT_LT(Drained(), Known());

  pool_->Release(session_, {&lease, 1});
  RunFor(absl::Seconds(1));
  EXPECT_EQ(Drained(), Known());
}

// Rule C4: what was waited for is waited for beyond a new registration.
TEST_F(ClearDrainTest, ANewRegistrationForgetsNoClear) {
  Store(strict_, 1);
  Settle();
  const LeaseId lease = Lease(strict_);
  catalog_.Clear(strict_.name_space);
  RunFor(absl::Seconds(5));
  SweepPool();
  ASSERT_LT(Drained(), Known());
  catalog_.ForgetRegistration();

  RunFor(absl::Seconds(10));
  ASSERT_EQ(catalog_.registrations.size(), 2u);
  EXPECT_LT(Drained(), Known());

  pool_->Release(session_, {&lease, 1});
  RunFor(absl::Seconds(1));
  EXPECT_EQ(Drained(), Known());
}

TEST_F(ClearDrainTest, AClearThatIsNotStrictWaitsForNoLease) {
  Store(granite_, 1);
  Settle();
  Lease(granite_);
  catalog_.Clear(granite_.name_space);

  RunFor(absl::Seconds(5));

  EXPECT_EQ(Drained(), Known());
}

TEST_F(ClearDrainTest, WaitingForLeasesCostsNoFurtherHeartbeats) {
  Store(strict_, 1);
  Settle();
  Lease(strict_);
  catalog_.Clear(strict_.name_space);
  RunFor(absl::Seconds(5));
  const std::size_t before = catalog_.beats.size();

  RunFor(absl::Seconds(25));

  EXPECT_LE(catalog_.beats.size(), before + 11);
}

}  // namespace
}  // namespace firnkv
