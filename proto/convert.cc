#include "proto/convert.h"

#include <algorithm>
#include <utility>

#include "proto/base/status.h"
#include "proto/types.pb.h"

namespace firnkv {
namespace {

absl::Status Wrong(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(field, " ", what));
}

absl::Status CheckName(std::string_view field, const std::string& name) {
  if (name.size() <= kMaxNameBytes) return absl::OkStatus();
  return Wrong(field, StrCat("has ", name.size(), " bytes; at most ",
                             kMaxNameBytes, " are allowed"));
}

absl::Status CheckColumn(std::string_view column, std::size_t got,
                         std::size_t wanted) {
  if (got == wanted) return absl::OkStatus();
  return Wrong(column, StrCat("has ", got, " entries; keys has ", wanted));
}

absl::Status CheckIds(std::string_view column, std::size_t bytes,
                      std::size_t wanted) {
  if (bytes == wanted * BlockKey::kBytes) return absl::OkStatus();
  return Wrong(column, StrCat("has ", bytes, " bytes; ", wanted,
                              " entries have ", wanted * BlockKey::kBytes));
}

// As RocksDB keeps whole seconds and a Duration overflows late, a namespace's
// retention is bounded by a century.
constexpr std::uint64_t kLongestRetentionSeconds = 100ull * 366 * 24 * 3600;

}  // namespace

void ToProto(const RequestHeader& header, v1::RequestHeader* out) {
  out->set_protocol(header.protocol);
  const absl::Duration remaining =
      std::clamp(header.remaining, absl::ZeroDuration(), kLongestDeadline);
  out->set_remaining_micros(
      static_cast<std::uint64_t>(absl::ToInt64Microseconds(remaining)));
  out->set_traffic_class(static_cast<std::uint32_t>(header.traffic));
  if (!header.trace.IsZero()) out->set_trace(IdToProto(header.trace));
  if (!header.session.IsZero()) out->set_session(IdToProto(header.session));
  out->set_token(header.token);
}

absl::StatusOr<RequestHeader> FromProto(const v1::RequestHeader& message) {
  RequestHeader header;
  header.protocol = message.protocol();
  const auto traffic = TrafficClassFromWire(message.traffic_class());
  if (!traffic) {
    return Wrong("header.traffic_class",
                 StrCat(message.traffic_class(), " is unknown"));
  }
  header.traffic = *traffic;
  // Cut far above the bound that Validate checks, so that nothing overflows.
  const std::uint64_t micros =
      std::min(message.remaining_micros(), std::uint64_t{1} << 40);
  header.remaining = absl::Microseconds(static_cast<std::int64_t>(micros));
  ASSIGN_OR_RETURN(header.trace, OptionalIdFromProto<TraceId>("header.trace",
                                                              message.trace()));
  ASSIGN_OR_RETURN(header.session, OptionalIdFromProto<SessionId>(
                                       "header.session", message.session()));
  if (message.token().size() > kMaxTokenBytes) {
    return Wrong("header.token",
                 StrCat("has ", message.token().size(), " bytes; at most ",
                        kMaxTokenBytes, " are allowed"));
  }
  header.token = message.token();
  RETURN_IF_ERROR(Validate(header));
  return header;
}

void ToProto(const Handshake& handshake, v1::Handshake* out) {
  out->set_oldest_protocol(handshake.oldest_protocol);
  out->set_newest_protocol(handshake.newest_protocol);
  if (!handshake.cluster.IsZero()) {
    out->set_cluster(IdToProto(handshake.cluster));
  }
  out->set_test_vector(IdToProto(handshake.test_vector));
}

absl::StatusOr<Handshake> FromProto(const v1::Handshake& message) {
  Handshake handshake;
  handshake.oldest_protocol = message.oldest_protocol();
  handshake.newest_protocol = message.newest_protocol();
  ASSIGN_OR_RETURN(
      handshake.cluster,
      OptionalIdFromProto<ClusterId>("handshake.cluster", message.cluster()));
  ASSIGN_OR_RETURN(
      handshake.test_vector,
      IdFromProto<BlockKey>("handshake.test_vector", message.test_vector()));
  return handshake;
}

