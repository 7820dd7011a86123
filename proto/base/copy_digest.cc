#include "proto/base/copy_digest.h"

#include "proto/base/wire.h"

namespace firnkv {
namespace {

std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Of a length that is a multiple of eight.
std::uint64_t MixWords(std::uint64_t hash, std::string_view bytes) {
  WireReader words(bytes);
  while (words.left() > 0) hash = Mix(hash ^ words.U64());
  return hash;
}

}  // namespace

std::uint64_t DigestOf(const BlockId& block, std::uint8_t tier,
                       Generation generation) {
  static_assert(NamespaceId::kBytes % 8 == 0 && BlockKey::kBytes % 8 == 0);
  std::uint64_t hash = 0x6669726e6b760001;  // "firnkv", version 1.
  hash = MixWords(hash, block.name_space.view());
  hash = MixWords(hash, block.key.view());
  hash = Mix(hash ^ tier);
  return Mix(hash ^ static_cast<std::uint64_t>(generation));
}

}  // namespace firnkv
