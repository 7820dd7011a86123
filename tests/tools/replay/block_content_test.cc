// A block's bytes say which block they are.

#include "tools/replay/block_content.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

BlockId Block(std::uint8_t name_space, std::uint8_t key) {
  BlockId block;
  block.name_space.bytes[3] = name_space;
  block.key.bytes[17] = key;
  return block;
}

std::vector<std::byte> Bytes(const BlockId& block, std::size_t size) {
  std::vector<std::byte> bytes(size);
  BlockContent(block).Fill(absl::MakeSpan(bytes));
  return bytes;
}

TEST(BlockContentTest, WhatWasFilledIsRightAtEverySize) {
  for (const std::size_t size :
       {0, 1, 7, 8, 31, 32, 33, 4095, 4096, 4097, 8192, 65536, 100'001}) {
    EXPECT_EQ(
        BlockContent(Block(1, 2)).CountWrong(Bytes(Block(1, 2), size), nullptr),
        0u)
        << size;
  }
}

TEST(BlockContentTest, AShorterBlockIsTheBeginOfALongerOne) {
  const std::vector<std::byte> longer = Bytes(Block(1, 2), 70'000);
  const std::vector<std::byte> shorter = Bytes(Block(1, 2), 5'001);

  EXPECT_EQ(std::memcmp(longer.data(), shorter.data(), shorter.size()), 0);
}

TEST(BlockContentTest, EveryChangedByteIsFoundAndCounted) {
  SeededRandom random(3);
  const std::vector<std::byte> right = Bytes(Block(1, 2), 9'000);

  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes = right;
    const std::size_t a = random.Below(9'000);
    const std::size_t b = random.Below(9'000);
    bytes[a] ^= std::byte{1};
    if (a != b) bytes[b] ^= std::byte{128};
    std::size_t first = 0;

    EXPECT_EQ(BlockContent(Block(1, 2)).CountWrong(bytes, &first),
              a == b ? 1u : 2u);
    EXPECT_EQ(first, std::min(a, b));
  }
}

TEST(BlockContentTest, AnotherTenantsBlockOfTheSameKeyIsWrongNearlyEverywhere) {
  const std::vector<std::byte> theirs = Bytes(Block(2, 2), 65'536);

  EXPECT_GT(BlockContent(Block(1, 2)).CountWrong(theirs, nullptr), 65'000u);
}

TEST(BlockContentTest, AnotherKeysBlockIsWrongNearlyEverywhere) {
  const std::vector<std::byte> others = Bytes(Block(1, 3), 65'536);

  EXPECT_GT(BlockContent(Block(1, 2)).CountWrong(others, nullptr), 65'000u);
}

TEST(BlockContentTest, NoPageOfABlockIsLikeAnother) {
  const std::vector<std::byte> bytes = Bytes(Block(1, 2), 1 << 20);

  for (std::size_t page = 4096; page < bytes.size(); page += 4096) {
    EXPECT_NE(std::memcmp(bytes.data(), bytes.data() + page, 4096), 0);
  }
}

TEST(BlockContentTest, ZeroesAreWrong) {
  const std::vector<std::byte> zeroes(4096);

  EXPECT_GT(BlockContent(Block(0, 0)).CountWrong(zeroes, nullptr), 4000u);
}

}  // namespace
}  // namespace firnkv
