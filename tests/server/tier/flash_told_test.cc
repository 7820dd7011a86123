// What others are told of a flash device's records: after the flush (rule F2),
// after the namespace was confirmed (rule C3), and taken back with whatever
// makes a record go.

#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/tier/flash_fixture.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kBytes = 4000;

// What the catalog would know: of a block at most one copy, the last one told.
class Listener : public PoolEvents {
 public:
  void OnPublished(const SlotHeader& copy) override {
    ++published;
    EXPECT_FALSE(known.contains(copy.block));
    known[copy.block] = copy;
  }
  void OnWithdrawn(const SlotHeader& copy) override {
    const auto it = known.find(copy.block);
    ASSERT_NE(it, known.end());
    EXPECT_EQ(it->second.generation, copy.generation);
    known.erase(it);
  }
  std::map<BlockId, SlotHeader> known;
  int published = 0;
};

class FlashToldTest : public testing::Test {
 protected:
  FlashToldTest() { flash_.TellTo(&listener_); }

  std::vector<FlashBlock> Blocks(int count, ClearEpoch epoch = ClearEpoch{1}) {
    std::vector<FlashBlock> blocks;
    for (int i = 0; i < count; ++i) {
      blocks.push_back(MakeFlashBlock(0, i, kBytes, epoch));
    }
    return blocks;
  }
  void StoreAll(const std::vector<FlashBlock>& blocks) {
    for (const auto& outcome : flash_.StoreAll(blocks)) {
      EXPECT_EQ(outcome, StoreOutcome::kStored);
    }
  }
  void Settle() {
    EXPECT_TRUE(
        flash_.world()->RunUntil([this] { return flash_.tier()->settled(); }));
  }
  // What a reading of the device says was told.
  std::map<BlockId, SlotHeader> ReadTold() {
    std::map<BlockId, SlotHeader> all;
    std::optional<std::uint32_t> next = 0;
    while (next) {
      bool got = false;
      const std::uint32_t from = *next;
      flash_.tier()->ReadTold(from, [&](const std::vector<SlotHeader>& told,
                                        std::optional<std::uint32_t> go_on) {
        for (const SlotHeader& one : told) all[one.block] = one;
        next = go_on;
        got = true;
      });
      EXPECT_TRUE(flash_.world()->RunUntil([&got] { return got; }));
    }
    return all;
  }
  void ExpectToldIs(const std::vector<FlashBlock>& blocks) {
    EXPECT_EQ(listener_.known.size(), blocks.size());
    for (const FlashBlock& block : blocks) {
      const auto it = listener_.known.find(block.header.block);
      ASSERT_NE(it, listener_.known.end());
      EXPECT_EQ(it->second.place, block.header.place);
      EXPECT_EQ(it->second.length, block.header.length);
      EXPECT_EQ(it->second.clear_epoch, block.header.clear_epoch);
    }
    EXPECT_EQ(flash_.tier()->Look().told, blocks.size());
    EXPECT_EQ(flash_.tier()->Look().lagging, 0);
    EXPECT_EQ(ReadTold(), listener_.known);
  }

  FlashWorld flash_;
  Listener listener_;
};

// Rule F2.
TEST_F(FlashToldTest, ARecordIsToldOnlyAfterItsFlush) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, kBytes);
  flash_.device()->SetFaults({.failed_flushes = 1000});
  EXPECT_EQ(flash_.Store(block), StoreOutcome::kDeviceFailed);
  ExpectToldIs({});

  flash_.device()->SetFaults({});
  EXPECT_EQ(flash_.Store(block), StoreOutcome::kStored);
  ExpectToldIs({block});
  EXPECT_EQ(listener_.known[block.header.block].generation,
            flash_.generations()[0]);
}

// Rule C3.
TEST_F(FlashToldTest, WhatRecoveryFoundIsToldOnceItIsConfirmed) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Blocks(20);
  StoreAll(blocks);
  listener_.known.clear();
  flash_.Crash();

  ASSERT_OK(flash_.Open());
  EXPECT_EQ(flash_.tier()->recovered().records, 20);
  ExpectToldIs({});
  EXPECT_FALSE(flash_.tier()->LengthOf(blocks[0].header.block).has_value());

  // Somebody else's namespace is no confirmation.
  flash_.Confirm(1);
  Settle();
  ExpectToldIs({});

  flash_.Confirm(0);
  Settle();
  ExpectToldIs(blocks);
  EXPECT_EQ(flash_.tier()->LengthOf(blocks[0].header.block), kBytes);
  for (const FlashBlock& block : blocks) {
    EXPECT_EQ(flash_.Load(block), LoadOutcome::kLoaded);
  }
}

// Rules C2, C3: cleared while the node was down.
TEST_F(FlashToldTest, WhatWasClearedMeanwhileIsNeverTold) {
  ASSERT_OK(flash_.Boot());
  StoreAll(Blocks(20));
  listener_.known.clear();
  flash_.Crash();

  ASSERT_OK(flash_.Open());
  flash_.Confirm(0, ClearEpoch{2});
  Settle();
  ExpectToldIs({});
  EXPECT_EQ(flash_.tier()->GetOccupancy().blocks, 0);
}

