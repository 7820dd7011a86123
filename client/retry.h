// When to try again, and whether: arithmetic over a clock's readings, without
// timers or I/O. A part that is down must cost its callers little, and its
// return must not be met by a storm.
//
// Threading. Backoff and Breaker belong to whoever has them and are protected
// by its mutex. RetryBudget may be used from any thread.

#ifndef FIRNKV_CLIENT_RETRY_H_
#define FIRNKV_CLIENT_RETRY_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"

namespace firnkv {

// Delays that double, each drawn from its upper half: peers that failed
// together do not come back together.
class Backoff {
 public:
  struct Options {
    absl::Duration first = absl::Milliseconds(50);
    absl::Duration most = absl::Seconds(5);
  };
  explicit Backoff(Options options) : options_(options) {}

  absl::Duration Next(Random* random);
  void Reset() { delay_ = absl::ZeroDuration(); }

 private:
  Options options_;
  absl::Duration delay_;
};

// Whether a peer that failed is asked at all. Closed: it is. After kFailures
// in a row it opens for a backoff's delay; then one caller may probe, and its
// success closes the breaker.
class Breaker {
 public:
  // One failure may be a connection that had been idle too long.
  static constexpr int kFailures = 2;

  explicit Breaker(Backoff::Options options) : backoff_(options) {}

  // True: ask, and say how it went. Counts as the probe where one is due.
  bool MayAsk(BootTime now);
  // Whether the peer is thought to be well: anybody may ask.
  bool closed() const { return failures_ < kFailures; }
  // True: it is not, and the caller makes the probe that is due.
  bool TakeProbe(BootTime now);
  void Succeeded();
  void Failed(BootTime now, Random* random);
  // It failed in a way that leaves no doubt: opens at once.
  void FailedForSure(BootTime now, Random* random);
  // The asking ended without telling anything about the peer.
  void NoVerdict() { probing_ = false; }

 private:
  bool WouldAsk(BootTime now) const {
    return closed() || (!probing_ && now >= open_until_);
  }

  Backoff backoff_;
  int failures_ = 0;
  bool probing_ = false;
  BootTime open_until_;
};

// Retries are bounded to a share of first tries: each first try earns a tenth
// of a retry, up to a purse of kMost, so that a cluster in trouble gets at most
// a tenth more work.
class RetryBudget {
 public:
  static constexpr std::int64_t kMost = 64;
  static constexpr std::int64_t kEarnedPerTry = 1;
  static constexpr std::int64_t kCostOfRetry = 10;

  void Earn(std::int64_t tries) ABSL_LOCKS_EXCLUDED(mutex_);
  // True: one retry is paid for.
  bool Spend() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  // In tenths of a retry; starts full, so that a single failure in a young
  // process is retried.
  std::int64_t purse_ ABSL_GUARDED_BY(mutex_) = kMost * kCostOfRetry;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_RETRY_H_
