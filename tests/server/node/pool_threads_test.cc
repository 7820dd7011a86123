// The pool, the copier and the reservations under real threads: writers,
// readers and housekeeping at once. ThreadSanitizer looks for races; the test
// looks at every byte that a reader gets.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/transport/thread_executor.h"
#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "server/node/copier.h"
#include "server/node/reservations.h"
#include "tests/server/tier/pool_fixture.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kKeys = 200;
constexpr int kRounds = 600;  // Of each writer.

// Waits for one completion.
class Latch {
 public:
  void Set() {
    MutexLock lock(&mutex_);
    set_ = true;
    changed_.SignalAll();
  }
  void Wait() {
    MutexLock lock(&mutex_);
    while (!set_) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
};

// SimMemory's maker belongs to one thread; two tenants' regions grow on two.
class LockedMemory : public MemoryMaker {
 public:
  absl::StatusOr<std::shared_ptr<SharedMemory>> Make(
      MemoryKindWanted kind, std::string_view name,
      std::uint64_t bytes) override {
    MutexLock lock(&mutex_);
    return memory_.Make(kind, name, bytes);
  }
  absl::StatusOr<HeaderTable> MakeHeaderTable(std::string_view name,
                                              std::uint64_t bytes) override {
    MutexLock lock(&mutex_);
    return memory_.MakeHeaderTable(name, bytes);
  }

 private:
  Mutex mutex_;
  SimMemory memory_ ABSL_GUARDED_BY(mutex_);
};

class PoolThreadsTest : public testing::Test {
 protected:
  PoolThreadsTest() {
#ifdef FIRNKV_TSAN
    // The graph in which Debian's abseil looks for cycles is not built for TSan
    // either: two threads that take nested locks are reported inside it. TSan
    // looks for cycles itself; in the other builds abseil goes on doing so.
    TurnOffDeadlockDetection();
#endif
    PoolOptions options;
    options.epoch = kEpoch;
    options.target_bytes = 3 * kMiB;
    options.region_bytes = kMiB;
    options.reserve_bytes = 0;
    executor_ = *ThreadExecutor::Make({.threads = 2, .name = "test"}, &clock_);
    pool_ = std::make_unique<DramPool>(
        options, DramPool::Parts{.clock = &clock_,
                                 .executor = executor_.get(),
                                 .memory = &memory_,
                                 .events = &events_});
    copier_ = std::make_unique<Copier>(
        Copier::Options{},
        Copier::Parts{.pool = pool_.get(), .executor = executor_.get()});
    reservations_ = std::make_unique<Reservations>(
        Reservations::Options{},
        Reservations::Parts{.pool = pool_.get(),
                            .copier = copier_.get(),
                            .executor = executor_.get()});
    for (std::uint64_t i = 1; i <= 2; ++i) {
      PoolNamespace made;
      made.id = MakeId<NamespaceId>(i);
      made.tenant = MakeId<TenantId>(i);
      made.clear_epoch = ClearEpoch{1};
      name_spaces_.push_back(made);
    }
  }
  ~PoolThreadsTest() override {
    copier_->Drain();
    reservations_.reset();
    copier_.reset();
    pool_.reset();
  }

  // The bytes of a block follow from its namespace and key.
  static std::byte FillOf(const PoolNamespace& name_space,
                          std::uint64_t number) {
    return std::byte(name_space.id.bytes[0] * 100 + number % 100);
  }
  static std::uint64_t LengthOf(std::uint64_t number) {
    return number % 3 == 0 ? 100'000 : number % 3 == 1 ? 4096 : 16'384;
  }

  void WriteOne(const PoolNamespace& name_space, std::uint64_t number,
                SessionId session) {
    ReserveBlock block;
    block.key = Key(number);
    block.length = LengthOf(number);
    const std::vector<std::byte> bytes(block.length,
                                       FillOf(name_space, number));
    Reservations::ReserveAnswer reserved;
    Latch got;
    reservations_->StartReserve(
        {.session = session,
         .name_space = name_space,
         .blocks = {block},
         .deadline = clock_.Now() + absl::Milliseconds(20),
         .reserve_for = absl::Seconds(20)},
        [&](Reservations::ReserveAnswer answer) {
          reserved = std::move(answer);
          got.Set();
        });
    got.Wait();
    ASSERT_OK(reserved.status);
    if (reserved.outcomes[0] != Outcome::kStored) return;
    if (number % 10 == 0) {
      return reservations_->Abort(session, reserved.reservation);
    }
    Reservations::CommitRequest request;
    request.session = session;
    request.reservation = reserved.reservation;
    request.deadline = clock_.Now() + absl::Seconds(20);
    request.blocks.push_back({.index = 0,
                              .source = {{.bytes = bytes, .keeps_mapped = {}}},
                              .pieces = PieceChecksums(bytes)});
    Latch done;
    reservations_->StartCommit(std::move(request),
                               [&](Reservations::CommitAnswer) { done.Set(); });
    done.Wait();
  }

