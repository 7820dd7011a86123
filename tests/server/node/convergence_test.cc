// What a cut from the catalog costs, and how catalog and node find together
// again: registrations that are kept, digests, repairs (rules A1 to A5).

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/copy_digest.h"
#include "tests/server/node/link_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using State = CatalogLink::State;
using Kind = v1::AnnounceRequest;

class ConvergenceTest : public LinkFixture {
 protected:
  ConvergenceTest() { catalog_.keeps = true; }

  void StoreMany(std::uint64_t count) {
    for (std::uint64_t n = 0; n < count; ++n) Store(granite_, n);
  }
  // `count` blocks are announced and nothing is under way.
  void SettleWith(std::uint64_t count) {
    StoreMany(count);
    Settle();
    RunFor(absl::Seconds(1));
    ASSERT_TRUE(Agree());
  }
  void Remove(std::uint64_t n) {
    const BlockKey key = KeyOf(n);
    pool_->Remove(granite_.name_space, {&key, 1});
  }
  BlockId IdOf(std::uint64_t n) const {
    return {granite_.name_space, KeyOf(n)};
  }
  // Longer than the lease.
  void CutFor(absl::Duration time) {
    catalog_.silent = true;
    RunFor(time);
    ASSERT_EQ(link_->state(), State::kAway);
  }
  void Heal() {
    catalog_.silent = false;
    catalog_.loses_answers = false;
    RunFor(absl::Seconds(5));
    ASSERT_EQ(link_->state(), State::kRegistered);
  }
  // The catalog knows exactly what the pool has.
  bool Agree() const {
    std::map<BlockId, Generation> resident;
    std::uint32_t cursor = 0;
    while (pool_->EachResident(&cursor, 4096, [&](const SlotHeader& header) {
      resident[header.block] = header.generation;
    })) {
    }
    return catalog_.published == resident;
  }
  std::size_t BatchesOf(Kind::Kind kind) const {
    std::size_t count = 0;
    for (const auto& one : catalog_.batches) count += one.kind == kind ? 1 : 0;
    return count;
  }
  const Announcer::Counters& counters() const {
    return link_->announcer_counters();
  }
};

TEST_F(ConvergenceTest, ANodeThatIsWrittenToGathersWhatItTells) {
  SettleWith(1);
  const std::size_t before = BatchesOf(Kind::EVENTS);

  // One after the other: each would find the batch before it answered.
  for (std::uint64_t n = 100; n < 200; ++n) {
    Store(granite_, n);
    RunFor(absl::Microseconds(200));
  }
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(Agree());
  // 20 ms, with 2 ms between a batch's answer and the next one.
  EXPECT_LE(BatchesOf(Kind::EVENTS) - before, 12u);
}

TEST_F(ConvergenceTest, WhatIsWaitedForIsNotGathered) {
  announcer_options_.gather = absl::Seconds(10);
  SettleWith(1);
  Store(granite_, 100);
  RunFor(absl::Milliseconds(100));
  ASSERT_TRUE(Published(100));
  Store(granite_, 101);
  RunFor(absl::Seconds(1));
  ASSERT_FALSE(Published(101)) << "it gathers";

  EXPECT_THAT(WaitPublished(101, absl::Seconds(1)),
              ElementsAre(Outcome::kStored));
}

TEST_F(ConvergenceTest, AFullBatchIsNotGathered) {
  announcer_options_.gather = absl::Seconds(10);
  announcer_options_.batch = 8;
  SettleWith(1);
  Store(granite_, 100);
  RunFor(absl::Milliseconds(100));

  for (std::uint64_t n = 200; n < 250; ++n) Store(granite_, n);
  RunFor(absl::Milliseconds(100));

  EXPECT_GE(catalog_.published.size(), 49u);
}

// Rule A1.
TEST_F(ConvergenceTest, ACutShorterThanTheLeaseCostsNoUnchangedKey) {
  SettleWith(200);
  catalog_.silent = true;
  for (std::uint64_t n = 1000; n < 1003; ++n) Store(granite_, n);
  RunFor(absl::Seconds(4));
  catalog_.silent = false;

  RunFor(absl::Seconds(5));

  EXPECT_EQ(catalog_.registrations.size(), 1u);
  EXPECT_EQ(catalog_.entries(), 203u);
  EXPECT_TRUE(Agree());
}

