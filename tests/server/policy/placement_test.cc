// Where blocks go: beside their parents while that keeps nodes even, else by
// their anchor.

#include "server/policy/placement.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

using ::testing::Each;

constexpr std::uint64_t kCapacity = 1000;

class PlacementTest : public ::testing::Test {
 protected:
  void SetNodes(std::size_t count, std::uint64_t used = 0) {
    std::vector<Placement::Node> nodes;
    for (std::size_t i = 0; i < count; ++i) nodes.push_back(NodeOf(i, used));
    placement_.SetNodes(nodes);
  }
  static Placement::Node NodeOf(std::size_t i, std::uint64_t used) {
    SeededRandom random(1000 + i);
    return {
        .id = random.Next64(), .capacity_bytes = kCapacity, .used_bytes = used};
  }
  std::size_t PlaceRoot(std::uint64_t bytes = 1) {
    const std::uint64_t key = random_.NonZero64();
    return placement_.Place({.key = key, .anchor = key, .bytes = bytes});
  }
  std::size_t PlaceChild(std::uint64_t parent, std::size_t parent_node,
                         std::uint64_t bytes = 1) {
    return placement_.Place({.key = random_.NonZero64(),
                             .anchor = random_.NonZero64(),
                             .parent = parent,
                             .bytes = bytes,
                             .parent_node = parent_node});
  }

  SeededRandom random_{7};
  Placement placement_{Placement::Options{}};
};

TEST_F(PlacementTest, AChildGoesToItsParentsNode) {
  SetNodes(8);

  for (std::size_t node = 0; node < 8; ++node) {
    EXPECT_EQ(PlaceChild(random_.NonZero64(), node), node);
  }
}

TEST_F(PlacementTest, APrefixThatEverybodySharesDoesNotDrawAllToOneNode) {
  SetNodes(8);

  std::set<std::size_t> nodes;
  int beside = 0;
  for (int i = 0; i < 200; ++i) {
    const std::size_t node = PlaceChild(42, 3);
    nodes.insert(node);
    if (i < 8) beside += node == 3 ? 1 : 0;
  }

  EXPECT_EQ(beside, 8);
  EXPECT_EQ(nodes.size(), 8u);
}

TEST_F(PlacementTest, AChildThatIsWrittenAgainIsNotOneMore) {
  SetNodes(8);
  const Placement::Block child{
      .key = 77, .anchor = 5, .parent = 42, .bytes = 1, .parent_node = 3};

  std::vector<std::size_t> nodes;
  for (int i = 0; i < 20; ++i) nodes.push_back(placement_.Place(child));

  EXPECT_THAT(nodes, Each(3u));
}

TEST_F(PlacementTest, ANodeThatIsFullerThanTheOthersGetsNoChildren) {
  std::vector<Placement::Node> nodes;
  for (std::size_t i = 0; i < 8; ++i) {
    nodes.push_back(NodeOf(i, i == 3 ? 900 : 500));
  }
  placement_.SetNodes(nodes);

  for (int i = 0; i < 50; ++i) {
    EXPECT_NE(PlaceChild(random_.NonZero64(), 3), 3u);
  }
}

// What nodes say is seconds old: what was placed since counts too.
TEST_F(PlacementTest, WhatWasJustPlacedCountsAsLoad) {
  SetNodes(2);
  const double before = placement_.LoadOf(1);

  EXPECT_EQ(PlaceChild(42, 1, 300), 1u);

  EXPECT_GT(placement_.LoadOf(1), before);
  // Now it is fuller than the other: its children are hashed, and it has the
  // smaller chances.
  int beside = 0;
  for (int i = 0; i < 200; ++i) {
    beside += PlaceChild(random_.NonZero64(), 1, 0) == 1 ? 1 : 0;
  }
  EXPECT_LT(beside, 60);
}

TEST_F(PlacementTest, BlocksOfOneAnchorGoTogether) {
  SetNodes(8, 1000);

  std::set<std::size_t> nodes;
  for (int i = 0; i < 20; ++i) {
    nodes.insert(placement_.Place(
        {.key = random_.NonZero64(), .anchor = 99, .bytes = 1}));
  }

  EXPECT_EQ(nodes.size(), 1u);
}