void ToProto(const StateContract& contract, v1::StateContract* out) {
  out->set_model(contract.model);
  out->set_weights_revision(contract.weights_revision);
  out->set_tokenizer(contract.tokenizer);
  out->set_preprocessing(contract.preprocessing);
  out->set_positional(contract.positional);
  out->set_kv_dtype(contract.kv_dtype);
  out->set_layer_order(contract.layer_order);
  out->set_kv_order(contract.kv_order);
  out->set_head_grouping(contract.head_grouping);
  out->set_page_order(contract.page_order);
  out->set_block_tokens(contract.block_tokens);
  out->set_tensor_parallel(contract.tensor_parallel);
  out->set_pipeline_parallel(contract.pipeline_parallel);
  out->set_context_parallel(contract.context_parallel);
  out->set_layout_version(contract.layout_version);
  out->clear_adapters();
  for (const Adapter& adapter : contract.adapters) {
    v1::Adapter* const one = out->add_adapters();
    one->set_name(adapter.name);
    one->set_revision(adapter.revision);
  }
  out->set_cache_salt(contract.cache_salt);
}

absl::StatusOr<StateContract> FromProto(const v1::StateContract& message) {
  if (message.adapters_size() > static_cast<int>(kMaxContractAdapters)) {
    return Wrong("adapters",
                 StrCat("has ", message.adapters_size(), " entries; at most ",
                        kMaxContractAdapters, " are allowed"));
  }
  StateContract contract;
  contract.model = message.model();
  contract.weights_revision = message.weights_revision();
  contract.tokenizer = message.tokenizer();
  contract.preprocessing = message.preprocessing();
  contract.positional = message.positional();
  contract.kv_dtype = message.kv_dtype();
  contract.layer_order = message.layer_order();
  contract.kv_order = message.kv_order();
  contract.head_grouping = message.head_grouping();
  contract.page_order = message.page_order();
  contract.block_tokens = message.block_tokens();
  contract.tensor_parallel = message.tensor_parallel();
  contract.pipeline_parallel = message.pipeline_parallel();
  contract.context_parallel = message.context_parallel();
  contract.layout_version = message.layout_version();
  for (const v1::Adapter& adapter : message.adapters()) {
    contract.adapters.push_back(Adapter{adapter.name(), adapter.revision()});
  }
  contract.cache_salt = message.cache_salt();
  return contract;
}

std::string_view FlashModeName(FlashMode mode) {
  switch (mode) {
    case FlashMode::kOff:
      return "off";
    case FlashMode::kShadow:
      return "shadow";
    case FlashMode::kCanary:
      return "canary";
    case FlashMode::kOn:
      return "on";
  }
  return "off";
}

void ToProto(const NamespaceFacts& facts, v1::NamespaceFacts* out) {
  out->set_name_space(IdToProto(facts.name_space));
  out->set_tenant(IdToProto(facts.tenant));
  out->set_name(facts.name);
  out->set_version(facts.version);
  out->set_digest(IdToProto(facts.digest));
  out->set_clear_epoch(static_cast<std::uint64_t>(facts.clear_epoch));
  out->set_block_bytes(facts.block_bytes);
  out->set_chained(facts.chained);
  const std::int64_t seconds = absl::ToInt64Seconds(facts.retention);
  out->set_retention_seconds(
      static_cast<std::uint64_t>(std::max<std::int64_t>(seconds, 0)));
  out->set_strict_clear(facts.strict_clear);
  out->set_tenant_name(facts.tenant_name);
  out->set_flash_mode(std::string(FlashModeName(facts.flash_mode)));
}

