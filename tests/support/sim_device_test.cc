#include "tests/support/sim_device.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

class SimDeviceTest : public ::testing::Test {
 protected:
  absl::Status Write(std::uint64_t offset, std::byte value) {
    const std::vector<std::byte> bytes(8 * kDeviceAlignment, value);
    return Run([&](BlockDevice::Done done) {
      device_.StartWrite(offset, bytes, std::move(done));
    });
  }
  absl::Status Read(std::uint64_t offset) {
    read_.assign(8 * kDeviceAlignment, std::byte{0xee});
    return Run([&](BlockDevice::Done done) {
      device_.StartRead(offset, absl::MakeSpan(read_), std::move(done));
    });
  }
  absl::Status Flush() {
    return Run(
        [&](BlockDevice::Done done) { device_.StartFlush(std::move(done)); });
  }
  template <typename Start>
  absl::Status Run(Start start) {
    absl::Status result = absl::UnknownError("not yet");
    start([&](absl::Status status) { result = status; });
    world_.RunUntilIdle();
    return result;
  }
  int Count(std::byte value) {
    return static_cast<int>(std::count(read_.begin(), read_.end(), value));
  }

  SimExecutor world_{11};
  SimDevice device_{world_.NewProcess("first"), 64 * kDeviceAlignment};
  std::vector<std::byte> read_;
};

TEST_F(SimDeviceTest, WhatWasFlushedSurvivesACrash) {
  ASSERT_OK(Write(0, std::byte{1}));
  ASSERT_OK(Flush());

  device_.Crash(world_.NewProcess("second"));

  ASSERT_OK(Read(0));
  EXPECT_EQ(Count(std::byte{1}), static_cast<int>(read_.size()));
}

// Rule F1, F2: what a recovery must cope with.
TEST_F(SimDeviceTest, WhatWasNotFlushedIsTornByACrash) {
  ASSERT_OK(Write(0, std::byte{1}));

  device_.Crash(world_.NewProcess("second"));

  ASSERT_OK(Read(0));
  EXPECT_GT(Count(std::byte{1}), 0);
  EXPECT_GT(Count(std::byte{0}), 0);
}

TEST_F(SimDeviceTest, AFlushThatLiesProtectsNothing) {
  device_.LieAboutFlushes(true);
  ASSERT_OK(Write(0, std::byte{1}));
  ASSERT_OK(Flush());

  device_.Crash(world_.NewProcess("second"));

  ASSERT_OK(Read(0));
  EXPECT_GT(Count(std::byte{0}), 0);
}

// Rule F5.
TEST_F(SimDeviceTest, FailuresAndShortReadsAreReported) {
  device_.FailNext(1);
  EXPECT_THAT(Read(0), StatusIs(absl::StatusCode::kUnavailable));
  device_.ShortenNextReads(1);
  EXPECT_THAT(Read(0), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_OK(Read(0));
}

TEST_F(SimDeviceTest, AStalledDeviceEndsNothingUntilItResumes) {
  device_.Stall();
  EXPECT_THAT(Read(0), StatusIs(absl::StatusCode::kUnknown));
  EXPECT_EQ(device_.transfers_in_flight(), 1u);

  device_.Crash(world_.NewProcess("second"));
  EXPECT_OK(Read(0));
}

// Rule F5.
TEST_F(SimDeviceTest, AFullDeviceTakesNothingMore) {
  device_.set_full(true);

  EXPECT_THAT(Write(0, std::byte{1}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(SimDeviceTest, LostWritesAnswerOk) {
  device_.SetFaults({.lost_writes = 1000});
  ASSERT_OK(Write(0, std::byte{1}));

  ASSERT_OK(Read(0));

  EXPECT_EQ(Count(std::byte{1}), 0);
}

TEST_F(SimDeviceTest, MisdirectedWritesLandElsewhere) {
  const std::uint64_t meant = 32 * kDeviceAlignment;
  device_.SetFaults({.misdirected_writes = 1000});
  ASSERT_OK(Write(meant, std::byte{1}));

  ASSERT_OK(Read(meant));
  EXPECT_EQ(Count(std::byte{1}), 0);
  int found = 0;
  for (std::uint64_t page = 0; page < 64; page += 8) {
    ASSERT_OK(Read(page * kDeviceAlignment));
    found += Count(std::byte{1});
  }
  EXPECT_EQ(found, static_cast<int>(read_.size()));
}

TEST_F(SimDeviceTest, TornWritesAnswerOk) {
  device_.SetFaults({.torn_writes = 1000});
  ASSERT_OK(Write(0, std::byte{1}));

  ASSERT_OK(Read(0));

  EXPECT_GT(Count(std::byte{1}), 0);
  EXPECT_GT(Count(std::byte{0}), 0);
}

TEST_F(SimDeviceTest, AfterAPowerCutNothingEnds) {
  device_.CutPowerAfter(1);
  ASSERT_OK(Write(0, std::byte{1}));

  EXPECT_THAT(Write(0, std::byte{2}), StatusIs(absl::StatusCode::kUnknown));
  EXPECT_THAT(Read(0), StatusIs(absl::StatusCode::kUnknown));
  EXPECT_TRUE(device_.power_is_cut());

  device_.Crash(world_.NewProcess("second"));
  ASSERT_OK(Read(0));
  EXPECT_EQ(Count(std::byte{2}), 0);
}

TEST_F(SimDeviceTest, OneByteCanTurnOver) {
  ASSERT_OK(Write(0, std::byte{1}));
  device_.CorruptOneByte(5);

  ASSERT_OK(Read(0));

  EXPECT_EQ(read_[5], std::byte{0x11});
}

}  // namespace
}  // namespace firnkv
