// A node that comes back in its grace, digests of what the catalog has of it,
// and repairs: how the two agree again after anything that comes between them.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/catalog/catalog_fixture.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ConvergenceTest : public CatalogFixture {
 protected:
  ConvergenceTest() { LoadIndex(); }

  // What the node itself would compare with.
  BucketSums SumsOf(const std::vector<Said>& copies) {
    BucketSums sums;
    for (const Said& one : copies) {
      sums.Add({.name_space = one.name_space->name_space, .key = Key(one.key)},
               one.tier, Generation{one.generation});
    }
    return sums;
  }
  std::uint64_t GenerationOf(std::uint64_t key) {
    const Locator::Answer answer = Locate(ns_, {key});
    return answer.copies.empty()
               ? 0
               : static_cast<std::uint64_t>(answer.copies[0].generation);
  }
  absl::Duration Lease() { return life_->membership.lease(); }

  NamespaceFacts ns_ = MakeNamespace("granite");
  NamespaceFacts other_ = MakeNamespace("granite", "other");
  Member node_ = Join(1, 100);
};

// Rule A3: what was hidden counts again, by one write that names no entry.
TEST_F(ConvergenceTest, ARunThatComesBackInItsGraceKeepsItsEntries) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}, {&ns_, 2, 2}, {&other_, 3, 3}}));
  Pass(Lease() + absl::Minutes(14));
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kUnavailable);
  const std::uint64_t writes = store_.writes();

  const Member back = Register(1, 100);

  EXPECT_EQ(store_.writes(), writes + 1);
  EXPECT_TRUE(back.kept);
  EXPECT_EQ(back.kept_registration, node_.registration);
  EXPECT_EQ(back.kept_applied, node_.number);
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(ns_, 2), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(other_, 3), Outcome::kHit);
}

// Rule A4: its inventory has ended, so events need no other one.
TEST_F(ConvergenceTest, EventsGoOnInAKeptRegistration) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));
  Member back = Register(1, 100);
  ASSERT_TRUE(back.kept);

  ASSERT_OK(
      Send(&back, {{&ns_, 2, 2}, {&ns_, 1, 1, EntryOperation::kWithdraw}}));

  EXPECT_EQ(back.number, 1u);
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kMiss);
  EXPECT_EQ(OutcomeOf(ns_, 2), Outcome::kHit);
  // And the old registration is over.
  EXPECT_FALSE(Send(&node_, {{&ns_, 3, 3}}).ok());
}

// Its answer may have been lost: the node knows the one before it.
TEST_F(ConvergenceTest, ARegistrationWithoutBatchesIsForgottenByTheNext) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));

  Register(1, 100);
  Register(1, 100);
  Restart();
  Member back = Register(1, 100);

  EXPECT_TRUE(back.kept);
  EXPECT_EQ(back.kept_registration, node_.registration);
  EXPECT_EQ(back.kept_applied, node_.number);
  ASSERT_OK(Send(&back, {{&ns_, 2, 2}}));
  const Member later = Register(1, 100);
  EXPECT_EQ(later.kept_registration, back.registration);
  EXPECT_EQ(later.kept_applied, 1u);
}

TEST_F(ConvergenceTest, AnInventoryThatHasNotEndedIsBegunAnew) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryPart, {{&ns_, 1, 1}}));

  Member back = Register(1, 100);

  EXPECT_FALSE(back.kept);
  EXPECT_FALSE(Send(&back, {{&ns_, 2, 2}}).ok());
}

TEST_F(ConvergenceTest, AnotherRunKeepsNothing) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));

  const Member next = Register(1, 101, /*predecessor=*/100);

  EXPECT_FALSE(next.kept);
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kMiss);
}

// Rule A3.
TEST_F(ConvergenceTest, AReapedRunKeepsNothing) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));
  Pass(Lease() + absl::Minutes(15));
  ASSERT_OK(life_->membership.Reap(overdue_.at(0)));

  const Member back = Register(1, 100);

  EXPECT_FALSE(back.kept);
  EXPECT_EQ(back.kept_applied, 0u);
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kMiss);
}

