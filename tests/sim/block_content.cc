#include "tests/sim/block_content.h"

#include <algorithm>
#include <cstring>

namespace firnkv {
namespace {

std::uint64_t Scramble(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

}  // namespace

BlockContent::BlockContent(const BlockId& block, std::uint64_t salt)
    : seed_(Scramble(salt + 1)) {
  auto take = [&](absl::Span<const std::uint8_t> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, 8);
      seed_ = Scramble(seed_ ^ word);
    }
  };
  take(block.name_space.bytes);
  take(block.key.bytes);
}

// Calls `each(at, word, skip, take)` for the bytes [skip, skip + take) of each
// word; whole words are nearly all of them.
template <typename Each>
bool BlockContent::EachWord(std::uint64_t offset, std::size_t bytes,
                            Each each) const {
  std::size_t at = 0;
  std::uint64_t word = offset / 8;
  if (const std::size_t skip = offset % 8; skip != 0) {
    const std::size_t take = std::min<std::size_t>(8 - skip, bytes);
    if (!each(at, Word(word++), skip, take)) return false;
    at += take;
  }
  for (; at + 8 <= bytes; at += 8) {
    if (!each(at, Word(word++), 0, 8)) return false;
  }
  return at == bytes || each(at, Word(word), 0, bytes - at);
}

void BlockContent::Fill(std::uint64_t offset,
                        absl::Span<std::byte> into) const {
  EachWord(offset, into.size(),
           [&](std::size_t at, std::uint64_t word, std::size_t skip,
               std::size_t take) {
             if (take == 8) {
               std::memcpy(into.data() + at, &word, 8);
             } else {
               word >>= 8 * skip;
               std::memcpy(into.data() + at, &word, take);
             }
             return true;
           });
}

bool BlockContent::Matches(std::uint64_t offset,
                           absl::Span<const std::byte> bytes) const {
  return EachWord(offset, bytes.size(),
                  [&](std::size_t at, std::uint64_t word, std::size_t skip,
                      std::size_t take) {
                    std::uint64_t there = 0;
                    if (take == 8) {
                      std::memcpy(&there, bytes.data() + at, 8);
                      return there == word;
                    }
                    word >>= 8 * skip;
                    return std::memcmp(&word, bytes.data() + at, take) == 0;
                  });
}

}  // namespace firnkv