TEST_F(PlacementTest, AnchorsAreSpreadEvenly) {
  SetNodes(8);

  std::vector<std::uint64_t> bytes(8, 0);
  for (int i = 0; i < 20'000; ++i) ++bytes[PlaceRoot()];

  EXPECT_LE(*std::max_element(bytes.begin(), bytes.end()), 20'000 / 8 * 1.1);
}

TEST_F(PlacementTest, AnEmptyNodeAmongFullOnesGetsMore) {
  std::vector<Placement::Node> nodes;
  for (std::size_t i = 0; i < 8; ++i) {
    nodes.push_back(NodeOf(i, i == 5 ? 0 : 1000));
  }
  placement_.SetNodes(nodes);

  std::vector<int> placed(8, 0);
  for (int i = 0; i < 200; ++i) ++placed[PlaceRoot()];

  EXPECT_EQ(std::max_element(placed.begin(), placed.end()) - placed.begin(), 5);
}

TEST_F(PlacementTest, ALargerNodeGetsMore) {
  std::vector<Placement::Node> nodes = {NodeOf(0, 0), NodeOf(1, 0)};
  nodes[1].capacity_bytes = 3 * kCapacity;
  placement_.SetNodes(nodes);

  std::vector<int> placed(2, 0);
  for (int i = 0; i < 4000; ++i) ++placed[PlaceRoot()];

  EXPECT_NEAR(static_cast<double>(placed[1]) / placed[0], 3, 0.5);
}

TEST_F(PlacementTest, ANodeThatGoesMovesOnlyItsShare) {
  constexpr int kAnchors = 4000;
  std::vector<Placement::Node> nodes;
  for (std::size_t i = 0; i < 8; ++i) nodes.push_back(NodeOf(i, 1000));
  Placement before(Placement::Options{});
  before.SetNodes(nodes);
  nodes.pop_back();
  Placement after(Placement::Options{});
  after.SetNodes(nodes);

  int moved = 0;
  for (int i = 0; i < kAnchors; ++i) {
    // No bytes: no load, only hashing.
    const Placement::Block block{
        .key = 1, .anchor = random_.NonZero64(), .bytes = 0};
    const std::size_t was = before.Place(block);
    if (after.Place(block) != was) ++moved;
  }

  EXPECT_NEAR(moved, kAnchors / 8, kAnchors / 8 * 0.2);
}

TEST_F(PlacementTest, AnExcludedNodeIsChosenOnlyWhereThereIsNoOther) {
  SetNodes(3);
  const std::vector<std::size_t> two = {0, 1};
  const std::vector<std::size_t> all = {0, 1, 2};

  for (int i = 0; i < 50; ++i) {
    const std::uint64_t key = random_.NonZero64();
    EXPECT_EQ(placement_.Place({.key = key,
                                .anchor = key,
                                .parent = 9,
                                .bytes = 1,
                                .parent_node = 0},
                               two),
              2u);
    EXPECT_LT(placement_.Place({.key = key, .anchor = key, .bytes = 1}, all),
              3u);
  }
}

TEST_F(PlacementTest, WhatWasPlacedLatelyIsRememberedOfNodesThatStay) {
  SetNodes(2);
  PlaceChild(42, 1, 100);
  const double load = placement_.LoadOf(1);

  SetNodes(2);
  EXPECT_DOUBLE_EQ(placement_.LoadOf(1), load);

  // Another node does not inherit it.
  placement_.SetNodes(std::vector<Placement::Node>{NodeOf(0, 0), NodeOf(9, 0)});
  EXPECT_DOUBLE_EQ(placement_.LoadOf(1), 0);
}

TEST_F(PlacementTest, LatelyFadesWithWhatIsPlaced) {
  SetNodes(2);
  PlaceChild(42, 1, 500);

  for (int i = 0; i < 100'000; ++i) {
    placement_.Place({.key = 1,
                      .anchor = 1,
                      .parent = 7,
                      .bytes = 1,
                      .parent_node = std::size_t{0}});
  }

  // However much that was: a unit that grows is made small again in time.
  EXPECT_LT(placement_.LoadOf(1), 3);
  EXPECT_GT(placement_.LoadOf(0), 0);
}

TEST_F(PlacementTest, ParentsRememberedAreBounded) {
  Placement placement({.max_parents = 2});
  placement.SetNodes(std::vector<Placement::Node>{NodeOf(0, 0), NodeOf(1, 0)});
  const auto place = [&](std::uint64_t parent) {
    return placement.Place({.key = random_.NonZero64(),
                            .anchor = random_.NonZero64(),
                            .parent = parent,
                            .bytes = 0,
                            .parent_node = std::size_t{0}});
  };
  for (int i = 0; i < 8; ++i) EXPECT_EQ(place(1), 0u);

  // Two others push it out: it begins anew.
  place(2);
  place(3);

  for (int i = 0; i < 8; ++i) EXPECT_EQ(place(1), 0u);
}

}  // namespace
}  // namespace firnkv