absl::StatusOr<NamespaceFacts> FromProto(const v1::NamespaceFacts& message) {
  NamespaceFacts facts;
  ASSIGN_OR_RETURN(
      facts.name_space,
      IdFromProto<NamespaceId>("facts.name_space", message.name_space()));
  ASSIGN_OR_RETURN(facts.tenant,
                   IdFromProto<TenantId>("facts.tenant", message.tenant()));
  RETURN_IF_ERROR(CheckName("facts.name", message.name()));
  facts.name = message.name();
  facts.version = message.version();
  ASSIGN_OR_RETURN(facts.digest, IdFromProto<IdentityDigest>("facts.digest",
                                                             message.digest()));
  facts.clear_epoch = ClearEpoch{message.clear_epoch()};
  if (message.block_bytes() > kLargestBlockBytes) {
    return Wrong("facts.block_bytes",
                 StrCat("is ", message.block_bytes(), "; at most ",
                        kLargestBlockBytes, " are allowed"));
  }
  facts.block_bytes = message.block_bytes();
  facts.chained = message.chained();
  if (message.retention_seconds() > kLongestRetentionSeconds) {
    return Wrong("facts.retention_seconds",
                 StrCat("is ", message.retention_seconds(), "; at most ",
                        kLongestRetentionSeconds, " are allowed"));
  }
  facts.retention =
      absl::Seconds(static_cast<std::int64_t>(message.retention_seconds()));
  facts.strict_clear = message.strict_clear();
  RETURN_IF_ERROR(CheckName("facts.tenant_name", message.tenant_name()));
  facts.tenant_name = message.tenant_name();
  for (const FlashMode mode : {FlashMode::kOff, FlashMode::kShadow,
                               FlashMode::kCanary, FlashMode::kOn}) {
    if (message.flash_mode() == FlashModeName(mode)) facts.flash_mode = mode;
  }
  return facts;
}

void ToProto(const Labels& labels, v1::Labels* out) {
  out->set_zone(labels.zone);
  out->set_rack(labels.rack);
  out->set_host(labels.host);
}

absl::StatusOr<Labels> FromProto(const v1::Labels& message) {
  RETURN_IF_ERROR(CheckName("labels.zone", message.zone()));
  RETURN_IF_ERROR(CheckName("labels.rack", message.rack()));
  RETURN_IF_ERROR(CheckName("labels.host", message.host()));
  return Labels{message.zone(), message.rack(), message.host()};
}

void ToProto(const NodeAddress& address, v1::NodeAddress* out) {
  out->set_node(IdToProto(address.node));
  out->set_epoch(static_cast<std::uint64_t>(address.epoch));
  out->set_stream_address(address.stream_address);
  out->set_control_address(address.control_address);
  ToProto(address.labels, out->mutable_labels());
}

absl::StatusOr<NodeAddress> FromProto(const v1::NodeAddress& message) {
  NodeAddress address;
  ASSIGN_OR_RETURN(address.node,
                   IdFromProto<NodeId>("node.node", message.node()));
  address.epoch = NodeEpoch{message.epoch()};
  RETURN_IF_ERROR(CheckName("node.stream_address", message.stream_address()));
  address.stream_address = message.stream_address();
  RETURN_IF_ERROR(CheckName("node.control_address", message.control_address()));
  address.control_address = message.control_address();
  ASSIGN_OR_RETURN(address.labels, FromProto(message.labels()));
  return address;
}

void ToProto(const Incarnation& incarnation, v1::Incarnation* out) {
  out->set_incarnation(incarnation.incarnation);
  out->set_random_id(IdToProto(incarnation.random_id));
  out->set_sequence(incarnation.sequence);
  out->set_credentials(incarnation.credentials);
}

absl::StatusOr<Incarnation> FromProto(const v1::Incarnation& message) {
  Incarnation incarnation;
  incarnation.incarnation = message.incarnation();
  ASSIGN_OR_RETURN(incarnation.random_id,
                   OptionalIdFromProto<decltype(incarnation.random_id)>(
                       "incarnation.random_id", message.random_id()));
  incarnation.sequence = message.sequence();
  incarnation.credentials = message.credentials();
  return incarnation;
}

