#include "proto/base/random.h"

#include <errno.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "proto/base/check.h"

namespace firnkv {
namespace {

std::uint64_t RotateLeft(std::uint64_t value, int by) {
  return (value << by) | (value >> (64 - by));
}

}  // namespace

std::uint64_t Random::Next64() {
  std::uint8_t bytes[sizeof(std::uint64_t)];
  Fill(absl::MakeSpan(bytes));
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// The plain remainder would favour small results. Values below 2^64 mod bound
// are drawn again, so that what remains is a whole number of rounds.
std::uint64_t Random::Below(std::uint64_t bound) {
  CHECK(bound != 0);
  const std::uint64_t unfair = (0 - bound) % bound;
  while (true) {
    const std::uint64_t value = Next64();
    if (value >= unfair) return value % bound;
  }
}

std::uint64_t Random::NonZero64() {
  while (true) {
    if (const std::uint64_t value = Next64(); value != 0) return value;
  }
}

void SystemRandom::Fill(absl::Span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    CHECK(got > 0);
    bytes.remove_prefix(static_cast<std::size_t>(got));
  }
}

SeededRandom::SeededRandom(std::uint64_t seed) {
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    std::uint64_t mixed = seed;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    word = mixed ^ (mixed >> 31);
  }
}

void SeededRandom::Fill(absl::Span<std::uint8_t> bytes) {
  MutexLock lock(&mutex_);
  while (!bytes.empty()) {
    const std::uint64_t value = Step();
    const std::size_t size = std::min(sizeof(value), bytes.size());
    std::memcpy(bytes.data(), &value, size);
    bytes.remove_prefix(size);
  }
}

std::uint64_t SeededRandom::Step() {
  const std::uint64_t result =
      RotateLeft(state_[0] + state_[3], 23) + state_[0];
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = RotateLeft(state_[3], 45);
  return result;
}

}  // namespace firnkv
