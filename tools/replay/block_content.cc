#include "tools/replay/block_content.h"

#include <algorithm>
#include <cstring>

namespace firnkv {
namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kOdd = 0xd6e8feb86659fd93;
// Compared at once: small enough to stay in the first cache.
constexpr std::size_t kChunkBytes = 4096;

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit of the input
// reaches every bit of the seed.
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t WordOf(std::uint64_t x) {
  x *= kOdd;
  return x ^ (x >> 32);
}

}  // namespace

BlockContent::BlockContent(const BlockId& block) {
  std::array<std::uint64_t, 2> space;
  std::array<std::uint64_t, 4> key;
  std::memcpy(space.data(), block.name_space.bytes.data(), sizeof(space));
  std::memcpy(key.data(), block.key.bytes.data(), sizeof(key));
  std::uint64_t state = Mix(space[0] + kStep) ^ Mix(space[1] + 2 * kStep);
  for (const std::uint64_t word : key) state = Mix(state ^ word) + kStep;
  for (std::uint64_t& seed : seeds_) {
    state += kStep;
    seed = Mix(state);
  }
}

void BlockContent::Fill(absl::Span<std::byte> bytes) const {
  std::array<std::uint64_t, 4> x = seeds_;
  std::array<std::uint64_t, 4> words;
  std::byte* to = bytes.data();
  std::size_t left = bytes.size();
  while (left > 0) {
    for (int lane = 0; lane < 4; ++lane) {
      words[lane] = WordOf(x[lane]);
      x[lane] += kStep;
    }
    const std::size_t now = std::min(left, sizeof(words));
    std::memcpy(to, words.data(), now);
    to += now;
    left -= now;
  }
}

std::size_t BlockContent::CountWrong(absl::Span<const std::byte> bytes,
                                     std::size_t* first) const {
  std::array<std::byte, kChunkBytes> expected;
  BlockContent at = *this;
  std::size_t wrong = 0;
  for (std::size_t place = 0; place < bytes.size(); place += kChunkBytes) {
    const std::size_t now = std::min(kChunkBytes, bytes.size() - place);
    at.Fill(absl::MakeSpan(expected).subspan(0, now));
    for (std::uint64_t& seed : at.seeds_) {
      seed += kStep * (kChunkBytes / sizeof(seeds_));
    }
    if (std::memcmp(expected.data(), bytes.data() + place, now) == 0) continue;
    for (std::size_t i = 0; i < now; ++i) {
      if (expected[i] == bytes[place + i]) continue;
      if (wrong++ == 0 && first != nullptr) *first = place + i;
    }
  }
  return wrong;
}

}  // namespace firnkv
