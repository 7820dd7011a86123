// The project's mutex: absl::Mutex with what ThreadSanitizer has to be told.
//
// Debian's abseil is not built for TSan, so the compiler's runtime does not see
// that one critical section ends before the next begins, and reports races in
// correct code. Mutex says so itself: a release before the lock is given back,
// an acquire after it was taken. In other builds the notes vanish and Mutex is
// an absl::Mutex. tests/proto/mutex_test.cc shows that correct code is quiet
// under TSan, tests/proto/deliberate_race.cc that a race is still reported.
//
// Clang checks the annotations (-Werror=thread-safety): say ABSL_GUARDED_BY at
// every member that a mutex protects.
//
// Not reentrant. No reader locks, no conditions with predicates: a class that
// needs those is rare enough to say why first.
//
// Threading. All classes here may be used from any thread.

#ifndef FIRNKV_PROTO_BASE_MUTEX_H_
#define FIRNKV_PROTO_BASE_MUTEX_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#if defined(__SANITIZE_THREAD__)
#define FIRNKV_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIRNKV_TSAN 1
#endif
#endif

#ifdef FIRNKV_TSAN
// Of the TSan runtime; <sanitizer/tsan_interface.h> is not always installed.
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace firnkv {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.Lock();
    NoteTaken();
  }

  void Unlock() ABSL_UNLOCK_FUNCTION() {
    NoteGivenBack();
    mutex_.Unlock();
  }

  // True if the lock was free and is now the caller's.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    if (!mutex_.TryLock()) return false;
    NoteTaken();
    return true;
  }

  // Tells the compiler, and checks at run time where abseil can, that the
  // caller has the lock: for a callback that runs under it.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() { mutex_.AssertHeld(); }

 private:
  friend class CondVar;

#ifdef FIRNKV_TSAN
  void NoteTaken() { __tsan_acquire(this); }
  void NoteGivenBack() { __tsan_release(this); }
#else
  void NoteTaken() {}
  void NoteGivenBack() {}
#endif

  absl::Mutex mutex_;
};

// Has the lock from its construction to the end of its scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  // `mutex` must outlive the lock.
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(*mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// For threads behind a seam (executor, device, transport) that wait for work;
// everything else is tasks and completions, and never waits.
//
// Wakes without cause too: wait in a loop that tests what is waited for.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    mutex->NoteGivenBack();
    cond_var_.Wait(&mutex->mutex_);
    mutex->NoteTaken();
  }

  // True if `timeout` of real time passed without a signal.
  bool WaitFor(Mutex* mutex, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    mutex->NoteGivenBack();
    const bool timed_out = cond_var_.WaitWithTimeout(&mutex->mutex_, timeout);
    mutex->NoteTaken();
    return timed_out;
  }

  void Signal() { cond_var_.Signal(); }
  void SignalAll() { cond_var_.SignalAll(); }

 private:
  absl::CondVar cond_var_;
};

// Debian's abseil is built without NDEBUG, so that every Lock goes through a
// graph of the whole process, under one spin lock, to find cycles. Two threads
// on two different mutexes then take 540 ns a lock, against 100 without it; a
// single thread 60 against 24 (g++ 12, 2 cores, a loop of 3 million locks).
// Daemons and benchmarks call this first in main(). Tests leave detection on:
// there a cycle aborts. The SDK leaves it as its host has it.
inline void TurnOffDeadlockDetection() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_MUTEX_H_