// Rule A3: what was announced was hidden, not removed.
TEST_F(ConvergenceTest, AKeptRegistrationIsToldOnlyWhatHappenedMeanwhile) {
  SettleWith(200);
  CutFor(absl::Seconds(30));
  for (std::uint64_t n = 1000; n < 1003; ++n) Store(granite_, n);
  Remove(7);

  Heal();

  EXPECT_EQ(catalog_.registrations.size(), 2u);
  EXPECT_EQ(catalog_.entries(), 204u);
  EXPECT_EQ(counters().inventories.value(), 1u);
  EXPECT_EQ(counters().resumed.value(), 1u);
  EXPECT_TRUE(Agree());
}

TEST_F(ConvergenceTest, AKeptRegistrationOfAQuietNodeCostsNoKeyAtAll) {
  SettleWith(200);
  CutFor(absl::Minutes(5));

  Heal();

  EXPECT_EQ(catalog_.entries(), 200u);
  EXPECT_GE(catalog_.calls["CompareDigests"], 1);
  EXPECT_TRUE(Agree());
}

// Rules A1 and A2: told twice, they change nothing.
TEST_F(ConvergenceTest, EventsThatWereAppliedWithoutAnAnswerAreToldAgain) {
  SettleWith(20);
  catalog_.loses_answers = true;
  Store(granite_, 100);
  Remove(100);
  Store(granite_, 100);
  Store(granite_, 101);
  RunFor(absl::Milliseconds(100));
  ASSERT_TRUE(Published(101));
  Remove(101);
  RunFor(absl::Seconds(30));
  ASSERT_EQ(link_->state(), State::kAway);

  Heal();

  EXPECT_EQ(counters().inventories.value(), 1u);
  EXPECT_EQ(catalog_.refusals, 0);
  EXPECT_EQ(counters().repaired_entries.value(), 0u);
  EXPECT_TRUE(Agree());
}

TEST_F(ConvergenceTest, ACatalogThatKeptNothingGetsAnInventory) {
  SettleWith(20);
  catalog_.keeps = false;
  CutFor(absl::Seconds(30));
  catalog_.published.clear();

  Heal();

  EXPECT_EQ(counters().inventories.value(), 2u);
  EXPECT_TRUE(Agree());
}

// Rule A4: the catalog may have its end and keep it, the node does not know.
TEST_F(ConvergenceTest, AnInventoryWhoseEndWasNotAnsweredIsNotGoneOnWith) {
  StoreMany(20);
  StartLink();
  ASSERT_TRUE(world_.executor()->RunUntil(
      [this] { return catalog_.batches.size() == 2; }));
  catalog_.loses_answers = true;
  RunFor(absl::Seconds(30));
  ASSERT_EQ(BatchesOf(Kind::INVENTORY_END), 1u);

  Heal();

  EXPECT_EQ(counters().inventories.value(), 2u);
  EXPECT_EQ(counters().resumed.value(), 0u);
  EXPECT_EQ(catalog_.refusals, 0);
  EXPECT_TRUE(Agree());
}

// Rule A5: a power cut took batches that had been answered.
TEST_F(ConvergenceTest, WhatAKeptCatalogLostIsMendedAtOnce) {
  SettleWith(400);
  const Generation gone = catalog_.published[IdOf(5)];
  Remove(5);
  RunFor(absl::Seconds(1));
  // Two publishes and a withdrawal never were.
  catalog_.published.erase(IdOf(1));
  catalog_.published.erase(IdOf(2));
  catalog_.published[IdOf(5)] = gone;
  catalog_.ForgetRegistration();

  RunFor(absl::Seconds(4));

  EXPECT_TRUE(Agree());
  EXPECT_EQ(counters().inventories.value(), 1u);
  EXPECT_EQ(counters().repaired_buckets.value(), 3u);
  EXPECT_LE(counters().repaired_entries.value(), 8u);
  EXPECT_EQ(catalog_.refusals, 0);
}

TEST_F(ConvergenceTest, ALogThatOverflowedInACutIsReplacedByAnInventory) {
  AnnouncementLog small({.max_entries = 8, .batch = 8}, executor());
  StartLink(&small);
  ASSERT_TRUE(world_.executor()->RunUntil([this] { return link_->settled(); }));
  CutFor(absl::Seconds(30));
  for (std::uint64_t n = 0; n < 9; ++n) {
    SlotHeader header;
    header.block = IdOf(n);
    header.generation = Generation{n + 1};
    header.length = 4096;
    small.OnPublished(header);
  }
  ASSERT_TRUE(small.overflowed());

  Heal();

  EXPECT_EQ(counters().inventories.value(), 2u);
  EXPECT_EQ(counters().resumed.value(), 0u);
  StopLink();
}

