// Identities and the recipes of keys and anchors. Their test vectors are in
// tests/format.

#include "proto/base/id.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::Optional;

TEST(Id, HexOfAnIdIsLowerCaseInByteOrder) {
  EXPECT_EQ(ToHex(CountingId<NamespaceId>(0xf8)),
            "f8f9fafbfcfdfeff0001020304050607");
}

TEST(Id, HexIsReadInEitherCase) {
  EXPECT_THAT(FromHex("00fFaB"), Optional(Eq(std::string("\0\xff\xab", 3))));
  EXPECT_THAT(FromHex(""), Optional(Eq("")));
}

TEST(Id, HexOfOddLengthOrWithOtherCharactersIsRefused) {
  for (const char* bad : {"0", "abc", "0g", " 0", "0x", "--"}) {
    EXPECT_EQ(FromHex(bad), std::nullopt) << bad;
  }
}

TEST(Id, AnIdTakesExactlyItsOwnNumberOfBytes) {
  EXPECT_NE(NodeId::FromBytes(std::string(16, 'x')), std::nullopt);
  for (const std::size_t size : {0, 15, 17, 32}) {
    EXPECT_EQ(NodeId::FromBytes(std::string(size, 'x')), std::nullopt) << size;
  }
}

TEST(Id, TwoNamespacesWithOneKeyAreTwoBlocks) {  // Rule C1.
  const BlockKey key = CountingId<BlockKey>(1);

  const BlockId ours{CountingId<NamespaceId>(1), key};
  const BlockId theirs{CountingId<NamespaceId>(2), key};

  EXPECT_NE(ours, theirs);
  EXPECT_EQ((std::set<BlockId>{ours, theirs}).size(), 2u);
}

TEST(BlockKeyRecipe, TheShardIsPartOfTheKey) {
  std::set<BlockKey> keys;
  for (std::uint16_t count = 1; count <= 8; ++count) {
    for (std::uint16_t index = 0; index < count; ++index) {
      keys.insert(MakeBlockKey("hash", {.count = count, .index = index}));
    }
  }

  EXPECT_EQ(keys.size(), 36u);
}

TEST(BlockKeyRecipe, AnAnchorIsNoKeyOfAnyShard) {
  EXPECT_NE(MakeAnchor("hash"), MakeBlockKey("hash", {}));
}

TEST(BlockKeyRecipe, LengthIsPartOfTheKeySoThatHashesCannotRunTogether) {
  const std::string with_shard_bytes("hash\1\1\0\0\0", 9);

  EXPECT_NE(MakeAnchor(with_shard_bytes), MakeBlockKey("hash", {}));
  EXPECT_NE(MakeAnchor(""), MakeAnchor(std::string(1, '\0')));
}

TEST(AnchorPosition, IsTheLargestPowerOfFourNotAboveThePosition) {
  std::uint32_t expected = 0;
  for (std::uint32_t position = 0; position < 5'000; ++position) {
    if (position == 1) expected = 1;
    if (position == expected * 4) expected *= expected == 0 ? 1 : 4;

    ASSERT_EQ(AnchorPosition(position), expected) << position;
  }
}

TEST(AnchorPosition, HoldsAtTheEndOfTheRange) {
  EXPECT_EQ(AnchorPosition(UINT32_MAX), 1u << 30);
  EXPECT_EQ(AnchorPosition(1u << 31), 1u << 30);
  EXPECT_EQ(AnchorPosition((1u << 30) - 1), 1u << 28);
}

TEST(AnchorPosition, AChainOfAThousandBlocksTouchesSixPartitions) {
  std::set<std::uint32_t> anchors;
  for (std::uint32_t position = 0; position < 1'000; ++position) {
    anchors.insert(AnchorPosition(position));
  }

  EXPECT_THAT(anchors, ElementsAre(0, 1, 4, 16, 64, 256));
}

}  // namespace
}  // namespace firnkv
