// Registration, heartbeats, the inventory and the batches that follow it.

#include "server/node/catalog_link.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/server/node/link_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using State = CatalogLink::State;

class CatalogLinkTest : public LinkFixture {};

TEST_F(CatalogLinkTest, ANodeThatNeverMetItsClusterAsksWhichOneItIs) {
  credentials_.SetCluster(ClusterId{});

  Settle();

  EXPECT_EQ(credentials_.cluster(), catalog_.cluster);
  EXPECT_EQ(state_.memory().cluster, catalog_.cluster);
}

// Rule A6.
TEST_F(CatalogLinkTest, ARegistrationNamesTheEpochOfTheRunBefore) {
  NodeMemory memory = state_.memory();
  memory.registered_epoch = NodeEpoch{0xb4};
  memory.attempted_epoch = NodeEpoch{0xb4};
  ASSERT_OK(state_.Save(memory));

  Settle();

  EXPECT_EQ(catalog_.registrations[0].predecessor_epoch(), 0xb4u);
  EXPECT_EQ(state_.memory().registered_epoch, address_.epoch);
}

// Rule A6: it died between asking and writing down the answer.
TEST_F(CatalogLinkTest, ARunThatMayHaveRegisteredIsTriedAsPredecessorFirst) {
  NodeMemory memory = state_.memory();
  memory.registered_epoch = NodeEpoch{0xa1};
  memory.attempted_epoch = NodeEpoch{0xa2};
  ASSERT_OK(state_.Save(memory));
  catalog_.FailNext("Register", absl::AlreadyExistsError("another one runs"));

  Settle();

  ASSERT_EQ(catalog_.registrations.size(), 1u);
  EXPECT_EQ(catalog_.registrations[0].predecessor_epoch(), 0xa1u);
}

// Rule A6.
TEST_F(CatalogLinkTest, TheOwnEpochIsOnDiskBeforeTheCatalogHearsOfIt) {
  catalog_.silent = true;
  StartLink();

  RunFor(absl::Milliseconds(100));

  EXPECT_EQ(catalog_.calls["Register"], 1);
  EXPECT_EQ(state_.memory().attempted_epoch, address_.epoch);
  EXPECT_EQ(state_.memory().registered_epoch, NodeEpoch::kNone);
}

// Rule A6.
TEST_F(CatalogLinkTest, ASupersededRunStopsForGood) {
  Settle();
  catalog_.FailNext("KeepAlive", absl::AbortedError("a later one runs"));

  RunFor(absl::Seconds(5));
  const int calls = catalog_.calls["Register"];
  RunFor(absl::Minutes(5));

  EXPECT_TRUE(superseded_);
  EXPECT_EQ(link_->state(), State::kSuperseded);
  EXPECT_EQ(catalog_.calls["Register"], calls);
}

// Rule A6.
TEST_F(CatalogLinkTest, ASecondBootOfALiveNodeWaitsAndTriesAgain) {
  for (int i = 0; i < 3; ++i) {
    catalog_.FailNext("Register", absl::AlreadyExistsError("lease runs"));
  }

  Settle();

  EXPECT_FALSE(superseded_);
  EXPECT_EQ(catalog_.calls["Register"], 4);
}

// Rule A7.
TEST_F(CatalogLinkTest, MembershipIsBelievedForSevenEighthsFromBeforeTheCall) {
  Settle();
  ASSERT_TRUE(
      world_.executor()->RunUntil([this] { return !catalog_.beats.empty(); }));
  const BootTime beat_arrived = Now();
  RunFor(absl::Milliseconds(5));

  EXPECT_LE(link_->believed_until(), beat_arrived + absl::Seconds(8.75));
  EXPECT_GT(link_->believed_until(), beat_arrived + absl::Seconds(8.7));
}

TEST_F(CatalogLinkTest, HeartbeatsGoAtAQuarterOfTheLease) {
  Settle();

  RunFor(absl::Seconds(30));

  EXPECT_GE(catalog_.beats.size(), 11u);
  EXPECT_LE(catalog_.beats.size(), 13u);
}

TEST_F(CatalogLinkTest, AHeartbeatThatFailsOnceLosesNothing) {
  Settle();
  catalog_.FailNext("KeepAlive", absl::UnavailableError("a blip"));

  RunFor(absl::Seconds(20));

  EXPECT_EQ(link_->state(), State::kRegistered);
  EXPECT_EQ(catalog_.registrations.size(), 1u);
}

