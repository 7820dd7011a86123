// The real device over a real file: what a fake cannot say.

#include "server/io/uring_device.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/mutex.h"
#include "proto/base/text.h"
#include "server/io/buffer_pool.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kPage = kDeviceAlignment;

// Ends of transfers, to wait for.
class Ends {
 public:
  BlockDevice::Done Next() {
    return [this](absl::Status status) {
      MutexLock lock(&mutex_);
      statuses_.push_back(std::move(status));
      changed_.SignalAll();
    };
  }
  std::vector<absl::Status> Wait(std::size_t count) {
    MutexLock lock(&mutex_);
    while (statuses_.size() < count) changed_.Wait(&mutex_);
    return statuses_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::Status> statuses_ ABSL_GUARDED_BY(mutex_);
};

class UringDeviceTest : public testing::Test {
 protected:
  UringDeviceTest() {
    std::string pattern = testing::TempDir() + "/uring_device_XXXXXX";
    const int fd = ::mkstemp(pattern.data());
    ::close(fd);
    path_ = pattern;
  }
  ~UringDeviceTest() override { ::unlink(path_.c_str()); }

  void Open(UringDevice::Options options = {}) {
    ASSERT_OK_AND_ASSIGN(DeviceFile file,
                         OpenDeviceFile({.path = path_, .bytes = kBytes}));
    ASSERT_OK_AND_ASSIGN(device_,
                         UringDevice::Open(std::move(file), options, &clock_));
  }
  absl::Status Write(std::uint64_t offset, absl::Span<const std::byte> from) {
    Ends ends;
    device_->StartWrite(offset, from, ends.Next());
    return ends.Wait(1)[0];
  }
  absl::Status Read(std::uint64_t offset, absl::Span<std::byte> into) {
    Ends ends;
    device_->StartRead(offset, into, ends.Next());
    return ends.Wait(1)[0];
  }
  absl::Status Flush() {
    Ends ends;
    device_->StartFlush(ends.Next());
    return ends.Wait(1)[0];
  }
  static void Fill(absl::Span<std::byte> bytes, int seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>((i / 512 + i + seed) % 251);
    }
  }

  static constexpr std::uint64_t kBytes = 16 * kMiB;
  SystemClock clock_;
  std::string path_;
  std::unique_ptr<UringDevice> device_;
};

TEST_F(UringDeviceTest, WhatIsWrittenIsRead) {
  Open();
  AlignedMemory from(2 * kMiB);
  AlignedMemory into(2 * kMiB);
  Fill(from.bytes(), 1);

  ASSERT_OK(Write(kMiB, from.bytes()));
  ASSERT_OK(Flush());
  ASSERT_OK(Read(kMiB, into.bytes()));

  EXPECT_TRUE(std::equal(from.bytes().begin(), from.bytes().end(),
                         into.bytes().begin()));
}

TEST_F(UringDeviceTest, RegisteredMemoryCarriesTheSameBytes) {
  Open();
  AlignedMemory memory(2 * kMiB);
  const absl::Status registered = device_->RegisterMemory(memory.bytes());
  if (!device_->features().fixed_memory) {
    EXPECT_THAT(registered, StatusIs(absl::StatusCode::kResourceExhausted));
  }
  Fill(memory.bytes().subspan(0, kMiB), 2);

  ASSERT_OK(Write(0, memory.bytes().subspan(0, kMiB)));
  ASSERT_OK(Read(0, memory.bytes().subspan(kMiB, kMiB)));
  device_->UnregisterMemory(memory.bytes());
  ASSERT_OK(Read(0, memory.bytes().subspan(kMiB, kMiB)));

  EXPECT_TRUE(std::equal(memory.bytes().begin(), memory.bytes().begin() + kMiB,
                         memory.bytes().begin() + kMiB));
}

TEST_F(UringDeviceTest, ABatchBeyondTheDepthEndsWhole) {
  Open({.depth = 4});
  AlignedMemory from(256 * kPage);
  AlignedMemory into(256 * kPage);
  Fill(from.bytes(), 3);
  ASSERT_OK(Write(0, from.bytes()));
  Ends ends;
  std::vector<BlockDevice::ReadRequest> batch;
  for (std::uint64_t page = 0; page < 256; ++page) {
    BlockDevice::ReadRequest one;
    one.offset = page * kPage;
    one.into = into.bytes().subspan(page * kPage, kPage);
    one.done = ends.Next();
    batch.push_back(std::move(one));
  }

  device_->StartReads(absl::MakeSpan(batch));

  for (const absl::Status& status : ends.Wait(256)) EXPECT_OK(status);
  EXPECT_TRUE(std::equal(from.bytes().begin(), from.bytes().end(),
                         into.bytes().begin()));
  EXPECT_EQ(device_->GetLoad().transfers, 0u);
  EXPECT_EQ(device_->GetLoad().bytes, 0u);
}

