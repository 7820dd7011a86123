// The flash tier as a daemon runs it: io_uring, a real file, several threads.

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/thread_executor.h"
#include "gtest/gtest.h"
#include "server/io/uring_device.h"
#include "tests/server/tier/flash_fixture.h"

namespace firnkv {
namespace {

// Counts ends, for a thread that waits for all of them.
class Barrier {
 public:
  void End() {
    MutexLock lock(&mutex_);
    ++ended_;
    changed_.SignalAll();
  }
  void Wait(std::uint64_t count) {
    MutexLock lock(&mutex_);
    while (ended_ < count) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
};

class FlashThreadsTest : public testing::Test {
 protected:
  FlashThreadsTest() {
    std::string pattern = testing::TempDir() + "/flash_threads_XXXXXX";
    ::close(::mkstemp(pattern.data()));
    path_ = pattern;
    options_ = FlashWorld::SmallOptions();
    options_.opening.largest_block_bytes = 64 * kKiB;
    options_.writer.round_bytes = kMiB;
    options_.reader.buffer_bytes = 4 * kMiB;
    options_.scrubber.budget = {.bytes_a_day = 1'000'000 * kGiB,
                                .burst_bytes = 64 * kMiB};
    options_.keep_free_segments = 2;
  }
  ~FlashThreadsTest() override { ::unlink(path_.c_str()); }

  void Open() {
    ASSERT_OK_AND_ASSIGN(DeviceFile file,
                         OpenDeviceFile({.path = path_, .bytes = 32 * kMiB}));
    ASSERT_OK_AND_ASSIGN(device_,
                         UringDevice::Open(std::move(file), {}, &clock_));
    ASSERT_OK_AND_ASSIGN(executor_,
                         ThreadExecutor::Make({.threads = 3}, &clock_));
    tier_ = std::make_unique<FlashTier>(
        options_, device_.get(), executor_.get(), &random_, &order_,
        [this](std::uint64_t count) {
          return Generation{next_generation_.fetch_add(count)};
        });
    Barrier opened;
    absl::Status status;
    tier_->Open([&](absl::Status done) {
      status = std::move(done);
      opened.End();
    });
    opened.Wait(1);
    ASSERT_OK(status);
    for (int tenant = 0; tenant < 3; ++tenant) {
      tier_->Confirm({.name_space = NamespaceOf(tenant),
                      .tenant = TenantOf(tenant),
                      .clear_epoch = ClearEpoch{1}});
    }
  }
  void Close() {
    Barrier drained;
    tier_->Drain([&] { drained.End(); });
    drained.Wait(1);
    executor_->Stop();
    device_->Drain();
    tier_.reset();
    device_.reset();
    executor_.reset();
  }

  SystemClock clock_;
  SystemRandom random_;
  ColdestSegmentFirst order_;
  std::atomic<std::uint64_t> next_generation_{1};
  std::string path_;
  FlashTier::Options options_;
  std::unique_ptr<UringDevice> device_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<FlashTier> tier_;
};

TEST_F(FlashThreadsTest, StoresLoadsReclaimAndScrubbingAtOnceServeOnlyRight) {
  Open();
  std::vector<FlashBlock> blocks;
  for (int i = 0; i < 900; ++i) {
    blocks.push_back(MakeFlashBlock(i % 3, i + 1, 64 * kKiB - i));
  }
  std::atomic<int> stored{0};
  std::atomic<int> hits{0};
  std::atomic<int> wrong{0};
  Barrier ends;
  std::vector<std::vector<std::byte>> buffers(
      blocks.size(), std::vector<std::byte>(64 * kKiB));

  // Each block is loaded as soon as it is stored; twice as many as the device
  // has room for.
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Tier::StoreRequest store;
    store.header = &blocks[i].header;
    store.bytes = blocks[i].bytes;
    store.done = [&, i](StoreOutcome outcome, Generation) {
      if (outcome == StoreOutcome::kStored) ++stored;
      Tier::LoadRequest load;
      load.block = blocks[i].header.block;
      load.destination = absl::MakeSpan(buffers[i]);
      load.done = [&, i](LoadOutcome loaded, const SlotHeader& header) {
        if (loaded == LoadOutcome::kLoaded) {
          ++hits;
          if (header.pieces != blocks[i].header.pieces ||
              !std::equal(blocks[i].bytes.begin(), blocks[i].bytes.end(),
                          buffers[i].begin())) {
            ++wrong;
          }
        }
        ends.End();
      };
      tier_->Load(absl::MakeSpan(&load, 1), BootTime::Infinite());
    };
    tier_->Store(absl::MakeSpan(&store, 1));
    if (i % 50 == 49) ends.Wait(i - 20);
  }
  ends.Wait(blocks.size());

  EXPECT_GT(stored, 300);
  EXPECT_GT(hits, 100);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(tier_->ledger().reclaimed_segments.value(), 0u);
  EXPECT_EQ(tier_->ledger().corrupt_records.value(), 0u);
  Close();
}

TEST_F(FlashThreadsTest, ANextRunFindsWhatTheLastOneStored) {
  options_.keep_free_segments = 0;
  Open();
  std::vector<FlashBlock> blocks;
  for (int i = 0; i < 100; ++i) {
    blocks.push_back(MakeFlashBlock(i % 3, i + 1, 30'000));
  }
  Barrier stored;
  for (FlashBlock& block : blocks) {
    Tier::StoreRequest store;
    store.header = &block.header;
    store.bytes = block.bytes;
    store.done = [&](StoreOutcome outcome, Generation) {
      EXPECT_EQ(outcome, StoreOutcome::kStored);
      stored.End();
    };
    tier_->Store(absl::MakeSpan(&store, 1));
  }
  stored.Wait(blocks.size());
  Close();

  Open();

  EXPECT_EQ(tier_->recovered().records, blocks.size());
  Close();
}

}  // namespace
}  // namespace firnkv
