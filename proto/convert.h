// Generated messages to and from base types: besides services and their
// clients, which build and read whole messages, the only code that knows both.
//
// ...FromProto are decoders of outside bytes: they bound sizes before they
// allocate, and refuse with INVALID_ARGUMENT that names the field or column.
// None of them says whether the caller may do what it asks.
//
// Batches are columns (types.proto): a column of ids is one bytes field of n
// times the id's size, all columns of a message have the same n.
//
// Threading. Pure functions.

#ifndef FIRNKV_PROTO_CONVERT_H_
#define FIRNKV_PROTO_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/contract.h"
#include "proto/base/id.h"
#include "proto/base/limits.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "proto/base/text.h"

namespace firnkv {

namespace v1 {
class BlockColumns;
class Handshake;
class Incarnation;
class Labels;
class LocationColumns;
class NamespaceFacts;
class NodeAddress;
class RequestHeader;
class StateContract;
}  // namespace v1

// --- What every request carries. FromProto ends in Validate.
void ToProto(const RequestHeader& header, v1::RequestHeader* out);
absl::StatusOr<RequestHeader> FromProto(const v1::RequestHeader& message);
void ToProto(const Handshake& handshake, v1::Handshake* out);
absl::StatusOr<Handshake> FromProto(const v1::Handshake& message);

// --- Namespaces. The contract need not be complete: whoever creates by it
// calls Validate, which names what is missing.
void ToProto(const StateContract& contract, v1::StateContract* out);
absl::StatusOr<StateContract> FromProto(const v1::StateContract& message);
void ToProto(const NamespaceFacts& facts, v1::NamespaceFacts* out);
absl::StatusOr<NamespaceFacts> FromProto(const v1::NamespaceFacts& message);
// "off", "shadow", "canary", "on".
std::string_view FlashModeName(FlashMode mode);

// --- Nodes.
void ToProto(const Labels& labels, v1::Labels* out);
absl::StatusOr<Labels> FromProto(const v1::Labels& message);
void ToProto(const NodeAddress& address, v1::NodeAddress* out);
absl::StatusOr<NodeAddress> FromProto(const v1::NodeAddress& message);
void ToProto(const Incarnation& incarnation, v1::Incarnation* out);
absl::StatusOr<Incarnation> FromProto(const v1::Incarnation& message);

// --- Single ids.
absl::Status WrongIdSize(std::string_view field, std::size_t wanted,
                         std::size_t got);
// Exactly Id::kBytes; zero ids pass.
template <typename Id>
absl::StatusOr<Id> IdFromProto(std::string_view field, std::string_view bytes) {
  const std::optional<Id> id = Id::FromBytes(bytes);
  if (!id) return WrongIdSize(field, Id::kBytes, bytes.size());
  return *id;
}
// As above, and empty stands for zero.
template <typename Id>
absl::StatusOr<Id> OptionalIdFromProto(std::string_view field,
                                       std::string_view bytes) {
  if (bytes.empty()) return Id{};
  return IdFromProto<Id>(field, bytes);
}
template <typename Id>
std::string IdToProto(const Id& id) {
  return std::string(id.view());
}

// --- Columns of ids.
absl::Status CheckIdColumn(std::string_view field, std::size_t bytes,
                           std::size_t id_bytes, std::size_t most);
// At most `most` ids; none is fine.
template <typename Id>
absl::StatusOr<std::vector<Id>> IdsFromProto(std::string_view field,
                                             std::string_view bytes,
                                             std::size_t most = kMaxBatchKeys) {
  const absl::Status fits =
      CheckIdColumn(field, bytes.size(), Id::kBytes, most);
  if (!fits.ok()) return fits;
  std::vector<Id> ids(bytes.size() / Id::kBytes);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = *Id::FromBytes(bytes.substr(i * Id::kBytes, Id::kBytes));
  }
  return ids;
}
template <typename Id>
std::string IdsToProto(absl::Span<const Id> ids) {
  std::string out;
  out.reserve(ids.size() * Id::kBytes);
  for (const Id& id : ids) out.append(id.view());
  return out;
}

// Columns of block keys, at most kMaxBatchKeys.
absl::StatusOr<std::vector<BlockKey>> KeysFromProto(std::string_view field,
                                                    std::string_view bytes);
std::string KeysToProto(absl::Span<const BlockKey> keys);

// --- Blocks, as a writer or an announcement names them.
struct BlockRow {
  BlockKey key;
  ChainPlace place;
  std::uint64_t length = 0;
  friend bool operator==(const BlockRow&, const BlockRow&) = default;
};
void ToProto(absl::Span<const BlockRow> rows, v1::BlockColumns* out);
// At most kMaxBatchKeys rows; refuses columns of different lengths, numbers
// that do not fit their type, and a shard that is none of its count. Says
// nothing of what a row means: a withdrawal's are mostly zeros, its shard 0 of
// 0 is read as 0 of 1.
absl::StatusOr<std::vector<BlockRow>> FromProto(
    const v1::BlockColumns& message);

// --- Locations.
struct LocationRow {
  // Into the nodes table of the message.
  std::uint32_t node = 0;
  std::uint8_t tier = 0;  // 0 DRAM, 1 flash.
  Generation generation = Generation::kNone;
  std::uint64_t length = 0;
  friend bool operator==(const LocationRow&, const LocationRow&) = default;
};
void ToProto(absl::Span<const LocationRow> rows, v1::LocationColumns* out);
// At most `most` rows; refuses columns of different lengths and a node index
// that is not below `nodes`.
absl::StatusOr<std::vector<LocationRow>> FromProto(
    const v1::LocationColumns& message, std::size_t nodes, std::size_t most);

// --- Outcomes, a byte each.
std::string OutcomesToProto(absl::Span<const Outcome> outcomes);
// Exactly `wanted`; refuses zero and unknown numbers.
absl::StatusOr<std::vector<Outcome>> OutcomesFromProto(std::string_view bytes,
                                                       std::size_t wanted);

// --- Extents: counts[i] extents belong to the i-th block.
// INVALID_ARGUMENT unless there are `blocks` counts, each 1 to kMaxExtents,
// that add up to the size of every other column.
absl::Status CheckExtents(std::size_t blocks,
                          absl::Span<const std::uint32_t> counts,
                          std::size_t places, std::size_t offsets,
                          std::size_t lengths);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_CONVERT_H_
