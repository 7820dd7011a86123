#include "tests/support/sim_tier.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/checksum.h"

namespace firnkv {
namespace {

class SimTierTest : public ::testing::Test {
 protected:
  SimTierTest() {
    header_.clear_epoch = ClearEpoch{1};
    tier_.Confirm(
        {.name_space = {}, .tenant = {}, .clear_epoch = header_.clear_epoch});
  }
  StoreOutcome Store(std::uint8_t key) {
    header_.block.key.bytes[0] = key;
    header_.length = bytes_.size();
    header_.pieces = PieceChecksums(bytes_);
    std::optional<StoreOutcome> outcome;
    std::vector<Tier::StoreRequest> batch(1);
    batch[0].header = &header_;
    batch[0].bytes = bytes_;
    batch[0].done = [&](StoreOutcome done, Generation) { outcome = done; };
    tier_.Store(absl::MakeSpan(batch));
    world_.RunUntilIdle();
    return *outcome;
  }
  LoadOutcome Load(std::uint8_t key,
                   absl::Duration deadline = absl::Seconds(1)) {
    BlockId block;
    block.key.bytes[0] = key;
    loaded_.assign(bytes_.size(), std::byte{0});
    std::optional<LoadOutcome> outcome;
    std::vector<Tier::LoadRequest> batch(1);
    batch[0].block = block;
    batch[0].destination = absl::MakeSpan(loaded_);
    batch[0].done = [&](LoadOutcome done, const SlotHeader&) {
      outcome = done;
    };
    tier_.Load(absl::MakeSpan(batch), world_.Now() + deadline);
    world_.RunUntilIdle();
    return *outcome;
  }

  SimExecutor world_{1};
  SimTier tier_{world_.NewProcess("node"), 8192};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096, std::byte{5});
  std::vector<std::byte> loaded_;
  SlotHeader header_;
};

TEST_F(SimTierTest, AStoredBlockIsLoadedWhole) {
  EXPECT_EQ(Store(1), StoreOutcome::kStored);
  EXPECT_EQ(Load(1), LoadOutcome::kLoaded);
  EXPECT_EQ(loaded_, bytes_);
  EXPECT_EQ(Store(1), StoreOutcome::kAlreadyThere);
}

TEST_F(SimTierTest, ADamagedCopyIsFoundAndIsolated) {
  EXPECT_EQ(Store(1), StoreOutcome::kStored);
  ASSERT_TRUE(tier_.CorruptOneByte(header_.block));

  EXPECT_EQ(Load(1), LoadOutcome::kCorrupt);
  EXPECT_EQ(Load(1), LoadOutcome::kAbsent);
}

TEST_F(SimTierTest, AFullTierSaysSoUntilSomethingIsErased) {
  EXPECT_EQ(Store(1), StoreOutcome::kStored);
  const BlockId first = header_.block;
  EXPECT_EQ(Store(2), StoreOutcome::kStored);
  EXPECT_EQ(Store(3), StoreOutcome::kFull);

  tier_.Erase(first);

  EXPECT_EQ(Store(3), StoreOutcome::kStored);
}

// Rules C2, C3.
TEST_F(SimTierTest, OnlyWhatIsConfirmedAndOfTheCurrentEpochIsThere) {
  EXPECT_EQ(Store(1), StoreOutcome::kStored);

  tier_.Confirm({.name_space = {}, .tenant = {}, .clear_epoch = ClearEpoch{2}});

  EXPECT_EQ(Load(1), LoadOutcome::kAbsent);
  EXPECT_EQ(Store(2), StoreOutcome::kRefused);
  header_.block.name_space.bytes[0] = 1;
  EXPECT_EQ(Store(2), StoreOutcome::kRefused);
}

TEST_F(SimTierTest, ALoadThatWouldBeLateIsCongestedAndAFailingDeviceSaysSo) {
  EXPECT_EQ(Store(1), StoreOutcome::kStored);
  EXPECT_EQ(Load(1, absl::Microseconds(1)), LoadOutcome::kCongested);

  tier_.set_failing(true);

  EXPECT_EQ(Load(1), LoadOutcome::kDeviceFailed);
}

}  // namespace
}  // namespace firnkv
