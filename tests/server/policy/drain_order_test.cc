// What a draining node moves, and where to.

#include "server/policy/drain_order.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint64_t kBlock = 100;
constexpr std::uint64_t kPlenty = 1'000'000;

DrainBlock Block(std::uint64_t id, std::uint64_t parent, std::uint32_t position,
                 std::uint64_t warmth, std::uint32_t bytes = kBlock) {
  return {.id = id,
          .parent = parent,
          .warmth = Warmth{warmth},
          .bytes = bytes,
          .position = position};
}

DrainPeer Peer(std::uint64_t capacity, std::uint64_t used, Labels labels = {}) {
  return {.capacity_bytes = capacity,
          .used_bytes = used,
          .labels = std::move(labels)};
}

// Ids, in the order in which they go.
std::vector<std::uint64_t> IdsOf(const std::vector<DrainBlock>& blocks,
                                 const DrainOrder& order) {
  std::vector<std::uint64_t> ids;
  for (const DrainStep& step : order.steps) {
    ids.push_back(blocks[step.block].id);
  }
  return ids;
}

std::vector<std::uint64_t> Order(const std::vector<DrainBlock>& blocks,
                                 std::uint64_t budget) {
  const std::vector<DrainPeer> peers = {Peer(kPlenty, 0)};
  return IdsOf(blocks, OrderDrain(blocks, peers, {}, budget));
}

TEST(DrainOrderTest, TheHottestChainGoesFirstAndParentsBeforeChildren) {
  // Two chains, of which the second was read last, tail before head.
  const std::vector<DrainBlock> blocks = {
      Block(2, 1, 1, 10), Block(1, 0, 0, 11), Block(12, 11, 1, 20),
      Block(11, 0, 0, 21)};

  EXPECT_THAT(Order(blocks, kPlenty), ElementsAre(11, 12, 1, 2));
}

TEST(DrainOrderTest, TheBudgetEndsTheColdChainFirst) {
  const std::vector<DrainBlock> blocks = {
      Block(1, 0, 0, 11), Block(2, 1, 1, 10), Block(11, 0, 0, 21),
      Block(12, 11, 1, 20)};

  EXPECT_THAT(Order(blocks, 3 * kBlock), ElementsAre(11, 12, 1));
  EXPECT_THAT(Order(blocks, kBlock - 1), IsEmpty());
  EXPECT_THAT(Order(blocks, 0), IsEmpty());
}

// A block without its predecessors is worth nothing.
TEST(DrainOrderTest, AHotBlockTakesItsColdParentsWithIt) {
  const std::vector<DrainBlock> blocks = {Block(1, 0, 0, 1), Block(2, 1, 1, 2),
                                          Block(3, 2, 2, 90),
                                          Block(11, 0, 0, 50)};

  EXPECT_THAT(Order(blocks, 3 * kBlock), ElementsAre(1, 2, 3));
}

TEST(DrainOrderTest, WhatFollowsABlockThatDoesNotFitStays) {
  const std::vector<DrainBlock> blocks = {
      Block(1, 0, 0, 90), Block(2, 1, 1, 89, 1000), Block(3, 2, 2, 88),
      Block(11, 0, 0, 50)};

  EXPECT_THAT(Order(blocks, 5 * kBlock), ElementsAre(1, 11));
}

TEST(DrainOrderTest, ABranchGoesBehindWhatItHangsOn) {
  // One prefix, two continuations; the second is the hotter one.
  const std::vector<DrainBlock> blocks = {
      Block(1, 0, 0, 40), Block(2, 1, 1, 10), Block(3, 1, 1, 30)};

  EXPECT_THAT(Order(blocks, kPlenty), ElementsAre(1, 3, 2));
}

// The rest of the chain may be at another node.
TEST(DrainOrderTest, ABlockWhoseParentIsNotHereBeginsAChain) {
  const std::vector<DrainBlock> blocks = {Block(7, 6, 5, 10),
                                          Block(1, 0, 0, 5)};

  EXPECT_THAT(Order(blocks, kPlenty), ElementsAre(7, 1));
}

TEST(DrainOrderTest, ACircleOfParentsIsNone) {
  const std::vector<DrainBlock> blocks = {Block(1, 2, 3, 10), Block(2, 1, 3, 9),
                                          Block(3, 3, 1, 8)};

  EXPECT_THAT(Order(blocks, kPlenty), ElementsAre(1, 2, 3));
}

TEST(DrainOrderTest, WithoutPeersNothingMoves) {
  const std::vector<DrainBlock> blocks = {Block(1, 0, 0, 1)};

  EXPECT_THAT(OrderDrain(blocks, {}, {}, kPlenty).steps, IsEmpty());
  // It has just registered, without saying how much it has.
  const std::vector<DrainPeer> empty = {Peer(0, 0)};
  EXPECT_THAT(OrderDrain(blocks, empty, {}, kPlenty).steps, IsEmpty());
}

// --- Where to.

// Bytes that each peer gets.
std::vector<std::uint64_t> Shares(const std::vector<DrainBlock>& blocks,
                                  const std::vector<DrainPeer>& peers,
                                  const Labels& own = {}) {
  std::vector<std::uint64_t> shares(peers.size(), 0);
  for (const DrainStep& step : OrderDrain(blocks, peers, own, kPlenty).steps) {
    shares[step.peer] += blocks[step.block].bytes;
  }
  return shares;
}

