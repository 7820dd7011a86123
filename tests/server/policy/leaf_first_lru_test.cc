// The order in which blocks leave: against a model that looks at everything.

#include "server/policy/leaf_first_lru.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr EvictionGroup kGroup{0};
constexpr EvictionGroup kOtherGroup{1};

BlockNumber Block(std::uint32_t number) { return BlockNumber{number}; }
bool SkipNone(BlockNumber) { return false; }

class LeafFirstLruTest : public testing::Test {
 protected:
  void Store(std::uint32_t block, EvictionGroup group = kGroup) {
    lru_.OnStored({.at = {},
                   .block = Block(block),
                   .parent = BlockNumber::kNone,
                   .position = 0,
                   .bytes = 10,
                   .group = group});
  }
  void StoreChild(std::uint32_t block, std::uint32_t parent,
                  std::uint32_t position, EvictionGroup group = kGroup) {
    lru_.OnStored({.at = {},
                   .block = Block(block),
                   .parent = Block(parent),
                   .position = position,
                   .bytes = 10,
                   .group = group});
  }
  // Blocks 0 to length - 1, each the child of the one before.
  void StoreChain(std::uint32_t length) {
    Store(0);
    for (std::uint32_t i = 1; i < length; ++i) StoreChild(i, i - 1, i);
  }
  void Touch(std::vector<BlockNumber> run) { lru_.OnTouched({}, run); }
  std::vector<BlockNumber> Take(std::uint64_t bytes,
                                EvictionPolicy::Skip skip = SkipNone) {
    std::vector<BlockNumber> victims;
    lru_.TakeVictims(kGroup, bytes, skip, &victims);
    return victims;
  }

  LeafFirstLru lru_;
};

TEST_F(LeafFirstLruTest, TheBlockTouchedLongestAgoLeavesFirst) {
  Store(0);
  Store(1);
  Store(2);
  Touch({Block(0)});

  EXPECT_THAT(Take(20), ElementsAre(Block(1), Block(2)));
}

TEST_F(LeafFirstLruTest, AParentNeverLeavesBeforeItsChild) {
  StoreChain(3);
  Touch({Block(2)});  // The parents are colder by far.

  EXPECT_THAT(Take(30), ElementsAre(Block(2), Block(1), Block(0)));
}

TEST_F(LeafFirstLruTest, TheTailOfATouchedRunIsColderThanItsHead) {
  Store(0);
  Store(1);
  Store(2);
  Touch({Block(2), Block(0), Block(1)});

  EXPECT_THAT(Take(30), ElementsAre(Block(1), Block(0), Block(2)));
}

TEST_F(LeafFirstLruTest, VictimsMakeUpTheTargetAndNotOneMore) {
  StoreChain(5);

  EXPECT_EQ(Take(10).size(), 1u);
  EXPECT_EQ(Take(11).size(), 2u);
  EXPECT_THAT(Take(0), IsEmpty());
}

TEST_F(LeafFirstLruTest, WhatIsNotColderThanTheBoundStays) {
  StoreChain(2);
  Store(7);
  const Warmth then = lru_.NextWarmth();
  Touch({Block(7)});
  Touch({Block(0)});

  std::vector<BlockNumber> victims;
  EXPECT_EQ(lru_.TakeVictims(kGroup, {1000, then}, SkipNone, &victims), 10u);
  EXPECT_THAT(victims, ElementsAre(Block(1)));
  EXPECT_EQ(lru_.TakeVictims(kGroup, {1000, then}, SkipNone, &victims), 0u);
  EXPECT_THAT(Take(1000), ElementsAre(Block(7), Block(0)));
}

TEST_F(LeafFirstLruTest, ASkippedBlockStaysAndSoDoItsAncestors) {
  StoreChain(3);
  Store(7);

  EXPECT_THAT(Take(1000, [](BlockNumber b) { return b == Block(2); }),
              ElementsAre(Block(7)));
  EXPECT_THAT(Take(1000), ElementsAre(Block(2), Block(1), Block(0)));
}

