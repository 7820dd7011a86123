// Numbered batches and inventories: what is applied, what is refused, what
// stays after a crash.

#include "server/catalog/announcements.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/catalog/catalog_fixture.h"

namespace firnkv {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class AnnouncementsTest : public CatalogFixture {
 protected:
  NamespaceFacts ns_ = MakeNamespace("granite");
  Member node_ = Join(1, 100);
};

TEST_F(AnnouncementsTest, APublishedCopyIsFoundWithItsNodeAndLabels) {
  ASSERT_OK(Send(&node_, {{&ns_, 7, /*generation=*/42}}));

  const Locator::Answer answer = Locate(ns_, {7});

  ASSERT_EQ(answer.outcomes[0], Outcome::kHit);
  ASSERT_EQ(answer.copies.size(), 1u);
  EXPECT_EQ(answer.copies[0].generation, Generation{42});
  EXPECT_EQ(answer.copies[0].length, 4096u);
  EXPECT_EQ(answer.nodes[answer.copies[0].node], AddressOf(1, 100));
}

// Rule A1.
TEST_F(AnnouncementsTest, ABatchAfterAGapIsRefusedWhole) {
  ++node_.number;

  EXPECT_THAT(Send(&node_, {{&ns_, 7}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does not follow")));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rule A1.
TEST_F(AnnouncementsTest, AnOlderBatchThanTheLastIsNotAppliedAgain) {
  const Member before = node_;
  ASSERT_OK(Send(&node_, {{&ns_, 7}}));
  ASSERT_OK(Send(&node_, {{&ns_, 7, 1, EntryOperation::kWithdraw}}));

  Member replay = before;
  EXPECT_THAT(Send(&replay, {{&ns_, 7}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rule A1: the answer was lost, so the node sends the batch again.
TEST_F(AnnouncementsTest, TheLastBatchRepeatedIsAnsweredAsBefore) {
  NamespaceFacts gone = ns_;
  gone.clear_epoch = ClearEpoch{1};
  Clear(ns_);
  Member again = node_;
  const auto first = Send(&node_, {{&gone, 7}});
  ASSERT_OK(first);

  const auto second = Send(&again, {{&gone, 7}});

  ASSERT_OK(second);
  EXPECT_EQ(second->applied, first->applied);
  EXPECT_EQ(second->refused, first->refused);
  EXPECT_FALSE(second->refused.empty());
}

// Rule A1: also if the catalog was restarted in between.
TEST_F(AnnouncementsTest, TheLastBatchIsAnsweredAsBeforeAfterARestart) {
  NamespaceFacts gone = ns_;
  Clear(ns_);
  Member again = node_;
  const auto first = Send(&node_, {{&gone, 7}});
  ASSERT_OK(first);
  Restart();

  const auto second = Send(&again, {{&gone, 7}});

  ASSERT_OK(second);
  EXPECT_EQ(second->refused, first->refused);
}

// Rule A1.
TEST_F(AnnouncementsTest, ABatchOfAnEarlierRegistrationIsRefused) {
  Member old = node_;
  Register(1, 100);

  EXPECT_THAT(Send(&old, {{&ns_, 7}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("has registered again since")));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rules A1 and A6.
TEST_F(AnnouncementsTest, ABatchOfASupersededRunIsRefusedForGood) {
  Member old = node_;
  Join(1, 101, /*predecessor=*/100);

  EXPECT_THAT(Send(&old, {{&ns_, 7}}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rule A1.
TEST_F(AnnouncementsTest, ABadEntryDoesNotRefuseItsBatch) {
  NamespaceFacts unknown = ns_;
  unknown.name_space.bytes[0] ^= 0xff;

  const auto applied =
      Send(&node_, {{&ns_, 1},
                    {&unknown, 2},
                    {&ns_, 3, 1, EntryOperation::kPublish, /*length=*/0},
                    {&ns_, 4}});

  ASSERT_OK(applied);
  EXPECT_EQ(applied->refused,
            (std::vector<RefusedEntry>{{1, Outcome::kDenied},
                                       {2, Outcome::kWrongSize}}));
  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(ns_, 4), Outcome::kHit);
}

// Rule A2.
TEST_F(AnnouncementsTest, WithdrawRemovesOnlyTheGenerationThatItNames) {
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));
  ASSERT_OK(Send(&node_, {{&ns_, 7, 6}}));

  ASSERT_OK(Send(&node_, {{&ns_, 7, 5, EntryOperation::kWithdraw}}));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);

  ASSERT_OK(Send(&node_, {{&ns_, 7, 6, EntryOperation::kWithdraw}}));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rule A2.
TEST_F(AnnouncementsTest, PublishNeverReplacesANewerGeneration) {
  ASSERT_OK(Send(&node_, {{&ns_, 7, 6}}));

  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));

  EXPECT_EQ(Locate(ns_, {7}).copies[0].generation, Generation{6});
}

// Rule A2: tiers are places of their own.
TEST_F(AnnouncementsTest, WithdrawFromOneTierLeavesTheOther) {
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5, EntryOperation::kPublish, 4096, 0},
                          {&ns_, 7, 5, EntryOperation::kPublish, 4096, 1}}));

  ASSERT_OK(Send(&node_, {{&ns_, 7, 5, EntryOperation::kWithdraw, 4096, 0}}));

  const Locator::Answer answer = Locate(ns_, {7});
  ASSERT_EQ(answer.copies.size(), 1u);
  EXPECT_EQ(answer.copies[0].tier, 1);
}

// Rule A2.
TEST_F(AnnouncementsTest, WithdrawOfOneNodeLeavesTheOthersCopy) {
  Member other = Join(2, 200);
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));
  ASSERT_OK(Send(&other, {{&ns_, 7, 5}}));

  ASSERT_OK(Send(&node_, {{&ns_, 7, 5, EntryOperation::kWithdraw}}));

  const Locator::Answer answer = Locate(ns_, {7});
  ASSERT_EQ(answer.copies.size(), 1u);
  EXPECT_EQ(answer.nodes[answer.copies[0].node].node, Node(2));
}

TEST_F(AnnouncementsTest, ThePlaceInTheChainOutlivesAPartialWithdraw) {
  Member other = Join(2, 200);
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));
  ASSERT_OK(Send(&other, {{&ns_, 7, 5}}));

  ASSERT_OK(Send(&node_, {{&ns_, 7, 5, EntryOperation::kWithdraw}}));

  const auto entry =
      life_->entries.Explain({.name_space = ns_.name_space, .key = Key(7)});
  ASSERT_OK(entry);
  EXPECT_EQ((*entry)->place.position, 7u);
  EXPECT_EQ((*entry)->place.anchor, Key(7));
}

TEST_F(AnnouncementsTest, AnEntryThatComesBackGetsAHigherSequence) {
  const BlockId block{.name_space = ns_.name_space, .key = Key(7)};
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));
  const std::uint64_t first = life_->index.Find(block)->sequence;
  ASSERT_OK(Send(&node_, {{&ns_, 7, 6}}));
  EXPECT_EQ(life_->index.Find(block)->sequence, first);

  ASSERT_OK(Send(&node_, {{&ns_, 7, 6, EntryOperation::kWithdraw}}));
  ASSERT_OK(Send(&node_, {{&ns_, 7, 7}}));

  EXPECT_GT(life_->index.Find(block)->sequence, first);
}