absl::Status WrongIdSize(std::string_view field, std::size_t wanted,
                         std::size_t got) {
  return Wrong(field, StrCat("has ", got, " bytes instead of ", wanted));
}

absl::Status CheckIdColumn(std::string_view field, std::size_t bytes,
                           std::size_t id_bytes, std::size_t most) {
  if (bytes % id_bytes != 0) {
    return Wrong(field,
                 StrCat("has ", bytes, " bytes, no multiple of ", id_bytes));
  }
  if (bytes / id_bytes > most) {
    return Wrong(field, StrCat("has ", bytes / id_bytes, " entries; at most ",
                               most, " are allowed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BlockKey>> KeysFromProto(std::string_view field,
                                                    std::string_view bytes) {
  return IdsFromProto<BlockKey>(field, bytes);
}

std::string KeysToProto(absl::Span<const BlockKey> keys) {
  return IdsToProto<BlockKey>(keys);
}

void ToProto(absl::Span<const BlockRow> rows, v1::BlockColumns* out) {
  out->Clear();
  const std::size_t id_bytes = rows.size() * BlockKey::kBytes;
  out->mutable_keys()->reserve(id_bytes);
  out->mutable_parents()->reserve(id_bytes);
  out->mutable_anchors()->reserve(id_bytes);
  for (const BlockRow& row : rows) {
    out->mutable_keys()->append(row.key.view());
    out->mutable_parents()->append(row.place.parent.view());
    out->mutable_anchors()->append(row.place.anchor.view());
    out->add_positions(row.place.position);
    out->add_first_tokens(row.place.first_token);
    out->add_tokens(row.place.tokens);
    out->add_lengths(row.length);
    out->add_shard_counts(row.place.shard.count);
    out->add_shard_indexes(row.place.shard.index);
  }
}

namespace {

// Every column has as many entries as `keys`.
absl::Status CheckColumns(const v1::BlockColumns& message, std::size_t rows) {
  RETURN_IF_ERROR(CheckIds("parents", message.parents().size(), rows));
  RETURN_IF_ERROR(CheckIds("anchors", message.anchors().size(), rows));
  const std::pair<std::string_view, int> columns[] = {
      {"positions", message.positions_size()},
      {"first_tokens", message.first_tokens_size()},
      {"tokens", message.tokens_size()},
      {"lengths", message.lengths_size()},
      {"shard_counts", message.shard_counts_size()},
      {"shard_indexes", message.shard_indexes_size()},
  };
  for (const auto& [name, size] : columns) {
    RETURN_IF_ERROR(CheckColumn(name, static_cast<std::size_t>(size), rows));
  }
  return absl::OkStatus();
}

absl::StatusOr<Shard> ShardFromProto(std::uint32_t count, std::uint32_t index) {
  if (count == 0 && index == 0) return Shard{};
  if (count == 0 || count > UINT16_MAX) {
    return Wrong("shard_counts",
                 StrCat("has ", count, "; 1 to ", UINT16_MAX, " are allowed"));
  }
  if (index >= count) {
    return Wrong("shard_indexes",
                 StrCat("has ", index, " of a shard count of ", count));
  }
  return Shard{.count = static_cast<std::uint16_t>(count),
               .index = static_cast<std::uint16_t>(index)};
}

}  // namespace

absl::StatusOr<std::vector<BlockRow>> FromProto(
    const v1::BlockColumns& message) {
  ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                   KeysFromProto("keys", message.keys()));
  RETURN_IF_ERROR(CheckColumns(message, keys.size()));
  ASSIGN_OR_RETURN(const std::vector<BlockKey> parents,
                   KeysFromProto("parents", message.parents()));
  ASSIGN_OR_RETURN(const std::vector<BlockKey> anchors,
                   KeysFromProto("anchors", message.anchors()));
  std::vector<BlockRow> rows(keys.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const int column = static_cast<int>(i);
    BlockRow& row = rows[i];
    row.key = keys[i];
    row.place.parent = parents[i];
    row.place.anchor = anchors[i];
    row.place.position = message.positions(column);
    row.place.first_token = message.first_tokens(column);
    row.place.tokens = message.tokens(column);
    row.length = message.lengths(column);
    ASSIGN_OR_RETURN(row.place.shard,
                     ShardFromProto(message.shard_counts(column),
                                    message.shard_indexes(column)));
  }
  return rows;
}

void ToProto(absl::Span<const LocationRow> rows, v1::LocationColumns* out) {
  out->Clear();
  for (const LocationRow& row : rows) {
    out->add_node_indexes(row.node);
    out->add_tiers(row.tier);
    out->add_generations(static_cast<std::uint64_t>(row.generation));
    out->add_lengths(row.length);
  }
}

absl::StatusOr<std::vector<LocationRow>> FromProto(
    const v1::LocationColumns& message, std::size_t nodes, std::size_t most) {
  const auto size = static_cast<std::size_t>(message.node_indexes_size());
  if (size > most) {
    return Wrong("locations", StrCat("has ", size, " entries; at most ", most,
                                     " are allowed"));
  }
  if (message.tiers_size() != message.node_indexes_size() ||
      message.generations_size() != message.node_indexes_size() ||
      message.lengths_size() != message.node_indexes_size()) {
    return Wrong("locations", "has columns of different lengths");
  }
  std::vector<LocationRow> rows(size);
  for (std::size_t i = 0; i < size; ++i) {
    const int column = static_cast<int>(i);
    if (message.node_indexes(column) >= nodes) {
      return Wrong("locations.node_indexes",
                   StrCat("has ", message.node_indexes(column), " of ", nodes,
                          " nodes"));
    }
    if (message.tiers(column) > 1) {
      return Wrong("locations.tiers",
                   StrCat("has ", message.tiers(column), ", which is unknown"));
    }
    rows[i].node = message.node_indexes(column);
    rows[i].tier = static_cast<std::uint8_t>(message.tiers(column));
    rows[i].generation = Generation{message.generations(column)};
    rows[i].length = message.lengths(column);
  }
  return rows;
}

std::string OutcomesToProto(absl::Span<const Outcome> outcomes) {
  std::string out;
  out.reserve(outcomes.size());
  for (const Outcome outcome : outcomes) {
    out.push_back(static_cast<char>(outcome));
  }
  return out;
}

absl::StatusOr<std::vector<Outcome>> OutcomesFromProto(std::string_view bytes,
                                                       std::size_t wanted) {
  if (bytes.size() != wanted) {
    return Wrong("outcomes",
                 StrCat("has ", bytes.size(), " entries instead of ", wanted));
  }
  std::vector<Outcome> outcomes;
  outcomes.reserve(wanted);
  for (const char byte : bytes) {
    const auto number = static_cast<std::uint8_t>(byte);
    const std::optional<Outcome> outcome = OutcomeFromWire(number);
    if (!outcome) {
      return Wrong("outcomes", StrCat("has ", static_cast<int>(number),
                                      ", which is unknown"));
    }
    outcomes.push_back(*outcome);
  }
  return outcomes;
}

absl::Status CheckExtents(std::size_t blocks,
                          absl::Span<const std::uint32_t> counts,
                          std::size_t places, std::size_t offsets,
                          std::size_t lengths) {
  if (counts.size() != blocks) {
    return Wrong("extent_counts",
                 StrCat("has ", counts.size(), " entries instead of ", blocks));
  }
  std::size_t total = 0;
  for (const std::uint32_t count : counts) {
    if (count == 0 || count > kMaxExtents) {
      return Wrong("extent_counts", StrCat("has ", count, "; 1 to ",
                                           kMaxExtents, " are allowed"));
    }
    total += count;
  }
  if (places != total || offsets != total || lengths != total) {
    return Wrong("extents",
                 StrCat("has columns of ", places, ", ", offsets, " and ",
                        lengths, " entries; the counts add up to ", total));
  }
  return absl::OkStatus();
}

}  // namespace firnkv
