// Relaxed counters and histogram cells: the raw matter of metrics. Hot paths
// touch these and never a registry.

#ifndef FIRNKV_PROTO_BASE_COUNTER_H_
#define FIRNKV_PROTO_BASE_COUNTER_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace firnkv {

// Relaxed: a counter orders nothing, and a reader wants no more than a recent
// value.
class Counter {
 public:
  void Add(std::uint64_t n = 1) {
    value_.fetch_add(n, std::memory_order_relaxed);
  }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Durations in buckets of powers of two of a microsecond: bucket i counts those
// below 2^i us, the last one all the rest (over 33 s).
class LatencyHistogram {
 public:
  static constexpr std::size_t kBuckets = 26;

  void Add(absl::Duration duration) {
    const std::int64_t us = absl::ToInt64Microseconds(duration);
    const std::uint64_t floor = us < 0 ? 0 : static_cast<std::uint64_t>(us);
    const auto bucket = static_cast<std::size_t>(std::bit_width(floor));
    cells_[bucket < kBuckets ? bucket : kBuckets - 1].Add();
    sum_nanos_.Add(
        static_cast<std::uint64_t>(absl::ToInt64Nanoseconds(duration)));
  }
  std::uint64_t cell(std::size_t bucket) const {
    return cells_[bucket].value();
  }
  std::uint64_t sum_nanos() const { return sum_nanos_.value(); }

 private:
  std::array<Counter, kBuckets> cells_;
  Counter sum_nanos_;
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_COUNTER_H_
