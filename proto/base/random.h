// Randomness. A seam: SystemRandom asks the kernel; SeededRandom replays.
//
// Ids that must not be guessed (sessions, namespaces, tokens) and epochs that
// must not repeat come from here and from nowhere else.

#ifndef FIRNKV_PROTO_BASE_RANDOM_H_
#define FIRNKV_PROTO_BASE_RANDOM_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "proto/base/mutex.h"

namespace firnkv {

// Thread-safe.
class Random {
 public:
  virtual ~Random() = default;
  virtual void Fill(absl::Span<std::uint8_t> bytes) = 0;

  std::uint64_t Next64();
  // Uniform in [0, bound); `bound` must not be 0.
  std::uint64_t Below(std::uint64_t bound);
  // Never zero: zero stands for "none" in every id of the wire contract.
  std::uint64_t NonZero64();
};

// getrandom(2). Aborts if the kernel has no randomness to give: an id from a
// broken source would be worse.
class SystemRandom : public Random {
 public:
  void Fill(absl::Span<std::uint8_t> bytes) override;
};

// xoshiro256++ seeded by splitmix64 (Blackman and Vigna, 2019). Not secret.
class SeededRandom : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed);
  void Fill(absl::Span<std::uint8_t> bytes) override;

 private:
  std::uint64_t Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Mutex mutex_;
  std::uint64_t state_[4] ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_RANDOM_H_