TEST_F(AnnouncementsTest, SequencesGoOnAfterAPowerCut) {
  const BlockId block{.name_space = ns_.name_space, .key = Key(7)};
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));
  const std::uint64_t lost = life_->index.Find(block)->sequence;
  store_.PowerCut(nullptr);
  Restart();

  node_ = Join(1, 100);
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));

  EXPECT_GT(life_->index.Find(block)->sequence, lost);
}

// Rule A4.
TEST_F(AnnouncementsTest, WhatAnInventoryDoesNotNameIsGoneAtItsEnd) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 5}, {&ns_, 2, 6}, {&ns_, 3, 7}}));

  node_ = Register(1, 100);
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryPart, {{&ns_, 1, 5}}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryPart, {{&ns_, 3, 7}}));
  EXPECT_EQ(OutcomeOf(ns_, 2), Outcome::kHit);
  ASSERT_OK(Send(&node_, BatchKind::kInventoryEnd, {}));

  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(ns_, 2), Outcome::kMiss);
  EXPECT_EQ(OutcomeOf(ns_, 3), Outcome::kHit);
}

// Rule A4.
TEST_F(AnnouncementsTest, AnInventoryRemovesNothingOfAnotherNode) {
  Member other = Join(2, 200);
  ASSERT_OK(Send(&other, {{&ns_, 2, 6}}));

  node_ = Join(1, 100);

  EXPECT_EQ(OutcomeOf(ns_, 2), Outcome::kHit);
}