TEST_F(ConvergenceTest, AWaiterIsToldAfterAKeptRegistration) {
  SettleWith(20);
  CutFor(absl::Seconds(30));
  Store(granite_, 100);
  std::vector<Outcome> got;
  link_->WaitPublished({IdOf(100)}, In(absl::Minutes(1)),
                       [&](std::vector<Outcome> outcomes) { got = outcomes; });
  // Was told before the cut; nothing is told of it any more.
  std::vector<Outcome> known;
  link_->WaitPublished(
      {IdOf(3)}, In(absl::Minutes(1)),
      [&](std::vector<Outcome> outcomes) { known = outcomes; });

  Heal();

  EXPECT_EQ(got, std::vector<Outcome>{Outcome::kStored});
  EXPECT_EQ(known, std::vector<Outcome>{Outcome::kStored});
}

// --- The look every minute. Rule A5.

TEST_F(ConvergenceTest, WhatDiffersTwiceIsMended) {
  SettleWith(400);
  catalog_.published.erase(IdOf(1));
  catalog_.published[IdOf(7777)] = Generation{1};

  RunFor(absl::Minutes(2));

  EXPECT_TRUE(Agree());
  EXPECT_EQ(catalog_.registrations.size(), 1u);
  EXPECT_EQ(counters().inventories.value(), 1u);
  EXPECT_EQ(BatchesOf(Kind::REPAIR), 1u);
  EXPECT_EQ(counters().different_buckets.value(), 2u);
}

TEST_F(ConvergenceTest, WhatDiffersOnceIsLeftAlone) {
  SettleWith(400);
  const Generation generation = catalog_.published[IdOf(1)];
  catalog_.published.erase(IdOf(1));
  ASSERT_TRUE(world_.executor()->RunUntil(
      [this] { return catalog_.calls["CompareDigests"] == 2; }));
  catalog_.published[IdOf(1)] = generation;

  RunFor(absl::Minutes(3));

  EXPECT_EQ(BatchesOf(Kind::REPAIR), 0u);
  EXPECT_GE(catalog_.calls["CompareDigests"], 4);
}

TEST_F(ConvergenceTest, WhatAgreesCostsOneCallAMinuteAndNoKey) {
  SettleWith(400);

  RunFor(absl::Minutes(10));

  EXPECT_GE(catalog_.calls["CompareDigests"], 8);
  EXPECT_LE(catalog_.calls["CompareDigests"], 14);
  EXPECT_EQ(catalog_.entries(), 400u);
}

// A kStaleLocation: the catalog names a copy that is not here.
TEST_F(ConvergenceTest, AReaderWhoMissesBringsTheNextLookForward) {
  SettleWith(100);
  catalog_.published[IdOf(7777)] = Generation{1};
  RunFor(absl::Seconds(1));
  for (int i = 0; i < 100; ++i) link_->OnRemoteMiss();

  RunFor(absl::Seconds(25));

  EXPECT_TRUE(Agree());
  // Two looks of two calls each: many misses are one.
  EXPECT_EQ(catalog_.calls["CompareDigests"], 4);
}

// Rule A5: neither removes a live entry nor revives a dead one.
TEST_F(ConvergenceTest, WhatHappensDuringARepairIsToldAfterIt) {
  // Four blocks of one bucket: one that is repaired, one that leaves while the
  // repair is under way, one that comes, and one that does both.
  std::vector<std::uint64_t> twins = {0};
  for (std::uint64_t n = 1; twins.size() < 4; ++n) {
    if (CopyBucket(KeyOf(n)) == CopyBucket(KeyOf(0))) twins.push_back(n);
  }
  for (const std::uint64_t stored : {twins[0], twins[1], twins[3]}) {
    Store(granite_, stored);
  }
  Settle();
  RunFor(absl::Seconds(1));
  catalog_.published.erase(IdOf(twins[0]));
  catalog_.ForgetRegistration();
  ASSERT_TRUE(world_.executor()->RunUntil(
      [this] { return catalog_.calls["CompareDigests"] == 2; }));
  // Untold when the pool is read.
  Remove(twins[3]);
  Store(granite_, twins[3]);
  Remove(twins[0]);
  Store(granite_, twins[0]);
  ASSERT_TRUE(world_.executor()->RunUntil(
      [this] { return BatchesOf(Kind::REPAIR) == 1; }));
  // It is applied, its answer on the way.
  Remove(twins[1]);
  Store(granite_, twins[2]);
  Remove(twins[3]);
  const Generation second = Store(granite_, twins[3]);

  RunFor(absl::Seconds(1));

  EXPECT_TRUE(Agree());
  EXPECT_EQ(catalog_.published[IdOf(twins[3])], second);
  EXPECT_EQ(BatchesOf(Kind::REPAIR), 1u);
}