// Rule A1: the node learns how much the power cut has taken.
TEST_F(ConvergenceTest, AfterAPowerCutARunIsKeptUpToWhatIsThere) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));
  const std::uint64_t durable = node_.number;
  // A synced write, of another thing, keeps all before it.
  MakeNamespace("another");
  ASSERT_OK(Send(&node_, {{&ns_, 2, 2}}));
  store_.PowerCut(nullptr);
  Restart();
  ASSERT_THAT(KeepAlive(node_), StatusIs(absl::StatusCode::kNotFound));

  const Member back = Register(1, 100);

  EXPECT_TRUE(back.kept);
  EXPECT_EQ(back.kept_registration, node_.registration);
  EXPECT_EQ(back.kept_applied, durable);
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(ns_, 2), Outcome::kMiss);
}

// Rule A5.
TEST_F(ConvergenceTest, DigestsFollowEveryChange) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}, {&other_, 1, 2}, {&ns_, 2, 3}}));
  EXPECT_EQ(Digests(node_),
            SumsOf({{&ns_, 1, 1}, {&other_, 1, 2}, {&ns_, 2, 3}}));

  ASSERT_OK(Send(&node_, {{&ns_, 1, 1, EntryOperation::kWithdraw},
                          {&ns_, 2, 4},
                          {&ns_, 2, 5, EntryOperation::kPublish, 4096, 1}}));

  EXPECT_EQ(Digests(node_),
            SumsOf({{&other_, 1, 2},
                    {&ns_, 2, 4},
                    {&ns_, 2, 5, EntryOperation::kPublish, 4096, 1}}));
}

// Rule A5: a copy told twice is there once.
TEST_F(ConvergenceTest, ACopyToldAgainChangesAndWritesNothing) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));
  const BucketSums before = Digests(node_);
  // Whoever writes the entry anew overwrites the mark.
  const std::string key =
      EntryKey({.name_space = ns_.name_space, .key = Key(1)});
  ASSERT_OK(store_.Apply({{Family::kKeys, key, std::string("mark")}},
                         Store::Durability::kLogged));

  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));

  EXPECT_EQ(Digests(node_), before);
  EXPECT_EQ(*store_.Get(Family::kKeys, key), "mark");
}

// Rule A5: an inventory begins from nothing, and others' copies are theirs.
TEST_F(ConvergenceTest, DigestsAreOfOneInventoryOfOneNode) {
  Member other = Join(2, 200);
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}, {&ns_, 2, 2}}));
  ASSERT_OK(Send(&other, {{&ns_, 1, 7}}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryPart, {{&ns_, 2, 2}}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryEnd, {}));

  EXPECT_EQ(Digests(node_), SumsOf({{&ns_, 2, 2}}));
  EXPECT_EQ(Digests(other), SumsOf({{&ns_, 1, 7}}));
  EXPECT_EQ(life_->digests.runs(), 3u);
  life_->digests.DropStale();
  EXPECT_EQ(life_->digests.runs(), 2u);
  EXPECT_EQ(Digests(node_), SumsOf({{&ns_, 2, 2}}));
}

// Rule A5: entries that change on either side of the loader count once.
TEST_F(ConvergenceTest, DigestsAreRightAfterALoadWithChangesInBetween) {
  std::vector<Said> said;
  for (std::uint64_t key = 0; key < 100; ++key) {
    said.push_back({&ns_, key, key + 1});
  }
  ASSERT_OK(Send(&node_, said));
  Restart();
  ASSERT_OK(KeepAlive(node_));
  std::vector<Said> now = said;
  std::uint64_t generation = 1000;
  for (std::size_t i = 0; *life_->entries.LoadStep(10); ++i) {
    EXPECT_FALSE(life_->entries.loaded());
    // Each step touches keys all over the order of the store.
    std::vector<Said> batch;
    for (std::size_t key = i; key < 100; key += 10) {
      if (key % 3 == 0) {
        batch.push_back(
            {&ns_, key, now[key].generation, EntryOperation::kWithdraw});
        now[key].generation = 0;
      } else {
        now[key].generation = ++generation;
        batch.push_back(now[key]);
      }
    }
    batch.push_back({&ns_, 200 + i, ++generation});
    now.push_back(batch.back());
    ASSERT_OK(Send(&node_, batch));
  }

  ASSERT_TRUE(life_->entries.loaded());
  std::erase_if(now, [](const Said& one) { return one.generation == 0; });
  EXPECT_EQ(Digests(node_), SumsOf(now));
}