// Rule A7.
TEST_F(CatalogLinkTest, ALeaseWithoutAnswersIsLostBeforeTheCatalogEndsIt) {
  Settle();
  RunFor(absl::Seconds(5));
  catalog_.silent = true;

  RunFor(absl::Seconds(10));

  EXPECT_EQ(link_->state(), State::kAway);
  EXPECT_EQ(link_->believed_until(), BootTime());
}

TEST_F(CatalogLinkTest, AfterAnOutageTheNodeRegistersAndTellsEverythingAnew) {
  Settle();
  Store(granite_, 1);
  catalog_.silent = true;
  RunFor(absl::Minutes(3));
  Store(granite_, 2);
  catalog_.published.clear();
  catalog_.silent = false;

  RunFor(absl::Seconds(10));

  EXPECT_EQ(link_->state(), State::kRegistered);
  EXPECT_EQ(catalog_.registrations.size(), 2u);
  EXPECT_TRUE(Published(1));
  EXPECT_TRUE(Published(2));
}

TEST_F(CatalogLinkTest, TriesDuringAnOutageAreFewAndNotInStep) {
  catalog_.silent = true;
  StartLink();

  RunFor(absl::Minutes(5));

  EXPECT_LE(catalog_.calls["Register"], 150);
  EXPECT_GE(catalog_.calls["Register"], 50);
}

// Not with every try: an outage of minutes would fill the log.
TEST_F(CatalogLinkTest, AnOutageIsLoggedOnceAMinute) {
  catalog_.silent = true;
  StartLink();

  RunFor(absl::Minutes(5));

  const std::vector<std::string> lines =
      absl::StrSplit(lines_.text, '\n', absl::SkipEmpty());
  EXPECT_GE(lines.size(), 4u);
  EXPECT_LE(lines.size(), 6u) << lines_.text;
  EXPECT_THAT(lines, testing::Each(testing::HasSubstr("catalog_link_lost")));
}

// Rule A9.
TEST_F(CatalogLinkTest, ALowerIncarnationIsRefused) {
  NodeMemory memory = state_.memory();
  memory.seen = catalog_.incarnation;
  memory.seen.incarnation += 1;
  ASSERT_OK(state_.Save(memory));
  StartLink();

  RunFor(absl::Seconds(30));

  EXPECT_EQ(link_->state(), State::kRefused);
  EXPECT_THAT(link_->last_failure(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::HasSubstr("accept-restore")));
  EXPECT_TRUE(catalog_.batches.empty());
}

// Rule A9.
TEST_F(CatalogLinkTest, AnotherCatalogOfTheSameIncarnationIsRefused) {
  NodeMemory memory = state_.memory();
  memory.seen = catalog_.incarnation;
  memory.seen.random_id.bytes[0] ^= 1;
  ASSERT_OK(state_.Save(memory));
  StartLink();

  RunFor(absl::Seconds(30));

  EXPECT_EQ(link_->state(), State::kRefused);
}

// Rule A9.
TEST_F(CatalogLinkTest, TheHighestIncarnationSeenIsRemembered) {
  Settle();
  catalog_.incarnation.sequence = 999;

  RunFor(absl::Seconds(5));

  EXPECT_EQ(state_.memory().seen, catalog_.incarnation);
}

// Rule A9: the catalog compares it with what it has been.
TEST_F(CatalogLinkTest, EveryHeartbeatSaysTheHighestIncarnationSeen) {
  Settle();
  catalog_.incarnation.sequence = 999;

  RunFor(absl::Seconds(6));

  ASSERT_GE(catalog_.beats.size(), 2u);
  EXPECT_EQ(catalog_.beats.back().seen().sequence(), 999u);
  EXPECT_EQ(catalog_.beats.back().seen().incarnation(),
            catalog_.incarnation.incarnation);
}

// Rule A9: as a catalog says that was restored.
TEST_F(CatalogLinkTest, ARefusedHeartbeatEndsTheMembership) {
  Settle();
  const absl::Status refused = absl::FailedPreconditionError("accept-restore");
  catalog_.FailNext("KeepAlive", refused);
  for (int i = 0; i < 100; ++i) catalog_.FailNext("Register", refused);

  RunFor(absl::Seconds(20));

  EXPECT_EQ(link_->state(), State::kRefused);
  EXPECT_EQ(link_->believed_until(), BootTime());
}