// Rule A4.
TEST_F(AnnouncementsTest, EventsWaitForTheInventorysEnd) {
  node_ = Register(1, 101, /*predecessor=*/100);
  EXPECT_THAT(Send(&node_, {{&ns_, 1, 5}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  EXPECT_THAT(Send(&node_, {{&ns_, 1, 5}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryEnd, {}));

  EXPECT_OK(Send(&node_, {{&ns_, 1, 5}}));
}

// Rule A4: events after the end are of the new inventory.
TEST_F(AnnouncementsTest, EventsAfterAnInventoryStayThroughTheReaping) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 5}}));

  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);
}

// Rule A4: an inventory that never ends removes nothing.
TEST_F(AnnouncementsTest, AnInventoryBrokenOffRemovesNothing) {
  ASSERT_OK(Send(&node_, {{&ns_, 1, 5}, {&ns_, 2, 6}}));
  node_ = Register(1, 100);
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  ASSERT_OK(Send(&node_, BatchKind::kInventoryPart, {{&ns_, 1, 5}}));

  Restart();
  node_ = Register(1, 100);

  EXPECT_EQ(OutcomeOf(ns_, 1), Outcome::kHit);
  EXPECT_EQ(OutcomeOf(ns_, 2), Outcome::kHit);
}

// Rule C2.
TEST_F(AnnouncementsTest, ACopyOfAnOlderClearEpochIsRefused) {
  const NamespaceFacts before = ns_;
  Clear(ns_);

  const auto applied = Send(&node_, {{&before, 7}});

  ASSERT_OK(applied);
  EXPECT_EQ(applied->refused,
            (std::vector<RefusedEntry>{{0, Outcome::kCleared}}));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rule C2: inventories too.
TEST_F(AnnouncementsTest, AnInventoryBringsNothingClearedBack) {
  const NamespaceFacts before = ns_;
  Clear(ns_);
  node_ = Register(1, 100);
  ASSERT_OK(Send(&node_, BatchKind::kInventoryBegin, {}));
  const auto applied = Send(&node_, BatchKind::kInventoryPart, {{&before, 7}});
  ASSERT_OK(Send(&node_, BatchKind::kInventoryEnd, {}));

  ASSERT_OK(applied);
  EXPECT_EQ(applied->refused.size(), 1u);
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
}

// Rule C2.
TEST_F(AnnouncementsTest, ACopyWrittenAfterTheClearReplacesTheClearedOnes) {
  Member other = Join(2, 200);
  ASSERT_OK(Send(&other, {{&ns_, 7, 5}}));
  Clear(ns_);
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);
  const NamespaceFacts now = *life_->registry.Describe(ns_.name_space);

  ASSERT_OK(Send(&node_, {{&now, 7, 9}}));

  const Locator::Answer answer = Locate(ns_, {7});
  ASSERT_EQ(answer.copies.size(), 1u);
  EXPECT_EQ(answer.copies[0].generation, Generation{9});
}