// Rule A5: the index need not hold it all.
TEST_F(ConvergenceTest, DigestsDoNotDependOnTheIndexsBound) {
  max_index_entries_ = 64;
  Restart();
  ASSERT_OK(KeepAlive(node_));
  LoadIndex();
  std::vector<Said> said;
  for (std::uint64_t key = 0; key < 500; ++key) {
    said.push_back({&ns_, key, key + 1});
  }
  ASSERT_OK(Send(&node_, said));
  EXPECT_EQ(Digests(node_), SumsOf(said));

  Restart();
  ASSERT_OK(KeepAlive(node_));
  LoadIndex();

  ASSERT_FALSE(life_->index.whole());
  EXPECT_EQ(Digests(node_), SumsOf(said));
}

// Rule A5: what is not named goes, what is named comes, all in one write.
TEST_F(ConvergenceTest, ARepairMakesItsBucketsWhatTheNodeHas) {
  ASSERT_OK(Send(&node_,
                 {{&ns_, 1, 1}, {&ns_, 2, 2}, {&ns_, 3, 3}, {&other_, 1, 4}}));
  const std::uint64_t writes = store_.writes();

  ASSERT_OK(Repair(&node_, {1, 2, 5}, {{&ns_, 2, 2}, {&ns_, 5, 5}}));

  EXPECT_EQ(store_.writes(), writes + 1);
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kMiss);
  EXPECT_EQ(OutcomeOf(other_, 1), Outcome::kMiss);
  EXPECT_EQ(OutcomeOf(ns_, 2), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(ns_, 5), Outcome::kHit);
  // In no bucket of the repair.
  EXPECT_EQ(OutcomeOf(ns_, 3), Outcome::kHit);
  EXPECT_EQ(Digests(node_), SumsOf({{&ns_, 2, 2}, {&ns_, 3, 3}, {&ns_, 5, 5}}));
}

// Rule A5: also where the catalog has a higher generation than there is.
TEST_F(ConvergenceTest, ARepairReplacesAWrongGeneration) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 9}, {&ns_, 2, 2}}));

  ASSERT_OK(Repair(&node_, {1, 2}, {{&ns_, 1, 5}, {&ns_, 2, 6}}));

  EXPECT_EQ(GenerationOf(1), 5u);
  EXPECT_EQ(GenerationOf(2), 6u);
  EXPECT_EQ(Digests(node_), SumsOf({{&ns_, 1, 5}, {&ns_, 2, 6}}));
}

// Rule A5: it costs as much as there is, not buckets times namespaces.
TEST_F(ConvergenceTest, ARepairOfManyNamespacesLooksWhereThereIsSomething) {
  constexpr std::size_t kNamespaces = 200;
  std::vector<NamespaceFacts> facts;
  std::vector<Said> said;
  for (std::size_t i = 0; i < kNamespaces; ++i) {
    facts.push_back(MakeNamespace(StrCat("namespace-", i)));
  }
  for (std::size_t i = 0; i < kNamespaces; ++i) {
    said.push_back({.name_space = &facts[i], .key = i, .generation = i + 1});
  }
  ASSERT_OK(Send(&node_, said));
  std::vector<std::uint64_t> keys;
  std::set<std::uint32_t> buckets;
  for (std::uint64_t key = 0; key < kMaxRepairBuckets; ++key) {
    keys.push_back(2 * key);
    buckets.insert(CopyBucket(Key(2 * key)));
  }
  const std::uint64_t scans = store_.scans();

  ASSERT_OK(Repair(&node_, keys, {}));

  EXPECT_LE(store_.scans() - scans, 2 * kNamespaces);
  for (std::size_t i = 0; i < kNamespaces; ++i) {
    const bool named = buckets.contains(CopyBucket(Key(i)));
    EXPECT_EQ(OutcomeOf(facts[i], i), named ? Outcome::kMiss : Outcome::kHit)
        << i;
  }
}

// Rule A5.
TEST_F(ConvergenceTest, ARepairTouchesNobodyElsesCopies) {
  Member other = Join(2, 200);
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}, {&ns_, 2, 2}}));
  ASSERT_OK(Send(&other, {{&ns_, 1, 7}, {&ns_, 2, 8}}));

  ASSERT_OK(Repair(&node_, {1, 2}, {}));

  EXPECT_EQ(Digests(node_), BucketSums());
  EXPECT_EQ(Digests(other), SumsOf({{&ns_, 1, 7}, {&ns_, 2, 8}}));
  EXPECT_EQ(GenerationOf(1), 7u);
  EXPECT_EQ(GenerationOf(2), 8u);
}

