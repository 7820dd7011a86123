// Who may touch which namespace, and when the catalog has to be asked.

#include "server/node/namespace_cache.h"

#include <optional>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/node/node_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

class NamespaceCacheTest : public NodeFixture {
 protected:
  // The outcome; nullopt: served.
  std::optional<Outcome> Find(NamespaceId id, TenantId tenant,
                              std::uint64_t seen = 0,
                              absl::Duration within = absl::Seconds(5)) {
    std::optional<NamespaceCache::Answer> got;
    namespaces_.Find({.tenant = tenant}, id, ClearEpoch{seen}, In(within),
                     [&](NamespaceCache::Answer answer) { got = answer; });
    EXPECT_TRUE(world_.executor()->RunUntil([&] { return got.has_value(); }));
    if (std::holds_alternative<PoolNamespace>(*got)) return std::nullopt;
    return std::get<Outcome>(*got);
  }
  int Asked() { return catalog_.calls["DescribeNamespaces"]; }
};

TEST_F(NamespaceCacheTest, WhatIsKnownIsNotAskedAgain) {
  EXPECT_EQ(Find(granite_.name_space, alice_), std::nullopt);
  EXPECT_EQ(Find(granite_.name_space, alice_), std::nullopt);

  EXPECT_EQ(Asked(), 1);
}

TEST_F(NamespaceCacheTest, AForeignTenantIsDenied) {
  EXPECT_EQ(Find(granite_.name_space, bob_), Outcome::kDenied);
}

TEST_F(NamespaceCacheTest, WhatDoesNotExistIsDeniedAndAskedForOnceASecond) {
  SeededRandom random(3);
  const NamespaceId nothing = NamespaceId::Make(&random);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Find(nothing, alice_), Outcome::kDenied);
  }
  EXPECT_EQ(Asked(), 1);

  RunFor(absl::Seconds(2));
  EXPECT_EQ(Find(nothing, alice_), Outcome::kDenied);
  EXPECT_EQ(Asked(), 2);
}

// Rule C2.
TEST_F(NamespaceCacheTest, AnEpochThatTheNodeDoesNotKnowIsAskedFor) {
  Find(granite_.name_space, alice_);
  catalog_.Clear(granite_.name_space);

  EXPECT_EQ(Find(granite_.name_space, alice_, 2), std::nullopt);

  EXPECT_EQ(Asked(), 2);
  EXPECT_EQ(changed_.size(), 2u);
}

// Rule S3: whoever may not see a namespace cannot make its readers wait for an
// epoch that it made up.
TEST_F(NamespaceCacheTest, WhatAForeignerSaysItHasSeenCostsItsReadersNothing) {
  Find(granite_.name_space, alice_);
  EXPECT_EQ(Find(granite_.name_space, bob_, 99), Outcome::kDenied);
  EXPECT_EQ(Asked(), 1);
  catalog_.Clear(granite_.name_space);

  EXPECT_EQ(Find(granite_.name_space, alice_, 2), std::nullopt);
}

// Rule C2: nothing makes the catalog know less than its clients for long.
TEST_F(NamespaceCacheTest, AnEpochThatNobodyKnowsIsUnavailableAndCheap) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Find(granite_.name_space, alice_, 99), Outcome::kUnavailable);
  }

  EXPECT_LE(Asked(), 2);
  EXPECT_EQ(Find(granite_.name_space, alice_, 1), std::nullopt);
}

// Rule C2.
TEST_F(NamespaceCacheTest, WithTheCatalogAwayWhatIsNotKnownIsUnavailable) {
  catalog_.silent = true;

  EXPECT_EQ(Find(granite_.name_space, alice_), Outcome::kUnavailable);
}

TEST_F(NamespaceCacheTest, ACallerIsNotKeptBeyondItsDeadline) {
  catalog_.silent = true;
  const BootTime before = Now();

  EXPECT_EQ(Find(granite_.name_space, alice_, 0, absl::Milliseconds(50)),
            Outcome::kTimedOut);

  EXPECT_LE(Now() - before, absl::Milliseconds(51));
}