TEST_F(FlashToldTest, AClearTakesBackWhatWasTold) {
  ASSERT_OK(flash_.Boot());
  StoreAll(Blocks(10));
  flash_.Confirm(0, ClearEpoch{2});
  Settle();
  ExpectToldIs({});
  EXPECT_EQ(flash_.tier()->GetOccupancy().blocks, 0);
}

// A namespace keeps its tenant for life; what stands in another's segment is
// nobody's.
TEST_F(FlashToldTest, ASegmentOfAnotherTenantIsNeverTold) {
  ASSERT_OK(flash_.Boot());
  StoreAll(Blocks(3));
  listener_.known.clear();
  flash_.Crash();

  ASSERT_OK(flash_.Open());
  flash_.tier()->Confirm({.name_space = NamespaceOf(0),
                          .tenant = TenantOf(1),
                          .clear_epoch = ClearEpoch{1}});
  Settle();
  ExpectToldIs({});
  EXPECT_EQ(flash_.tier()->GetOccupancy().blocks, 0);
}

TEST_F(FlashToldTest, ANamespaceThatIsTurnedOffIsHiddenAndComesBack) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Blocks(10);
  StoreAll(blocks);

  flash_.tier()->Confirm({.name_space = NamespaceOf(0),
                          .tenant = TenantOf(0),
                          .clear_epoch = ClearEpoch{1},
                          .serves = false});
  Settle();
  ExpectToldIs({});
  EXPECT_EQ(flash_.Load(blocks[0]), LoadOutcome::kAbsent);
  EXPECT_EQ(flash_.Store(MakeFlashBlock(0, 99, kBytes)),
            StoreOutcome::kRefused);

  flash_.Confirm(0);
  Settle();
  ExpectToldIs(blocks);
  EXPECT_EQ(flash_.Load(blocks[0]), LoadOutcome::kLoaded);
}

TEST_F(FlashToldTest, AReclaimedSegmentIsTakenBackRecordByRecord) {
  ASSERT_OK(flash_.Boot());
  std::vector<FlashBlock> blocks = Blocks(150);
  StoreAll(blocks);
  ExpectToldIs(blocks);

  const std::optional<std::uint64_t> freed = flash_.Reclaim(1);
  ASSERT_TRUE(freed.has_value());
  EXPECT_GT(*freed, 0);
  EXPECT_LT(listener_.known.size(), blocks.size());
  std::erase_if(blocks, [this](const FlashBlock& block) {
    return !listener_.known.contains(block.header.block);
  });
  EXPECT_FALSE(blocks.empty());
  ExpectToldIs(blocks);
}

// What is told must be named to be taken back.
TEST_F(FlashToldTest, ASegmentWhoseTableIsDamagedIsNotWrittenAgain) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Blocks(150);
  StoreAll(blocks);
  const FlashSuperblock layout = flash_.tier()->layout();
  const std::uint32_t free = flash_.tier()->Look().free;
  for (std::uint32_t i = 0; i < layout.segments; ++i) {
    flash_.device()->CorruptOneByte(layout.SegmentOffset(i) +
                                    SealOffset(layout.segment_bytes) + 8);
  }
  EXPECT_EQ(flash_.Reclaim(1), 0);
  EXPECT_EQ(flash_.tier()->Look().free, free);
  EXPECT_EQ(listener_.known.size(), blocks.size());
}

// Rule P12: also where the record's header, and with it its name, is damaged.
TEST_F(FlashToldTest, ADamagedRecordIsTakenBack) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Blocks(4);
  StoreAll(blocks);
  // The first record of the first segment begins behind its header.
  const FlashSuperblock layout = flash_.tier()->layout();
  flash_.device()->CorruptOneByte(layout.SegmentOffset(0) + kFlashPage + 20);
  EXPECT_EQ(flash_.Load(blocks[0]), LoadOutcome::kCorrupt);
  Settle();
  ExpectToldIs({blocks[1], blocks[2], blocks[3]});
  EXPECT_EQ(flash_.Load(blocks[0]), LoadOutcome::kAbsent);
}

TEST_F(FlashToldTest, AnErasedBlockIsTakenBack) {
  ASSERT_OK(flash_.Boot());
  const std::vector<FlashBlock> blocks = Blocks(2);
  StoreAll(blocks);
  flash_.tier()->Erase(blocks[0].header.block);
  ExpectToldIs({blocks[1]});
}

// A crash may leave a record in its old and its new place.
TEST_F(FlashToldTest, ABlockInTwoPlacesIsToldOnce) {
  ASSERT_OK(flash_.Boot());
  const FlashBlock block = MakeFlashBlock(0, 1, kBytes);
  // Two stores that do not know of each other.
  for (const auto& outcome : flash_.StoreAll({block, block})) {
    EXPECT_EQ(outcome, StoreOutcome::kStored);
  }
  EXPECT_EQ(listener_.published, 2);
  ExpectToldIs({block});
  listener_.known.clear();
  flash_.Crash();

  ASSERT_OK(flash_.Boot());
  Settle();
  ExpectToldIs({block});
  EXPECT_EQ(flash_.Load(block), LoadOutcome::kLoaded);
}

}  // namespace
}  // namespace firnkv
