// Digests of copies and their sums: wire format between node and catalog.

#include "proto/base/copy_digest.h"

#include <numeric>
#include <set>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

BlockId CountingBlock() {
  BlockId block;
  std::iota(block.name_space.bytes.begin(), block.name_space.bytes.end(), 0);
  std::iota(block.key.bytes.begin(), block.key.bytes.end(), 100);
  return block;
}

// Rule A5. Made by another implementation of the recipe in the header.
TEST(CopyDigestTest, TheRecipeGivesItsTestVectors) {
  EXPECT_EQ(DigestOf({}, 0, Generation{0}), 0xa20e3362f20df1b5u);
  EXPECT_EQ(DigestOf({}, 0, Generation{1}), 0xa628e1772c5dd36du);
  EXPECT_EQ(DigestOf({}, 1, Generation{1}), 0xaca1c63442452f1eu);
  EXPECT_EQ(DigestOf(CountingBlock(), 0, Generation{0x0123456789abcdef}),
            0x9c153cbd6c1a0434u);
}

// Rule A5: whatever of a copy differs, its digest does.
TEST(CopyDigestTest, EveryBitOfACopyCounts) {
  std::set<std::uint64_t> digests = {
      DigestOf(CountingBlock(), 0, Generation{7})};
  std::size_t changes = 1;
  for (std::size_t bit = 0; bit < 8 * NamespaceId::kBytes; ++bit) {
    BlockId block = CountingBlock();
    block.name_space.bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    digests.insert(DigestOf(block, 0, Generation{7}));
    ++changes;
  }
  for (std::size_t bit = 0; bit < 8 * BlockKey::kBytes; ++bit) {
    BlockId block = CountingBlock();
    block.key.bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    digests.insert(DigestOf(block, 0, Generation{7}));
    ++changes;
  }
  for (int bit = 0; bit < 64; ++bit) {
    digests.insert(DigestOf(CountingBlock(), 0,
                            Generation{7 ^ (std::uint64_t{1} << bit)}));
    ++changes;
  }
  digests.insert(DigestOf(CountingBlock(), 1, Generation{7}));
  ++changes;

  EXPECT_EQ(digests.size(), changes);
}

TEST(CopyDigestTest, ABucketIsTheKeysFirstTwoBytes) {
  BlockKey key;
  key.bytes[0] = 0x12;
  key.bytes[1] = 0x34;
  key.bytes[2] = 0xff;

  EXPECT_EQ(CopyBucket(key), 0x1234u);
}

TEST(CopyDigestTest, SumsDoNotDependOnTheOrderAndForgetWhatIsGone) {
  SeededRandom random(1);
  std::vector<BlockId> blocks(1000);
  for (BlockId& block : blocks) {
    block.name_space = NamespaceId::Make(&random);
    block.key = BlockKey::Make(&random);
  }
  BucketSums forwards;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    forwards.Add(blocks[i], 0, Generation{i + 1});
  }
  BucketSums backwards;
  backwards.Add(blocks[3], 0, Generation{999});
  for (std::size_t i = blocks.size(); i-- > 0;) {
    backwards.Add(blocks[i], 0, Generation{i + 1});
  }

  EXPECT_FALSE(forwards == backwards);
  backwards.Subtract(blocks[3], 0, Generation{999});
  EXPECT_EQ(forwards, backwards);
}

TEST(CopyDigestTest, AGroupIsTheSumOfItsBuckets) {
  BlockId block = CountingBlock();
  block.key.bytes[0] = 5;
  BucketSums sums;
  for (int second : {0, 255}) {
    block.key.bytes[1] = static_cast<std::uint8_t>(second);
    sums.Add(block, 0, Generation{1});
  }

  EXPECT_EQ(sums.Group(5), sums.Bucket(5 * 256) + sums.Bucket(5 * 256 + 255));
  EXPECT_NE(sums.Group(5), 0u);
  EXPECT_EQ(sums.Group(4), 0u);
  EXPECT_EQ(sums.Group(6), 0u);
}

}  // namespace
}  // namespace firnkv