// Rule C2: a cleared copy is refused in a repair too, and does not stay.
TEST_F(ConvergenceTest, ARepairBringsNothingClearedBack) {
  const NamespaceFacts before = ns_;
  ASSERT_OK(Send(&node_, {{&before, 1, 1}}));
  Clear(ns_);

  const auto applied =
      Repair(&node_, {1, 2}, {{&before, 1, 1}, {&before, 2, 2}});

  ASSERT_OK(applied);
  EXPECT_EQ(applied->refused,
            (std::vector<RefusedEntry>{{0, Outcome::kCleared},
                                       {1, Outcome::kCleared}}));
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kMiss);
  EXPECT_EQ(Digests(node_), BucketSums());
  EXPECT_EQ(store_.size(Family::kKeys), 0u);
}

// Rule A1: it is numbered as every batch, and repeated with the same answer.
TEST_F(ConvergenceTest, ARepairIsABatchLikeOthers) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}}));
  Member gap = node_;
  ++gap.number;
  EXPECT_THAT(Repair(&gap, {1}, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does not follow")));
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);

  Member again = node_;
  ASSERT_OK(Repair(&node_, {1}, {}));
  ASSERT_OK(Send(&node_, {{&ns_, 1, 2}}));

  EXPECT_FALSE(Repair(&again, {1}, {}).ok());
  EXPECT_EQ(GenerationOf(1), 2u);
}

// Rules A4 and A5.
TEST_F(ConvergenceTest, ARepairNeedsAnInventoryThatHasEnded) {
  Member next = Register(1, 101, /*predecessor=*/100);
  EXPECT_THAT(Repair(&next, {1}, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(Send(&next, BatchKind::kInventoryBegin, {}));
  EXPECT_THAT(Repair(&next, {1}, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Rule A5: until it has read its store the catalog does not know all that it
// has in a bucket.
TEST_F(ConvergenceTest, ARepairWaitsUntilTheStoreIsRead) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}, {&ns_, 2, 2}}));
  Restart();
  ASSERT_OK(KeepAlive(node_));
  EXPECT_THAT(Repair(&node_, {1, 2}, {}),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);
  LoadIndex();

  ASSERT_OK(Repair(&node_, {1, 2}, {}));

  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kMiss);
  EXPECT_EQ(Digests(node_), BucketSums());
}

// Rule A5: a value that the disk has spoiled is found and made good.
TEST_F(ConvergenceTest, ADamagedEntryShowsInTheDigestsAndIsRepaired) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 1}, {&ns_, 2, 2}}));
  ASSERT_OK(store_.Apply(
      {{Family::kKeys, EntryKey({.name_space = ns_.name_space, .key = Key(1)}),
        std::string("rubbish")}},
      Store::Durability::kLogged));
  Restart();
  ASSERT_OK(KeepAlive(node_));
  LoadIndex();
  EXPECT_EQ(Digests(node_), SumsOf({{&ns_, 2, 2}}));

  ASSERT_OK(Repair(&node_, {1}, {{&ns_, 1, 1}}));

  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);
  EXPECT_EQ(Digests(node_), SumsOf({{&ns_, 1, 1}, {&ns_, 2, 2}}));
}

TEST_F(ConvergenceTest, ImpossibleRepairsAreRefusedBeforeTheirTurn) {
  const std::uint32_t bucket = CopyBucket(Key(1));
  const auto check = [&](auto change) {
    AnnouncedBatch batch = BatchOf(node_, BatchKind::kRepair, {{&ns_, 1}});
    batch.buckets = {bucket};
    change(&batch);
    return CheckBatch(batch);
  };
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);

  EXPECT_OK(check([](auto*) {}));
  EXPECT_THAT(check([](auto* b) { b->buckets = {}; }), invalid);
  EXPECT_THAT(check([&](auto* b) { b->buckets = {bucket, bucket}; }), invalid);
  EXPECT_THAT(check([](auto* b) { b->buckets = {kCopyBuckets}; }), invalid);
  EXPECT_THAT(check([&](auto* b) { b->buckets = {bucket ^ 1}; }), invalid);
  EXPECT_THAT(check([](auto* b) {
                b->copies.clear();
                for (std::uint32_t i = 0; i <= kMaxRepairBuckets; ++i) {
                  b->buckets.push_back(i);
                }
                b->buckets.erase(b->buckets.begin());
              }),
              invalid);
  EXPECT_THAT(check([](auto* b) {
                b->copies[0].operation = EntryOperation::kWithdraw;
              }),
              invalid);
  EXPECT_THAT(check([](auto* b) { b->kind = BatchKind::kEvents; }), invalid);
}

}  // namespace
}  // namespace firnkv
