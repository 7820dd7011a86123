// The identities that client, node and catalog must agree on byte for byte, and
// the recipes of block keys and anchors.
//
// Each identity is a type of its own, so that none can be taken for another.
// All are plain values; all-zero means "none" for every one of them.

#ifndef FIRNKV_PROTO_BASE_ID_H_
#define FIRNKV_PROTO_BASE_ID_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "proto/base/random.h"

namespace firnkv {

// N bytes with a meaning. Printed as lower-case hex.
template <typename Tag, std::size_t N>
struct ByteId {
  static constexpr std::size_t kBytes = N;
  std::array<std::uint8_t, N> bytes{};

  static ByteId Make(Random* random) {
    ByteId id;
    random->Fill(absl::MakeSpan(id.bytes));
    return id;
  }
  // nullopt unless `view` is exactly N bytes.
  static std::optional<ByteId> FromBytes(std::string_view view) {
    if (view.size() != N) return std::nullopt;
    ByteId id;
    std::memcpy(id.bytes.data(), view.data(), N);
    return id;
  }
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes.data()), N};
  }
  bool IsZero() const { return *this == ByteId{}; }
  friend auto operator<=>(const ByteId&, const ByteId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ByteId& id) {
    return H::combine_contiguous(std::move(h), id.bytes.data(), N);
  }
};

std::string ToHex(std::string_view bytes);
std::optional<std::string> FromHex(std::string_view hex);
template <typename Tag, std::size_t N>
std::string ToHex(const ByteId<Tag, N>& id) {
  return ToHex(id.view());
}

// 128 random bits, made at creation by the catalog, never reused.
using NamespaceId = ByteId<struct NamespaceIdTag, 16>;
using TenantId = ByteId<struct TenantIdTag, 16>;
// Who a node is across its runs: random, kept in its data directory.
using NodeId = ByteId<struct NodeIdTag, 16>;
using ClusterId = ByteId<struct ClusterIdTag, 16>;
// Not a secret from its own client, a secret from everybody else (rule S3).
using SessionId = ByteId<struct SessionIdTag, 16>;
using TraceId = ByteId<struct TraceIdTag, 16>;
// A node's registration at the catalog; numbers its announcements (rule A1).
using RegistrationId = ByteId<struct RegistrationIdTag, 16>;
// SHA-256 over a state contract's canonical encoding (contract.h).
using IdentityDigest = ByteId<struct IdentityDigestTag, 32>;
// By the recipe below.
using BlockKey = ByteId<struct BlockKeyTag, 32>;

// One run of one node; random, never zero (rule A6).
enum class NodeEpoch : std::uint64_t { kNone = 0 };
// How often a namespace was cleared; starts at 1, so that zero means "unknown".
enum class ClearEpoch : std::uint64_t { kUnknown = 0 };
// From one counter a node run, never per slot (rule P3). Zero is never given.
enum class Generation : std::uint64_t { kNone = 0 };

// What every index, lease and record is about. A key alone is never enough:
// two tenants with equal prompts and contracts have equal keys.
struct BlockId {
  NamespaceId name_space;
  BlockKey key;
  friend auto operator<=>(const BlockId&, const BlockId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const BlockId& id) {
    return H::combine(std::move(h), id.name_space, id.key);
  }
};

// Which part of a chain position a block is: index of count. Without tensor
// parallelism: 0 of 1.
struct Shard {
  std::uint16_t count = 1;
  std::uint16_t index = 0;
  friend auto operator<=>(const Shard&, const Shard&) = default;
};

// Where a block stands in its chain, as a writer says it and as everything
// that stores the block keeps it.
struct ChainPlace {
  // Key at position - 1 of the same shard; zero at position 0.
  BlockKey parent;
  // Names the catalog partition; see MakeAnchor.
  BlockKey anchor;
  std::uint32_t position = 0;
  std::uint32_t first_token = 0;
  std::uint32_t tokens = 0;
  Shard shard;
  friend auto operator<=>(const ChainPlace&, const ChainPlace&) = default;
};

// Block key = SHA-256("FirnKV block key v1" 00, u32 length of chain hash, chain
// hash, u8 shard present, [u16 count, u16 index]). `chain_hash` is the engine's
// own hash of the block and all tokens before it, of any length up to 4 KiB,
// textual ones as their bytes. docs/PROTOCOL.md has test vectors.
BlockKey MakeBlockKey(std::string_view chain_hash, Shard shard);

// The anchor of the block at `position`: the key, by the same recipe without a
// shard descriptor, of the chain's block at AnchorPosition(position). All
// shards of a position share it.
BlockKey MakeAnchor(std::string_view chain_hash_at_anchor_position);

// The largest power of four that is <= position; 0 for 0. A chain of 1,000
// blocks touches at most six anchors: 0, 1, 4, 16, 64, 256.
std::uint32_t AnchorPosition(std::uint32_t position);

// The key that both sides of a handshake compute, so that a build whose recipe
// differs is refused instead of missing for ever: MakeBlockKey("FirnKV", 3 of
// 7).
BlockKey HandshakeTestVector();

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_ID_H_