TEST_F(LeafFirstLruTest, AChildThatCameBeforeItsParentStillLeavesFirst) {
  StoreChild(1, 0, 1);
  Store(0);
  Touch({Block(1)});

  EXPECT_THAT(Take(20), ElementsAre(Block(1), Block(0)));
}

TEST_F(LeafFirstLruTest, ChildrenRememberAParentThatLeftAndCameBack) {
  StoreChain(2);
  lru_.OnEvicted({}, Block(0));
  EXPECT_TRUE(lru_.HasChildren(Block(0)));
  Store(0);
  Touch({Block(1)});

  EXPECT_THAT(Take(20), ElementsAre(Block(1), Block(0)));
}

TEST_F(LeafFirstLruTest, AGroupsVictimsLeaveTheOtherGroupAlone) {
  Store(0, kOtherGroup);
  Store(1);

  EXPECT_THAT(Take(1000), ElementsAre(Block(1)));
  EXPECT_NE(lru_.WarmthOf(Block(0)), Warmth::kNone);
}

TEST_F(LeafFirstLruTest, AParentIsNotTakenWhileItsChildIsInAnotherGroup) {
  Store(0);
  StoreChild(1, 0, 1, kOtherGroup);

  EXPECT_THAT(Take(1000), IsEmpty());

  std::vector<BlockNumber> victims;
  const EvictionGroup both[] = {kGroup, kOtherGroup};
  lru_.TakeVictimsOf(both, 1000, SkipNone, &victims);
  EXPECT_THAT(victims, ElementsAre(Block(1), Block(0)));
}

TEST_F(LeafFirstLruTest, ACircleOfParentsCanLeave) {
  // A hostile writer says that each of two blocks is the other's parent.
  StoreChild(0, 1, 3);
  StoreChild(1, 0, 5);
  StoreChild(2, 2, 1);

  EXPECT_EQ(Take(1000).size(), 3u);
}

