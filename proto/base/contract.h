// The state contract: everything that makes KV bytes valid for one engine
// setting, its canonical encoding and the identity digest over it.
//
// Two workers share blocks only if their contracts encode to the same bytes.
// The encoding is tagged, length-prefixed and versioned, written down byte for
// byte in docs/PROTOCOL.md, and never depends on protobuf's own encoding.

#ifndef FIRNKV_PROTO_BASE_CONTRACT_H_
#define FIRNKV_PROTO_BASE_CONTRACT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/id.h"

namespace firnkv {

struct Adapter {
  std::string name;
  std::string revision;
  friend auto operator<=>(const Adapter&, const Adapter&) = default;
};

// Taken from the engine's *resolved* settings, never from its command line.
struct StateContract {
  // Mandatory, all of them; see Validate.
  std::string model;             // "meta-llama/Llama-3.1-8B"
  std::string weights_revision;  // Immutable: a commit or a content hash.
  std::string tokenizer;         // Name and immutable revision.
  std::string preprocessing;     // Text templates, image and audio; "none".
  std::string positional;        // Encoding with scaling: "rope theta=5e5 ...".
  std::string kv_dtype;          // The effective one: "bf16", "fp8_e4m3".
  std::string layer_order;       // "layers,kv,heads,tokens,dim" or the like.
  std::string kv_order;          // "k-then-v", "interleaved".
  std::string head_grouping;     // "8 kv heads", "mla 512+64".
  std::string page_order;        // Order of tokens inside a block.
  std::uint32_t block_tokens = 0;
  std::uint32_t tensor_parallel = 0;
  std::uint32_t pipeline_parallel = 0;
  std::uint32_t context_parallel = 0;
  // Version of the layout that the engine writes.
  std::uint32_t layout_version = 0;

  // Optional.
  std::vector<Adapter> adapters;  // In the order in which they are applied.
  std::string cache_salt;         // The engine's own, per deployment.

  friend auto operator<=>(const StateContract&, const StateContract&) = default;
};

// INVALID_ARGUMENT naming the first mandatory field that is missing (empty or
// zero) or out of bounds (a string over 4 KiB, over 64 adapters).
absl::Status Validate(const StateContract& contract);

// `contract` must be valid.
std::string CanonicalEncoding(const StateContract& contract);

// The inverse; a decoder of outside bytes. Refuses unknown versions, unknown or
// repeated or unordered tags, lengths past the end, trailing bytes.
absl::StatusOr<StateContract> DecodeCanonical(std::string_view bytes);

// SHA-256 over CanonicalEncoding.
IdentityDigest MakeIdentityDigest(const StateContract& contract);

// Name of the first field, in encoding order, in which the two differ; empty if
// they are equal. For "why is this another version?".
std::string FirstDifference(const StateContract& a, const StateContract& b);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_CONTRACT_H_
