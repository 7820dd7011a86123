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

std::uint64_t BlockContent::Word(std::uint64_t index) const {
  return Scramble(seed_ + index * 0x9e3779b97f4a7c15);
}

void BlockContent::Fill(std::uint64_t offset,
                        absl::Span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::uint64_t word = Word((offset + done) / 8);
    const std::size_t skip = (offset + done) % 8;
    const std::size_t take =
        std::min<std::size_t>(8 - skip, into.size() - done);
    std::memcpy(into.data() + done,
                reinterpret_cast<const std::byte*>(&word) + skip, take);
    done += take;
  }
}

bool BlockContent::Matches(std::uint64_t offset,
                           absl::Span<const std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::uint64_t word = Word((offset + done) / 8);
    const std::size_t skip = (offset + done) % 8;
    const std::size_t take =
        std::min<std::size_t>(8 - skip, bytes.size() - done);
    if (std::memcmp(bytes.data() + done,
                    reinterpret_cast<const std::byte*>(&word) + skip,
                    take) != 0) {
      return false;
    }
    done += take;
  }
  return true;
}

}  // namespace firnkv