// Rules C2 and A9: a catalog that knows less drops nothing and says so.
TEST_F(AnnouncementsTest, ACopyOfAnUnknownClearEpochIsUnavailable) {
  NamespaceFacts later = ns_;
  later.clear_epoch = ClearEpoch{9};

  const auto applied = Send(&node_, {{&later, 7}});

  ASSERT_OK(applied);
  EXPECT_EQ(applied->refused,
            (std::vector<RefusedEntry>{{0, Outcome::kUnavailable}}));
}

// Rule C1.
TEST_F(AnnouncementsTest, EqualKeysOfTwoTenantsNeverMeet) {
  const NamespaceFacts other = MakeNamespace("granite", "other");
  ASSERT_EQ(other.digest, ns_.digest);

  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));
  EXPECT_EQ(OutcomeOf(other, 7), Outcome::kMiss);
  ASSERT_OK(Send(&node_, {{&other, 7, 6}}));

  EXPECT_EQ(Locate(ns_, {7}).copies[0].generation, Generation{5});
  EXPECT_EQ(Locate(other, {7}).copies[0].generation, Generation{6});
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5, EntryOperation::kWithdraw}}));
  EXPECT_EQ(OutcomeOf(other, 7), Outcome::kHit);
}

TEST_F(AnnouncementsTest, ABlockOfAnotherSizeThanDeclaredIsRefused) {
  Registry::Wanted wanted;
  wanted.tenant = ns_.tenant;
  wanted.name = "exact";
  wanted.contract = TestContract();
  wanted.block_bytes = 8192;
  const auto exact = life_->registry.OpenOrCreate(wanted);
  ASSERT_OK(exact);

  const auto applied = Send(&node_, {{&exact->record.facts, 7}});

  ASSERT_OK(applied);
  EXPECT_EQ(applied->refused,
            (std::vector<RefusedEntry>{{0, Outcome::kWrongSize}}));
}

TEST_F(AnnouncementsTest, ADamagedEntryIsAMissAndCanBeWrittenAgain) {
  ASSERT_OK(Send(&node_, {{&ns_, 7, 5}}));
  const std::string key =
      EntryKey({.name_space = ns_.name_space, .key = Key(7)});
  ASSERT_OK(store_.Apply({{Family::kKeys, key, std::string("rubbish")}},
                         Store::Durability::kLogged));
  Restart();
  ASSERT_OK(KeepAlive(node_));
  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kMiss);

  ASSERT_OK(Send(&node_, {{&ns_, 7, 6}}));

  EXPECT_EQ(OutcomeOf(ns_, 7), Outcome::kHit);
}

TEST_F(AnnouncementsTest, ImpossibleEntriesAreRefusedBeforeTheirTurn) {
  const auto check = [&](auto change) {
    AnnouncedBatch batch = BatchOf(node_, BatchKind::kEvents, {{&ns_, 7}});
    change(&batch);
    return CheckBatch(batch);
  };
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);

  EXPECT_THAT(check([](auto* b) { b->copies[0].name_space = 1; }), invalid);
  EXPECT_THAT(check([](auto* b) { b->copies[0].tier = 2; }), invalid);
  EXPECT_THAT(check([](auto* b) { b->copies[0].generation = {}; }), invalid);
  EXPECT_THAT(check([](auto* b) { b->copies[0].key = {}; }), invalid);
  EXPECT_THAT(check([](auto* b) { b->copies.resize(4097, b->copies[0]); }),
              invalid);
  EXPECT_THAT(check([](auto* b) { b->kind = BatchKind::kInventoryEnd; }),
              invalid);
  EXPECT_THAT(check([](auto* b) {
                b->kind = BatchKind::kInventoryPart;
                b->copies[0].operation = EntryOperation::kWithdraw;
              }),
              invalid);
}

}  // namespace
}  // namespace firnkv
