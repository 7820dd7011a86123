// Reading a block where it lies while the node gives its slot away: real shared
// memory, two threads.

#include "client/mapped_region.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "client/transport/memfd.h"
#include "client/transport/named_thread.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/checksum.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kRegionBytes = kMiB;
constexpr std::uint64_t kOffset = 4 * kPageBytes;
constexpr std::uint64_t kLength = 70'000;
constexpr auto kPage = static_cast<std::uint32_t>(kOffset / kPageBytes);

class MappedRegionTest : public testing::Test {
 protected:
  void SetUp() override {
    payload_ = *maker_.Make(MemoryKindWanted::kRegion, "pool", kRegionBytes);
    writable_ = *payload_->Map(MapAccess::kReadWrite);
    table_ = *maker_.MakeHeaderTable("headers", HeaderTableBytes(kRegionBytes));
    headers_ = std::make_unique<HeaderTableWriter>(table_.writable->bytes(),
                                                   kRegion, kRegionBytes);
    auto opened = MappedRegion::Open(
        kRegion, *(*payload_->ReopenReadOnly())->Map(MapAccess::kRead),
        *(*table_.memory->ReopenReadOnly())->Map(MapAccess::kRead), nullptr);
    ASSERT_OK(opened);
    region_ = *std::move(opened);
    id_.name_space.bytes.fill(1);
    id_.key.bytes.fill(2);
  }

  // The next life of the slot: bytes that tell its generation (rule P7).
  void Fill(std::uint64_t generation) {
    headers_->Bump(kPage, Generation{generation * 2});
    const auto bytes = writable_->bytes().subspan(kOffset, kLength);
    std::memset(bytes.data(), static_cast<int>(generation % 251), kLength);
    SlotHeader header;
    header.block = id_;
    header.clear_epoch = ClearEpoch{1};
    header.place.anchor = id_.key;
    header.place.tokens = 16;
    header.length = kLength;
    header.generation = Generation{generation * 2 + 1};
    header.pieces = PieceChecksums(bytes);
    headers_->Write(kPage, header);
  }

  MappedBlock BlockOf(Generation generation) const {
    MappedBlock block;
    block.block = id_;
    block.clear_epoch = ClearEpoch{1};
    block.generation = generation;
    block.length = kLength;
    block.extents.push_back(
        {.region = region_, .offset = kOffset, .length = kLength});
    return block;
  }

  static constexpr RegionId kRegion = {NodeEpoch{7}, 1};
  MemfdMaker maker_;
  std::shared_ptr<SharedMemory> payload_;
  std::unique_ptr<MemoryMapping> writable_;
  MemoryMaker::HeaderTable table_;
  std::unique_ptr<HeaderTableWriter> headers_;
  std::shared_ptr<const MappedRegion> region_;
  BlockId id_;
};

// Rules P4, P5 and P7: what two looks embrace is of one life of the slot.
TEST_F(MappedRegionTest, TwoLooksThatAgreeEmbraceNoOtherBytes) {
  constexpr std::uint64_t kLives = 2000;
  std::atomic<bool> ended{false};
  Fill(1);
  NamedThread node;
  ASSERT_OK(node.Start("node", [&] {
    for (std::uint64_t life = 2; life <= kLives; ++life) Fill(life);
    ended = true;
  }));

  std::uint64_t hits = 0;
  std::uint64_t wrong = 0;
  for (bool last = false; !last;) {
    last = ended;
    const auto now = region_->headers().ReadGeneration(kPage);
    ASSERT_TRUE(now.has_value());
    const MappedBlock block = BlockOf(*now);
    if (!FirstLook(block)) continue;
    const auto bytes = region_->bytes().subspan(kOffset, kLength);
    const auto expected =
        static_cast<std::byte>(static_cast<std::uint64_t>(*now) / 2 % 251);
    std::uint64_t others = 0;
    for (const std::byte byte : bytes) others += byte == expected ? 0 : 1;
    if (!SecondLook(block)) continue;
    ++hits;
    wrong += others;
  }

  EXPECT_EQ(wrong, 0u);
  // The last turn saw the node's last word.
  EXPECT_GT(hits, 0u);
}

// Rules P4 and C1: each of these by itself is another block.
TEST_F(MappedRegionTest, AFirstLookFindsOnlyTheBlockThatWasGranted) {
  Fill(1);
  const MappedBlock granted = BlockOf(Generation{3});
  MappedBlock of_another_namespace = granted;
  of_another_namespace.block.name_space.bytes.fill(9);
  MappedBlock of_another_key = granted;
  of_another_key.block.key.bytes.fill(9);
  MappedBlock longer = granted;
  longer.length = kLength + 1;
  MappedBlock of_after_a_clear = granted;
  of_after_a_clear.clear_epoch = ClearEpoch{2};

  EXPECT_TRUE(FirstLook(granted).has_value());
  EXPECT_FALSE(FirstLook(BlockOf(Generation{1})).has_value());
  EXPECT_FALSE(FirstLook(of_another_namespace).has_value());
  EXPECT_FALSE(FirstLook(of_another_key).has_value());
  EXPECT_FALSE(FirstLook(longer).has_value());
  EXPECT_FALSE(FirstLook(of_after_a_clear).has_value());
}

TEST_F(MappedRegionTest, WhatLiesThereIsSoundUntilAByteIsChanged) {
  Fill(1);
  const auto header = FirstLook(BlockOf(Generation{3}));
  ASSERT_TRUE(header.has_value());

  EXPECT_TRUE(LiesSound(BlockOf(Generation{3}), header->pieces));
  writable_->bytes()[kOffset + kLength - 1] ^= std::byte{1};
  EXPECT_FALSE(LiesSound(BlockOf(Generation{3}), header->pieces));
}

}  // namespace
}  // namespace firnkv