TEST_F(NamespaceCacheTest, WithTheCatalogAwayWhatIsKnownIsServed) {
  Find(granite_.name_space, alice_);
  catalog_.silent = true;

  EXPECT_EQ(Find(granite_.name_space, alice_, 1), std::nullopt);
}

TEST_F(NamespaceCacheTest, OlderFactsDoNotReplaceNewerOnes) {
  NamespaceFacts newer = granite_;
  newer.clear_epoch = ClearEpoch{5};
  namespaces_.Learn({newer});
  namespaces_.Learn({granite_});

  EXPECT_EQ(Find(granite_.name_space, alice_, 5), std::nullopt);
  EXPECT_EQ(Asked(), 0);
}

// Rule C4.
TEST_F(NamespaceCacheTest, AStrictNamespaceNeedsABelievedMembership) {
  NamespaceFacts strict = granite_;
  strict.strict_clear = true;
  namespaces_.Learn({strict});
  EXPECT_EQ(Find(granite_.name_space, alice_), Outcome::kUnavailable);
  namespaces_.SetMembership(In(absl::Seconds(5)));
  EXPECT_EQ(Find(granite_.name_space, alice_), std::nullopt);

  RunFor(absl::Seconds(5));

  EXPECT_EQ(Find(granite_.name_space, alice_), Outcome::kUnavailable);
}

// Rule C2: it may be from before a clear that the registration covers, of which
// no heartbeat tells.
TEST_F(NamespaceCacheTest, AnAnswerFromBeforeARegistrationIsNotBelieved) {
  std::optional<NamespaceCache::Answer> got;
  namespaces_.Find({.tenant = alice_}, granite_.name_space,
                   ClearEpoch::kUnknown, In(absl::Seconds(5)),
                   [&](NamespaceCache::Answer answer) { got = answer; });
  ASSERT_FALSE(got.has_value());
  EXPECT_TRUE(namespaces_.BeginRefresh().empty());
  RunFor(absl::Seconds(1));

  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(std::get<Outcome>(*got), Outcome::kUnavailable);
  EXPECT_EQ(Find(granite_.name_space, alice_), std::nullopt);
  EXPECT_EQ(Asked(), 2);
}

// Rule C4.
TEST_F(NamespaceCacheTest, NoLeaseOfAStrictNamespaceOutlastsTheMembership) {
  NamespaceFacts strict = granite_;
  strict.strict_clear = true;
  namespaces_.SetMembership(In(absl::Seconds(5)));

  EXPECT_EQ(namespaces_.LongestLease(ToPoolNamespace(granite_)),
            absl::InfiniteDuration());
  EXPECT_EQ(namespaces_.LongestLease(ToPoolNamespace(strict)),
            absl::Seconds(5));
  RunFor(absl::Seconds(5));
  EXPECT_LE(namespaces_.LongestLease(ToPoolNamespace(strict)),
            absl::ZeroDuration());
}

TEST_F(NamespaceCacheTest, AFloodOfQuestionsIsBoundedAndLeavesRoomForOthers) {
  catalog_.silent = true;
  SeededRandom random(3);
  int unavailable = 0;
  const auto ask = [&](TenantId tenant) {
    namespaces_.Find({.tenant = tenant}, NamespaceId::Make(&random),
                     ClearEpoch::kUnknown, In(absl::Seconds(5)),
                     [&](NamespaceCache::Answer) { ++unavailable; });
  };
  for (int i = 0; i < 1000; ++i) ask(alice_);
  EXPECT_EQ(unavailable, 744);  // 256 are under way.
  ask(bob_);
  EXPECT_EQ(unavailable, 744);

  RunFor(absl::Seconds(3));
  EXPECT_EQ(unavailable, 1001);

  // All together.
  for (int i = 0; i < 2000; ++i) ask(TenantId::Make(&random));
  EXPECT_EQ(unavailable, 1001 + 976);  // 1,024 are under way.
  RunFor(absl::Seconds(3));
}

}  // namespace
}  // namespace firnkv
