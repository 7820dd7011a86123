// What stands in a block of the simulation: bytes that follow from namespace,
// key and a salt, so that any range of any read can be checked by itself, and
// bytes that came from elsewhere are recognized.
//
// Pure code.

#ifndef FIRNKV_TESTS_SIM_BLOCK_CONTENT_H_
#define FIRNKV_TESTS_SIM_BLOCK_CONTENT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "proto/base/id.h"

namespace firnkv {

class BlockContent {
 public:
  // Two writers of one key with different salts write different bits, as two
  // engines do.
  BlockContent(const BlockId& block, std::uint64_t salt);

  // `into` is the range of the block that begins at `offset`.
  void Fill(std::uint64_t offset, absl::Span<std::byte> into) const;
  bool Matches(std::uint64_t offset, absl::Span<const std::byte> bytes) const;

 private:
  std::uint64_t Word(std::uint64_t index) const {
    const std::uint64_t x = seed_ + index * 0x9e3779b97f4a7c15;
    return (x ^ (x >> 31)) * 0xd6e8feb86659fd93;
  }
  template <typename Each>
  bool EachWord(std::uint64_t offset, std::size_t bytes, Each each) const;
  std::uint64_t seed_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_BLOCK_CONTENT_H_