std::vector<DrainBlock> Chains(std::uint64_t count, std::uint32_t length) {
  std::vector<DrainBlock> blocks;
  std::uint64_t warmth = 1;
  for (std::uint64_t chain = 1; chain <= count; ++chain) {
    for (std::uint32_t i = length; i-- > 0;) {
      blocks.push_back(Block(chain * 1000 + i + 1,
                             i == 0 ? 0 : chain * 1000 + i, i, warmth++));
    }
  }
  return blocks;
}

TEST(DrainOrderTest, ChainsGoWhereThereIsRoom) {
  const std::vector<DrainPeer> peers = {Peer(10'000, 10'000), Peer(10'000, 0)};

  EXPECT_THAT(Shares(Chains(4, 2), peers), ElementsAre(0, 8 * kBlock));
}

TEST(DrainOrderTest, FullPeersShareTheBurdenByTheirCapacity) {
  const std::vector<DrainPeer> peers = {Peer(30'000, 30'000),
                                        Peer(10'000, 10'000)};

  EXPECT_THAT(Shares(Chains(40, 1), peers),
              ElementsAre(30 * kBlock, 10 * kBlock));
}

TEST(DrainOrderTest, AChainStaysOnOnePeerWhileThatIsHardlyFuller) {
  const std::vector<DrainPeer> peers = {Peer(10'000, 0), Peer(10'000, 0),
                                        Peer(10'000, 0)};
  const std::vector<DrainBlock> blocks = Chains(6, 5);

  std::map<std::uint64_t, std::set<std::uint32_t>> peers_of_chain;
  for (const DrainStep& step : OrderDrain(blocks, peers, {}, kPlenty).steps) {
    peers_of_chain[blocks[step.block].id / 1000].insert(step.peer);
  }

  EXPECT_THAT(peers_of_chain, SizeIs(6));
  for (const auto& [chain, of_chain] : peers_of_chain) {
    EXPECT_THAT(of_chain, SizeIs(1)) << chain;
  }
}

// Else what everybody shares, a system prompt, would draw all to one node.
TEST(DrainOrderTest, ATreeIsSpreadOnceItsPeerIsFullerThanTheOthers) {
  std::vector<DrainBlock> blocks = {Block(1, 0, 0, 1'000'000)};
  for (std::uint64_t i = 0; i < 99; ++i)
    blocks.push_back(Block(10 + i, 1, 1, i + 1));
  const std::vector<DrainPeer> peers = {Peer(10'000, 0), Peer(10'000, 0)};

  const std::vector<std::uint64_t> shares = Shares(blocks, peers);

  EXPECT_NEAR(static_cast<double>(shares[0]), static_cast<double>(shares[1]),
              600.0);
}

TEST(DrainOrderTest, APeerOnTheSameHostOrInTheSameRackIsTheLastChoice) {
  const Labels own{.zone = "z", .rack = "r1", .host = "h1"};
  const DrainPeer same_host = Peer(10'000, 0, own);
  const DrainPeer same_rack =
      Peer(10'000, 0, {.zone = "z", .rack = "r1", .host = "h2"});
  const DrainPeer elsewhere =
      Peer(10'000, 9'000, {.zone = "z", .rack = "r2", .host = "h3"});
  // Its rack has the same number, in another zone.
  const DrainPeer other_zone =
      Peer(10'000, 9'000, {.zone = "y", .rack = "r1", .host = "h4"});
  const std::vector<DrainBlock> blocks = Chains(2, 1);

  EXPECT_THAT(
      Shares(blocks, {same_host, same_rack, elsewhere, other_zone}, own),
      ElementsAre(0, 0, kBlock, kBlock));
  EXPECT_THAT(Shares(blocks, {same_host, same_rack}, own),
              ElementsAre(0, 2 * kBlock));
  EXPECT_THAT(Shares(blocks, {same_host}, own), ElementsAre(2 * kBlock));
  // Without labels nobody shares a fate.
  EXPECT_THAT(Shares(blocks, {same_host, same_rack}),
              ElementsAre(kBlock, kBlock));
}

TEST(DrainOrderTest, WhateverTheForestTheBudgetHoldsAndNoChildIsAlone) {
  SeededRandom random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<DrainBlock> blocks;
    const std::uint64_t count = 1 + random.Below(60);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t parent = random.Below(i + 1);
      const std::uint32_t position =
          parent == 0 ? 0 : blocks[parent - 1].position + 1;
      blocks.push_back(
          Block(i + 1, parent, position, 1 + random.Below(100),
                static_cast<std::uint32_t>(1 + random.Below(200))));
    }
    const std::vector<DrainPeer> peers = {
        Peer(1000 + random.Below(5000), random.Below(1000)),
        Peer(1000 + random.Below(5000), random.Below(1000))};
    const std::uint64_t budget = random.Below(8000);

    const DrainOrder order = OrderDrain(blocks, peers, {}, budget);

    std::uint64_t bytes = 0;
    std::set<std::uint64_t> moved = {0};
    for (const DrainStep& step : order.steps) {
      bytes += blocks[step.block].bytes;
      EXPECT_TRUE(moved.count(blocks[step.block].parent) == 1);
      EXPECT_TRUE(moved.insert(blocks[step.block].id).second);
    }
    EXPECT_EQ(bytes, order.bytes);
    EXPECT_LE(bytes, budget);
  }
}

}  // namespace
}  // namespace firnkv