// Rule A9: a running catalog is replaced by a restored one.
TEST_F(CatalogLinkTest, ACatalogThatFallsBackBetweenHeartbeatsIsRefused) {
  Settle();
  RunFor(absl::Seconds(5));
  catalog_.incarnation.sequence -= 5;

  RunFor(absl::Seconds(5));

  EXPECT_NE(link_->state(), State::kRegistered);
}

TEST_F(CatalogLinkTest, ACatalogOfAnotherClusterIsRefused) {
  SeededRandom random(5);
  catalog_.answers_as = ClusterId::Make(&random);
  StartLink();

  RunFor(absl::Seconds(5));

  EXPECT_EQ(link_->state(), State::kRefused);
  EXPECT_TRUE(catalog_.batches.empty());
}

TEST_F(CatalogLinkTest, ANodeStateThatCannotBeSavedDelaysTheRegistration) {
  state_.failure = absl::InternalError("disk full");
  StartLink();
  RunFor(absl::Seconds(5));
  ASSERT_EQ(catalog_.calls["Register"], 0);
  state_.failure = absl::OkStatus();

  RunFor(absl::Seconds(5));

  EXPECT_EQ(link_->state(), State::kRegistered);
}

// Rule A9: should it die, the next run would believe an older catalog.
TEST_F(CatalogLinkTest, WhoCannotSaveWhatItHasSeenIsNoMemberAfterItsLease) {
  StartLink();
  RunFor(absl::Seconds(5));
  ASSERT_EQ(link_->state(), State::kRegistered);
  state_.failure = absl::InternalError("disk full");
  ++catalog_.incarnation.sequence;

  RunFor(absl::Seconds(12));
  EXPECT_NE(link_->state(), State::kRegistered);
  state_.failure = absl::OkStatus();
  RunFor(absl::Seconds(10));

  EXPECT_EQ(link_->state(), State::kRegistered);
  EXPECT_EQ(state_.memory().seen.sequence, catalog_.incarnation.sequence);
}

// Rule C4: changes during an outage are in no heartbeat.
TEST_F(CatalogLinkTest, KnownNamespacesAreAskedForAnewAtEveryRegistration) {
  namespaces_.Learn({granite_});
  catalog_.Clear(granite_.name_space);

  Settle();

  bool asked = false;
  namespaces_.Find({.tenant = alice_}, granite_.name_space, ClearEpoch{2},
                   In(absl::Seconds(1)), [&](NamespaceCache::Answer answer) {
                     asked = std::holds_alternative<PoolNamespace>(answer);
                   });
  EXPECT_TRUE(asked);
}

// Rule C2.
TEST_F(CatalogLinkTest, AClearReachesThePoolWithTheNextHeartbeat) {
  namespaces_.Learn({granite_});
  Store(granite_, 1);
  Settle();
  ASSERT_TRUE(Holds(granite_, 1));
  catalog_.Clear(granite_.name_space);

  RunFor(absl::Seconds(3));

  NamespaceFacts now = granite_;
  now.clear_epoch = ClearEpoch{2};
  EXPECT_FALSE(Holds(now, 1));
}

TEST_F(CatalogLinkTest, CopiesThatTheCatalogWantsGoneGoAndAreAcknowledged) {
  const Generation generation = Store(granite_, 1);
  Store(granite_, 2);
  Settle();
  catalog_.removals = {{{granite_.name_space, KeyOf(1)}, generation}};

  RunFor(absl::Seconds(3));

  EXPECT_FALSE(Holds(granite_, 1));
  EXPECT_TRUE(Holds(granite_, 2));
  EXPECT_EQ(catalog_.removals_done, 1u);
  EXPECT_FALSE(Published(1));
}

// --- Announcements.

// Rule A4.
TEST_F(CatalogLinkTest, ARegistrationBeginsWithTheWholeInventory) {
  for (std::uint64_t n = 0; n < 20; ++n) Store(granite_, n);

  Settle();

  using Kind = v1::AnnounceRequest;
  ASSERT_GE(catalog_.batches.size(), 3u);
  EXPECT_EQ(catalog_.batches.front().kind, Kind::INVENTORY_BEGIN);
  EXPECT_EQ(catalog_.batches.back().kind, Kind::INVENTORY_END);
  EXPECT_EQ(catalog_.published.size(), 20u);
}