TEST_F(LeafFirstLruTest, ABlockOfManyChildrenLeavesAfterTheLastOfThem) {
  Store(0);
  for (std::uint32_t i = 1; i <= 1000; ++i) StoreChild(i, 0, 1);

  const std::vector<BlockNumber> victims = Take(10'010);

  EXPECT_EQ(victims.back(), Block(0));
}

TEST_F(LeafFirstLruTest, AnEndedConversationLeavesFirstButNotWhatOthersShare) {
  StoreChain(3);        // A system prompt and one conversation,
  StoreChild(3, 0, 1);  // and another one.
  Touch({Block(0), Block(1), Block(2)});
  const BlockNumber run[] = {Block(0), Block(1), Block(2)};

  lru_.OnHint({.at = {},
               .state = EvictionPolicy::ConversationState::kEnded,
               .run = run});

  EXPECT_THAT(Take(30), ElementsAre(Block(2), Block(1), Block(3)));
}

// Everything that LeafFirstLru promises, by looking at all blocks each time.
class Model {
 public:
  struct Present {
    std::uint64_t stamp;
    std::optional<std::uint32_t> parent;
    std::uint64_t bytes;
    std::uint32_t group;
  };

  void Store(std::uint32_t block, std::optional<std::uint32_t> parent,
             std::uint64_t bytes, std::uint32_t group) {
    present_[block] = {++stamp_, parent, bytes, group};
  }
  void Touch(const std::vector<std::uint32_t>& run) {
    for (std::size_t i = run.size(); i-- > 0;)
      present_[run[i]].stamp = ++stamp_;
  }
  void Evict(std::uint32_t block) { present_.erase(block); }
  std::vector<BlockNumber> Take(const std::set<std::uint32_t>& groups,
                                std::uint64_t bytes,
                                const std::set<std::uint32_t>& skip) {
    std::vector<BlockNumber> victims;
    std::uint64_t taken = 0;
    while (taken < bytes) {
      std::set<std::uint32_t> parents;
      for (const auto& [block, one] : present_) {
        if (one.parent) parents.insert(*one.parent);
      }
      std::optional<std::uint32_t> coldest;
      for (const auto& [block, one] : present_) {
        if (parents.contains(block) || skip.contains(block)) continue;
        if (!groups.contains(one.group)) continue;
        if (!coldest || one.stamp < present_[*coldest].stamp) coldest = block;
      }
      if (!coldest) break;
      taken += present_[*coldest].bytes;
      victims.push_back(BlockNumber{*coldest});
      present_.erase(*coldest);
    }
    return victims;
  }
  const std::map<std::uint32_t, Present>& present() const { return present_; }

 private:
  std::uint64_t stamp_ = 0;
  std::map<std::uint32_t, Present> present_;
};

class AgainstTheModel : public testing::TestWithParam<std::uint64_t> {};

TEST_P(AgainstTheModel, EveryVictimIsTheModels) {
  SeededRandom random(GetParam());
  LeafFirstLru lru;
  Model model;
  // Block b stands at position b / 8 and its parent, if any, in the row above.
  constexpr std::uint32_t kBlocks = 96;
  std::vector<std::optional<std::uint32_t>> parents(kBlocks);
  for (std::uint32_t b = 8; b < kBlocks; ++b) {
    if (random.Below(8) != 0) {
      parents[b] =
          (b / 8 - 1) * 8 + static_cast<std::uint32_t>(random.Below(8));
    }
  }

  for (int step = 0; step < 2000; ++step) {
    std::vector<std::uint32_t> here;
    for (const auto& [block, one] : model.present()) here.push_back(block);
    const std::uint64_t dice = random.Below(10);
    if (dice < 5) {
      const auto b = static_cast<std::uint32_t>(random.Below(kBlocks));
      if (model.present().contains(b)) continue;
      const std::uint64_t bytes = 1 + random.Below(5);
      const auto group = static_cast<std::uint32_t>(random.Below(3));
      model.Store(b, parents[b], bytes, group);
      lru.OnStored(
          {.at = {},
           .block = Block(b),
           .parent = parents[b] ? Block(*parents[b]) : BlockNumber::kNone,
           .position = b / 8,
           .bytes = bytes,
           .group = EvictionGroup{group}});
    } else if (dice < 7 && !here.empty()) {
      std::vector<std::uint32_t> run;
      std::vector<BlockNumber> blocks;
      for (const std::uint32_t b : here) {
        if (random.Below(4) != 0) continue;
        run.push_back(b);
        blocks.push_back(Block(b));
      }
      model.Touch(run);
      lru.OnTouched({}, blocks);
    } else if (dice < 8 && !here.empty()) {
      const std::uint32_t b = here[random.Below(here.size())];
      model.Evict(b);
      lru.OnEvicted({}, Block(b));
    } else {
      std::set<std::uint32_t> skip;
      for (const std::uint32_t b : here) {
        if (random.Below(5) == 0) skip.insert(b);
      }
      std::set<std::uint32_t> groups;
      std::vector<EvictionGroup> wanted;
      for (std::uint32_t g = 0; g < 3; ++g) {
        if (random.Below(2) == 0) continue;
        groups.insert(g);
        wanted.push_back(EvictionGroup{g});
      }
      const std::uint64_t bytes = random.Below(30);
      std::vector<BlockNumber> victims;
      lru.TakeVictimsOf(
          wanted, bytes,
          [&skip](BlockNumber b) {
            return skip.contains(static_cast<std::uint32_t>(b));
          },
          &victims);
      ASSERT_EQ(victims, model.Take(groups, bytes, skip)) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AgainstTheModel,
                         testing::Range<std::uint64_t>(1, 41));

}  // namespace
}  // namespace firnkv