TEST_F(ConvergenceTest, WhatDiffersInTooManyBucketsIsToldByAnInventory) {
  announcer_options_.digests.most_buckets = 5;
  SettleWith(100);
  for (std::uint64_t n = 0; n < 10; ++n) catalog_.published.erase(IdOf(n));
  catalog_.ForgetRegistration();

  RunFor(absl::Seconds(5));

  EXPECT_TRUE(Agree());
  EXPECT_EQ(counters().inventories.value(), 2u);
  EXPECT_EQ(BatchesOf(Kind::REPAIR), 0u);
  EXPECT_EQ(catalog_.registrations.size(), 2u);
  EXPECT_EQ(catalog_.refusals, 0);
}

TEST_F(ConvergenceTest, ABucketOfMoreThanABatchIsToldByAnInventory) {
  announcer_options_.batch = 2;
  std::vector<std::uint64_t> twins = {0};
  for (std::uint64_t n = 1; twins.size() < 3; ++n) {
    if (CopyBucket(KeyOf(n)) == CopyBucket(KeyOf(0))) twins.push_back(n);
  }
  for (const std::uint64_t stored : twins) Store(granite_, stored);
  Settle();
  RunFor(absl::Seconds(1));
  catalog_.published.erase(IdOf(0));
  catalog_.ForgetRegistration();

  RunFor(absl::Seconds(5));

  EXPECT_TRUE(Agree());
  EXPECT_EQ(BatchesOf(Kind::REPAIR), 0u);
  EXPECT_EQ(counters().inventories.value(), 2u);
}

TEST_F(ConvergenceTest, ManyBucketsAreMendedByMoreThanOneBatch) {
  SettleWith(1000);
  for (std::uint64_t n = 0; n < 300; ++n) catalog_.published.erase(IdOf(n));
  catalog_.ForgetRegistration();

  RunFor(absl::Seconds(5));

  EXPECT_TRUE(Agree());
  EXPECT_GE(BatchesOf(Kind::REPAIR), 300 / kMaxRepairBuckets);
  EXPECT_EQ(counters().inventories.value(), 1u);
}

TEST_F(ConvergenceTest, ACatalogThatLoadsIsAskedAgain) {
  SettleWith(100);
  catalog_.published.erase(IdOf(1));
  catalog_.loading = true;
  catalog_.ForgetRegistration();
  RunFor(absl::Seconds(10));
  ASSERT_FALSE(Published(1));
  catalog_.loading = false;

  RunFor(absl::Seconds(2));

  EXPECT_TRUE(Agree());
}

TEST_F(ConvergenceTest, ACatalogThatCannotCompareKeepsTheRegistration) {
  SettleWith(100);
  for (int i = 0; i < 3; ++i) {
    catalog_.FailNext("CompareDigests", absl::UnimplementedError("an old one"));
  }

  RunFor(absl::Minutes(3));

  EXPECT_EQ(catalog_.registrations.size(), 1u);
  EXPECT_EQ(link_->state(), State::kRegistered);
}

TEST_F(ConvergenceTest, WhileClearedCopiesAreSweptNothingIsCompared) {
  SettleWith(100);
  // Of another namespace, so that the sweep changes nothing else.
  const NamespaceFacts other = catalog_.AddNamespace("alice");
  Store(other, 1);
  RunFor(absl::Seconds(1));
  pool_->SetClearEpoch(other.name_space, ClearEpoch{2});
  catalog_.published.erase({other.name_space, KeyOf(1)});

  RunFor(absl::Minutes(5));
  EXPECT_EQ(catalog_.calls["CompareDigests"], 0);
  pool_->Sweep(100'000);
  RunFor(absl::Minutes(3));

  EXPECT_GE(catalog_.calls["CompareDigests"], 1);
  EXPECT_EQ(BatchesOf(Kind::REPAIR), 0u);
}

}  // namespace
}  // namespace firnkv
