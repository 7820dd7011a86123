// Mutex, MutexLock and CondVar. In the TSan build these tests also show that
// correct code gives no report; deliberate_race.cc shows that a race gives one.

#include "proto/base/mutex.h"

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace firnkv {
namespace {

class Sum {
 public:
  void Add(int value) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    sum_ += value;
  }

  bool TryAdd(int value) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!mutex_.TryLock()) return false;
    sum_ += value;
    mutex_.Unlock();
    return true;
  }

  int Get() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return sum_;
  }

 private:
  mutable Mutex mutex_;
  int sum_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One value handed from one thread to another, then the next.
class Handover {
 public:
  void Put(int value) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (full_) changed_.Wait(&mutex_);
    value_ = value;
    full_ = true;
    changed_.SignalAll();
  }

  int Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (!full_) changed_.Wait(&mutex_);
    full_ = false;
    changed_.SignalAll();
    return value_;
  }

  bool WaitInVain() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (!full_) {
      if (changed_.WaitFor(&mutex_, absl::Milliseconds(1))) return true;
    }
    return false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
  int value_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, AdditionsOfManyThreadsUnderTheLockAllCount) {
  Sum sum;
  std::vector<std::thread> threads;

  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&sum] {
      for (int j = 0; j < 2000; ++j) sum.Add(1);
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(sum.Get(), 8000);
}

TEST(MutexTest, ALockThatWasTriedAndTakenExcludesTheOthers) {
  Sum sum;
  std::vector<std::thread> threads;

  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&sum] {
      for (int j = 0; j < 500;) j += sum.TryAdd(1) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(sum.Get(), 2000);
}

TEST(MutexTest, WhatOneThreadWroteBeforeASignalTheWaiterSees) {
  Handover handover;
  int received = 0;
  std::thread taker([&] {
    for (int i = 0; i < 500; ++i) received += handover.Take();
  });

  for (int i = 0; i < 500; ++i) handover.Put(2);
  taker.join();

  EXPECT_EQ(received, 1000);
}

TEST(MutexTest, AWaitWithoutASignalEndsAtItsTimeout) {
  Handover handover;

  EXPECT_TRUE(handover.WaitInVain());
}

}  // namespace
}  // namespace firnkv