// Rules A2 and A4.
TEST_F(CatalogLinkTest, WhatHappensDuringAnInventoryIsToldAfterIt) {
  for (std::uint64_t n = 0; n < 20; ++n) Store(granite_, n);
  StartLink();
  ASSERT_TRUE(world_.executor()->RunUntil(
      [this] { return catalog_.batches.size() == 1; }));
  const BlockKey gone = KeyOf(3);
  pool_->Remove(granite_.name_space, {&gone, 1});
  Store(granite_, 77);

  RunFor(absl::Seconds(1));

  EXPECT_FALSE(Published(3));
  EXPECT_TRUE(Published(77));
  EXPECT_EQ(catalog_.published.size(), 20u);
  EXPECT_EQ(catalog_.refusals, 0);
}

// Rule A1.
TEST_F(CatalogLinkTest, BatchesAreNumberedWithoutGaps) {
  Settle();
  for (std::uint64_t n = 0; n < 30; ++n) {
    Store(granite_, n);
    RunFor(absl::Milliseconds(7));
  }

  for (std::size_t i = 0; i < catalog_.batches.size(); ++i) {
    EXPECT_EQ(catalog_.batches[i].number, i + 1);
  }
  EXPECT_EQ(catalog_.published.size(), 30u);
}

TEST_F(CatalogLinkTest, ABurstGoesAsOneBatch) {
  Settle();
  const std::size_t before = catalog_.batches.size();

  for (std::uint64_t n = 0; n < 50; ++n) Store(granite_, n);
  RunFor(absl::Seconds(1));

  EXPECT_EQ(catalog_.batches.size(), before + 1);
  EXPECT_EQ(catalog_.batches.back().entries, 50u);
}

// Rule A2.
TEST_F(CatalogLinkTest, EventsOfOneBlockGoInTheOrderInWhichTheyHappened) {
  Settle();
  Store(granite_, 1);
  const BlockKey key = KeyOf(1);
  pool_->Remove(granite_.name_space, {&key, 1});
  const Generation second = Store(granite_, 1);

  RunFor(absl::Seconds(1));

  const auto& operations = catalog_.batches.back().operations;
  ASSERT_EQ(operations.size(), 3u);
  EXPECT_EQ(operations[0].second, 1);
  EXPECT_EQ(operations[1].second, 2);
  EXPECT_EQ(operations[2].second, 1);
  EXPECT_EQ((catalog_.published[{granite_.name_space, key}]), second);
}

// Rule A1: neither lost nor applied twice.
TEST_F(CatalogLinkTest, ABatchWhoseAnswerWasLostIsSentAgainAsItWas) {
  Settle();
  catalog_.loses_answers = true;
  Store(granite_, 1);
  RunFor(absl::Seconds(1));
  ASSERT_TRUE(Published(1));
  Store(granite_, 2);
  catalog_.loses_answers = false;

  RunFor(absl::Seconds(5));

  EXPECT_GE(catalog_.repeats, 1);
  EXPECT_EQ(catalog_.refusals, 0);
  EXPECT_TRUE(Published(2));
  EXPECT_EQ(catalog_.registrations.size(), 1u);
}

// Rule A1.
TEST_F(CatalogLinkTest, AfterAGapTheNodeRegistersAnew) {
  Settle();
  catalog_.FailNext("Announce", absl::FailedPreconditionError("a gap"));
  Store(granite_, 1);

  RunFor(absl::Seconds(2));

  EXPECT_EQ(catalog_.registrations.size(), 2u);
  EXPECT_EQ(link_->state(), State::kRegistered);
  EXPECT_TRUE(Published(1));
}

TEST_F(CatalogLinkTest, ACatalogThatForgotTheRegistrationGetsANewOne) {
  Settle();
  Store(granite_, 1);
  catalog_.ForgetRegistration();

  RunFor(absl::Seconds(5));

  EXPECT_EQ(catalog_.registrations.size(), 2u);
  EXPECT_TRUE(Published(1));
}

// Rule C2: a refused copy must go.
TEST_F(CatalogLinkTest, ARefusedEntryDropsTheCopyAndNothingElse) {
  Settle();
  catalog_.refused[KeyOf(1)] = Outcome::kCleared;
  Store(granite_, 1);
  Store(granite_, 2);

  RunFor(absl::Seconds(1));

  EXPECT_FALSE(Holds(granite_, 1));
  EXPECT_TRUE(Holds(granite_, 2));
  EXPECT_TRUE(Published(2));
  EXPECT_EQ(catalog_.registrations.size(), 1u);
}

