#include "client/chain.h"

#include <string>

#include "gtest/gtest.h"

namespace firnkv {
namespace {

std::string Hash(int position) { return "hash " + std::to_string(position); }

Chain ChainOf(int blocks, Shard shard = {}) {
  Chain chain({.block_tokens = 16, .shard = shard});
  for (int i = 0; i < blocks; ++i) chain.Append(Hash(i));
  return chain;
}

TEST(ChainTest, KeysAreByTheRecipeAndEachKnowsItsParent) {
  const Chain chain = ChainOf(3);

  EXPECT_EQ(chain.block(0).key, MakeBlockKey(Hash(0), Shard{}));
  EXPECT_TRUE(chain.block(0).place.parent.IsZero());
  EXPECT_EQ(chain.block(2).place.parent, chain.block(1).key);
}

TEST(ChainTest, PositionsAndTokensCountOn) {
  const Chain chain = ChainOf(5);

  EXPECT_EQ(chain.block(4).place.position, 4u);
  EXPECT_EQ(chain.block(4).place.first_token, 64u);
  EXPECT_EQ(chain.block(4).place.tokens, 16u);
}

TEST(ChainTest, AnchorsAreAtPowersOfFour) {
  const Chain chain = ChainOf(300);

  for (const Chain::Block& block : chain.blocks()) {
    const std::uint32_t at = AnchorPosition(block.place.position);
    EXPECT_EQ(block.place.anchor, MakeAnchor(Hash(static_cast<int>(at))))
        << block.place.position;
  }
}

TEST(ChainTest, ShardsOfAPositionDifferInKeyAndShareTheAnchor) {
  const Chain first = ChainOf(20, {.count = 8, .index = 0});
  const Chain second = ChainOf(20, {.count = 8, .index = 1});

  EXPECT_NE(first.block(19).key, second.block(19).key);
  EXPECT_EQ(first.block(19).place.anchor, second.block(19).place.anchor);
  EXPECT_EQ(second.block(19).place.parent, second.block(18).key);
}

TEST(ChainTest, AChainThatGrewIsTheChainThatWasMadeAtOnce) {
  Chain grown = ChainOf(7);
  for (int i = 7; i < 20; ++i) grown.Append(Hash(i));
  const Chain whole = ChainOf(20);

  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(grown.block(i).key, whole.block(i).key);
    EXPECT_EQ(grown.block(i).place, whole.block(i).place);
  }
}

TEST(ChainTest, ABlockWithoutAChainIsItsOwnAnchor) {
  const Chain::Block block = UnchainedBlock("file", {.count = 2, .index = 1});

  EXPECT_EQ(block.place.anchor, MakeAnchor("file"));
  EXPECT_TRUE(block.place.parent.IsZero());
  EXPECT_EQ(block.place.position, 0u);
}

}  // namespace
}  // namespace firnkv