TEST_F(UringDeviceTest, AFullQueueRefusesAndKeepsWhatItTook) {
  Open({.depth = 1, .max_queued = 8});
  AlignedMemory memory(64 * kPage);
  Ends ends;
  std::vector<BlockDevice::WriteRequest> batch;
  for (std::uint64_t page = 0; page < 64; ++page) {
    BlockDevice::WriteRequest one;
    one.offset = page * kPage;
    one.from = memory.bytes().subspan(page * kPage, kPage);
    one.done = ends.Next();
    batch.push_back(std::move(one));
  }

  device_->StartWrites(absl::MakeSpan(batch));

  int taken = 0;
  for (const absl::Status& status : ends.Wait(64)) {
    if (status.ok()) {
      ++taken;
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
    }
  }
  EXPECT_EQ(taken, 8);
}

TEST_F(UringDeviceTest, BeyondTheEndNothingIsIssued) {
  Open();
  AlignedMemory memory(2 * kPage);

  EXPECT_THAT(Read(kBytes - kPage, memory.bytes()),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(Write(kBytes, memory.bytes()),
              StatusIs(absl::StatusCode::kOutOfRange));
}

// Rule F5: a read of 0 bytes, and a short one.
TEST_F(UringDeviceTest, AFileThatShrankBeneathItIsLostBytes) {
  Open();
  AlignedMemory memory(2 * kPage);
  ASSERT_EQ(::truncate(path_.c_str(), kMiB + kPage), 0);

  EXPECT_THAT(Read(kMiB, memory.bytes()),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Read(2 * kMiB, memory.bytes()),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_OK(Read(kMiB, memory.bytes().subspan(0, kPage)));
}

TEST_F(UringDeviceTest, DrainWaitsForWhatWasStarted) {
  Open({.depth = 2});
  AlignedMemory memory(128 * kPage);
  Ends ends;
  for (std::uint64_t page = 0; page < 128; ++page) {
    device_->StartWrite(
        page * kPage, memory.bytes().subspan(page * kPage, kPage), ends.Next());
  }

  device_->Drain();

  EXPECT_EQ(ends.Wait(128).size(), 128u);
  EXPECT_THAT(Flush(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(UringDeviceTest, ADoneMayStartTheNextTransfer) {
  Open();
  AlignedMemory memory(kPage);
  Ends ends;

  device_->StartWrite(0, memory.bytes(), [&](absl::Status status) {
    EXPECT_OK(status);
    device_->StartFlush(ends.Next());
  });

  EXPECT_OK(ends.Wait(1)[0]);
}

TEST_F(UringDeviceTest, WhatIsMissingIsSaidInWords) {
  Open();
  const UringFeatures features = device_->features();

  const int missing =
      (features.direct ? 0 : 1) + (features.fixed_file ? 0 : 1) +
      (features.fixed_memory ? 0 : 1) + (features.deferred ? 0 : 1);
  EXPECT_EQ(features.missing.size(), static_cast<std::size_t>(missing));
}

TEST_F(UringDeviceTest, OneProcessHasADeviceAtATime) {
  Open();

  EXPECT_THAT(OpenDeviceFile({.path = path_, .bytes = kBytes}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(UringDeviceTest, AFileHasItsBytesFromTheStart) {
  ASSERT_OK_AND_ASSIGN(const DeviceFile file,
                       OpenDeviceFile({.path = path_, .bytes = kBytes}));

  EXPECT_TRUE(file.fresh);
  EXPECT_EQ(file.bytes, kBytes);
  EXPECT_EQ(::lseek(file.descriptor.get(), 0, SEEK_END),
            static_cast<off_t>(kBytes));
}

// Rule F5.
TEST_F(UringDeviceTest, ACapBeyondTheFreeSpaceIsRefusedAtTheStart) {
  EXPECT_THAT(OpenDeviceFile({.path = path_, .bytes = kGiB << 20}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(
      OpenDeviceFile(
          {.path = path_, .bytes = kBytes, .reserve_bytes = kGiB << 20}),
      StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(OpenDeviceFile({.path = path_, .bytes = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace firnkv