  void ReadOne(const PoolNamespace& name_space, std::uint64_t number,
               SessionId session) {
    const HeldRequest::Key key{.key = Key(number)};
    HeldRequest request;
    request.name_space = &name_space;
    request.keys = absl::MakeConstSpan(&key, 1);
    const HeldBlock held = std::move(pool_->OpenHeld(request).blocks[0]);
    if (held.outcome == Outcome::kHit) {
      const std::byte fill = FillOf(name_space, number);
      ASSERT_TRUE(std::all_of(held.bytes.begin(), held.bytes.end(),
                              [fill](std::byte b) { return b == fill; }));
      ++hits_;
    }
    OpenRequest open;
    open.name_space = &name_space;
    open.session = session;
    open.keys = absl::MakeConstSpan(&key.key, 1);
    open.lease = absl::Milliseconds(5);
    const OpenAnswer answer = pool_->Open(open);
    if (answer.lease.id != LeaseId::kNone && number % 2 == 0) {
      pool_->Release(session, {answer.lease.id});
    }
  }

  SystemClock clock_;
  LockedMemory memory_;
  EventRecorder events_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<DramPool> pool_;
  std::unique_ptr<Copier> copier_;
  std::unique_ptr<Reservations> reservations_;
  std::vector<PoolNamespace> name_spaces_;
  std::atomic<std::uint64_t> hits_{0};
};

TEST_F(PoolThreadsTest, ReadersSeeOnlyWhatWasCommittedWhateverElseGoesOn) {
  // Readers and housekeeping go on for as long as there are writers: readers
  // that only count rounds are done before the first region is there.
  std::atomic<int> writers{2};
  std::vector<std::thread> threads;
  for (std::uint64_t n = 0; n < 4; ++n) {
    threads.emplace_back([this, n, &writers] {
      SeededRandom random(n + 1);
      const SessionId session = MakeId<SessionId>(50 + n);
      const auto any = [&](auto&& use) {
        const PoolNamespace& name_space = name_spaces_[random.Below(2)];
        use(name_space, 1 + random.Below(kKeys));
      };
      if (n < 2) {
        for (int i = 0; i < kRounds; ++i) {
          any([&](const PoolNamespace& name_space, std::uint64_t number) {
            WriteOne(name_space, number, session);
          });
        }
        --writers;
        return;
      }
      while (writers > 0) {
        any([&](const PoolNamespace& name_space, std::uint64_t number) {
          ReadOne(name_space, number, session);
        });
      }
    });
  }
  threads.emplace_back([this, &writers] {
    SeededRandom random(99);
    for (int i = 0; writers > 0; ++i) {
      pool_->Sweep(100);
      // Seldom: there shall be something to read.
      if (i % 50 == 0) pool_->Evict(random.Below(64 * kKiB));
      if (i % 10 == 0) {
        pool_->Remove(name_spaces_[0].id, {Key(1 + random.Below(kKeys))});
      }
      if (i % 200 == 0) pool_->SetTarget((2 + random.Below(2)) * kMiB);
      std::uint32_t cursor = 0;
      while (pool_->EachResident(&cursor, 50, [](const SlotHeader&) {})) {
      }
    }
  });
  for (std::thread& thread : threads) thread.join();

  // Else nothing was looked at.
  EXPECT_GT(hits_, 100u);
  EXPECT_GT(pool_->Snapshot().commits, 100u);
  const PoolSnapshot s = pool_->Snapshot();
  EXPECT_EQ(s.holds, 0u);
  EXPECT_EQ(s.reserved_slots, 0u);
  EXPECT_EQ(s.blocks, events_.present.size());
  EXPECT_EQ(s.live_region_bytes + s.retiring_region_bytes,
            s.free_slot_bytes + s.reserved_bytes + s.resident_bytes +
                s.retiring_bytes + s.unused_unit_bytes + s.slab_rest_bytes);
  EXPECT_EQ(reservations_->totals().reserved_bytes, 0u);
}

// Rule P8: whoever ends a hold counts it down under the pool's lock.
TEST_F(PoolThreadsTest, OfHoldsThatManyThreadsEndNoneIsLeft) {
  constexpr int kHolds = 40'000;
  const PoolNamespace& name_space = name_spaces_[0];
  const SessionId session = MakeId<SessionId>(50);
  // Not one that is aborted.
  WriteOne(name_space, 1, session);
  const HeldRequest::Key key{.key = Key(1)};
  HeldRequest request;
  request.name_space = &name_space;
  request.keys = absl::MakeConstSpan(&key, 1);
  std::vector<std::thread> threads;
  for (int n = 0; n < 3; ++n) {
    threads.emplace_back([&] {
      for (int i = 0; i < kHolds; ++i) {
        if (pool_->OpenHeld(request).blocks[0].outcome == Outcome::kHit) {
          ++hits_;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(hits_, 3u * kHolds);
  EXPECT_EQ(pool_->Snapshot().holds, 0u);
  // And the slot is free for others.
  pool_->Remove(name_space.id, {Key(1)});
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 0u);
}

}  // namespace
}  // namespace firnkv