TEST_F(CatalogLinkTest, AFullLogIsReplacedByAnInventory) {
  // A pool of its own, whose events go to a small log.
  AnnouncementLog small({.max_entries = 8, .batch = 8}, executor());
  StartLink(&small);
  ASSERT_TRUE(world_.executor()->RunUntil([this] { return link_->settled(); }));
  catalog_.silent = true;
  for (std::uint64_t n = 0; n < 9; ++n) {
    SlotHeader header;
    header.block = {granite_.name_space, KeyOf(n)};
    header.clear_epoch = granite_.clear_epoch;
    header.generation = Generation{n + 1};
    header.length = 4096;
    small.OnPublished(header);
  }
  ASSERT_TRUE(small.overflowed());
  catalog_.silent = false;

  RunFor(absl::Seconds(2));

  EXPECT_EQ(link_->announcer_counters().inventories.value(), 2u);
  EXPECT_FALSE(small.overflowed());
  EXPECT_EQ(catalog_.refusals, 0);
  StopLink();
}

// --- wait_for published.

TEST_F(CatalogLinkTest, AWaiterIsToldOnceTheCatalogKnowsItsBlock) {
  Settle();
  Store(granite_, 1);

  EXPECT_EQ(WaitPublished(1, absl::Seconds(5)),
            std::vector<Outcome>{Outcome::kStored});

  EXPECT_TRUE(Published(1));
}

TEST_F(CatalogLinkTest, ABlockThatIsLongKnownIsNotWaitedFor) {
  Settle();
  Store(granite_, 1);
  RunFor(absl::Seconds(1));
  const BootTime before = Now();

  EXPECT_EQ(WaitPublished(1, absl::Seconds(5)),
            std::vector<Outcome>{Outcome::kStored});

  EXPECT_EQ(Now(), before);
}

TEST_F(CatalogLinkTest, AWaiterOfARefusedBlockIsToldWhy) {
  Settle();
  catalog_.refused[KeyOf(1)] = Outcome::kCleared;
  Store(granite_, 1);

  EXPECT_EQ(WaitPublished(1, absl::Seconds(5)),
            std::vector<Outcome>{Outcome::kCleared});
}

TEST_F(CatalogLinkTest, AWaiterTimesOutWhileTheCatalogIsAway) {
  Settle();
  catalog_.silent = true;
  Store(granite_, 1);

  EXPECT_EQ(WaitPublished(1, absl::Seconds(1)),
            std::vector<Outcome>{Outcome::kTimedOut});
}

TEST_F(CatalogLinkTest, AWaiterLivesThroughANewRegistration) {
  Settle();
  catalog_.silent = true;
  Store(granite_, 1);
  std::vector<Outcome> got;
  link_->WaitPublished({{granite_.name_space, KeyOf(1)}}, In(absl::Minutes(2)),
                       [&](std::vector<Outcome> outcomes) { got = outcomes; });
  RunFor(absl::Seconds(30));
  ASSERT_EQ(link_->state(), State::kAway);
  catalog_.silent = false;

  RunFor(absl::Seconds(10));

  EXPECT_EQ(got, std::vector<Outcome>{Outcome::kStored});
}

// Rule S9.
TEST_F(CatalogLinkTest, ABlockThatWentBeforeItWasToldIsCongested) {
  Settle();
  catalog_.silent = true;
  Store(granite_, 1);
  std::vector<Outcome> got;
  link_->WaitPublished({{granite_.name_space, KeyOf(1)}}, In(absl::Minutes(2)),
                       [&](std::vector<Outcome> outcomes) { got = outcomes; });
  RunFor(absl::Seconds(30));
  const BlockKey key = KeyOf(1);
  pool_->Remove(granite_.name_space, {&key, 1});
  catalog_.silent = false;

  RunFor(absl::Seconds(10));

  EXPECT_EQ(got, std::vector<Outcome>{Outcome::kCongested});
}

TEST_F(CatalogLinkTest, StoppingCancelsWhoWaits) {
  Settle();
  catalog_.silent = true;
  Store(granite_, 1);
  std::vector<Outcome> got;
  link_->WaitPublished({{granite_.name_space, KeyOf(1)}}, In(absl::Minutes(2)),
                       [&](std::vector<Outcome> outcomes) { got = outcomes; });

  link_->Stop();

  EXPECT_EQ(got, std::vector<Outcome>{Outcome::kCancelled});
}

}  // namespace
}  // namespace firnkv
