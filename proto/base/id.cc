#include "proto/base/id.h"

#include <bit>

#include "absl/strings/escaping.h"
#include "proto/base/sha256.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

// The terminating zero belongs to it.
constexpr std::string_view kBlockKeyTag("FirnKV block key v1", 20);

std::string KeyPreimage(std::string_view chain_hash) {
  std::string bytes;
  bytes.reserve(kBlockKeyTag.size() + 4 + chain_hash.size() + 5);
  WireWriter writer(&bytes);
  writer.Bytes(kBlockKeyTag);
  writer.U32(static_cast<std::uint32_t>(chain_hash.size()));
  writer.Bytes(chain_hash);
  return bytes;
}

bool IsHexDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
         (c >= 'A' && c <= 'F');
}

}  // namespace

std::string ToHex(std::string_view bytes) {
  return absl::BytesToHexString(ToAbsl(bytes));
}

std::optional<std::string> FromHex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  for (const char c : hex) {
    if (!IsHexDigit(c)) return std::nullopt;
  }
  return absl::HexStringToBytes(ToAbsl(hex));
}

BlockKey MakeBlockKey(std::string_view chain_hash, Shard shard) {
  std::string bytes = KeyPreimage(chain_hash);
  WireWriter writer(&bytes);
  writer.U8(1);
  writer.U16(shard.count);
  writer.U16(shard.index);
  return BlockKey{Sha256(bytes)};
}

BlockKey MakeAnchor(std::string_view chain_hash_at_anchor_position) {
  std::string bytes = KeyPreimage(chain_hash_at_anchor_position);
  WireWriter(&bytes).U8(0);
  return BlockKey{Sha256(bytes)};
}

// Bits of a power of four stand at even places: the top bit of `position`,
// moved down by one if it stands at an odd one.
std::uint32_t AnchorPosition(std::uint32_t position) {
  if (position == 0) return 0;
  const int top = std::bit_width(position) - 1;
  return std::uint32_t{1} << (top & ~1);
}

BlockKey HandshakeTestVector() {
  return MakeBlockKey("FirnKV", Shard{.count = 7, .index = 3});
}

}  // namespace firnkv
