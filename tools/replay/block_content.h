// The bytes that a block of a replay has: derived from its namespace and key
// alone, so that whoever reads it, wherever and whenever it was written, can
// check every byte. Another namespace's block under an equal key has other
// bytes; so has every other key.
//
// Byte i of the block is byte i mod 8 of word i / 8, and
//
//     word(j) = x * odd, with the 32 upper bits of the product xored upon the
//     lower ones, where x = seed[j mod 4] + (j / 4) * step
//
// One multiplication a word, and four words independent of each other, so that
// making and comparing run near the speed of memory.
//
// Threading: a plain value.

#ifndef FIRNKV_TOOLS_REPLAY_BLOCK_CONTENT_H_
#define FIRNKV_TOOLS_REPLAY_BLOCK_CONTENT_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "proto/base/id.h"

namespace firnkv {

class BlockContent {
 public:
  explicit BlockContent(const BlockId& block);

  // The first bytes of the block, as many as there is room for.
  void Fill(absl::Span<std::byte> bytes) const;

  // How many of `bytes` are not what Fill would have written; where the first
  // one is goes to `first`, which may be null.
  std::size_t CountWrong(absl::Span<const std::byte> bytes,
                         std::size_t* first) const;

 private:
  std::array<std::uint64_t, 4> seeds_;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_BLOCK_CONTENT_H_
