#include "server/catalog/store_schema.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

// First byte of a value, so that a value under a wrong key or family is found.
enum class RecordKind : std::uint8_t {
  kCluster = 1,
  kTenant = 2,
  kNamespace = 3,
  kNode = 4,
  kApplied = 5,
  kEntry = 6,
};

// Longest text in a record: a canonical contract, 4 KiB a string and 64
// adapters of two strings each.
constexpr std::size_t kMaxRecordText = 1024 * 1024;

std::uint32_t CrcOf(std::string_view bytes) {
  return Crc32c(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

class RecordWriter : public WireWriter {
 public:
  explicit RecordWriter(RecordKind kind) : WireWriter(&value_) {
    U8(static_cast<std::uint8_t>(kind));
    U8(kSchemaVersion);
  }
  void Text(std::string_view text) {
    CHECK(text.size() <= kMaxRecordText);
    U32(static_cast<std::uint32_t>(text.size()));
    Bytes(text);
  }
  void Flag(bool flag) { U8(flag ? 1 : 0); }
  std::string Seal() {
    U32(CrcOf(value_));
    return std::move(value_);
  }

 private:
  std::string value_;
};

absl::Status Damaged(std::string_view what, std::string_view why) {
  return absl::DataLossError(StrCat("catalog store: ", what, " record: ", why));
}

// Takes lead and checksum off and leaves the fields. `what` is for messages.
absl::StatusOr<WireReader> OpenRecord(std::string_view value, RecordKind kind,
                                      std::string_view what) {
  if (value.size() < 6) return Damaged(what, "too short");
  const std::string_view body = value.substr(0, value.size() - 4);
  WireReader tail(value.substr(value.size() - 4));
  if (tail.U32() != CrcOf(body)) return Damaged(what, "checksum differs");
  WireReader reader(body);
  if (reader.U8() != static_cast<std::uint8_t>(kind)) {
    return Damaged(what, "another kind of record stands there");
  }
  const std::uint8_t version = reader.U8();
  if (version == 0 || version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        StrCat("catalog store: ", what, " record of version ", int{version},
               "; this build knows up to ", int{kSchemaVersion}));
  }
  return reader;
}

std::string TakeText(WireReader* reader, std::size_t most = kMaxNameBytes) {
  const std::uint32_t size = reader->U32();
  // A size beyond the bound is beyond the end too: the reader turns bad.
  return std::string(reader->Bytes(size <= most ? size : SIZE_MAX));
}

// nullopt: neither 0 nor 1, so that no record has two encodings.
std::optional<bool> TakeFlag(WireReader* reader) {
  const std::uint8_t flag = reader->U8();
  if (flag > 1) return std::nullopt;
  return flag == 1;
}

bool Rises(const ClusterRecord& record) {
  std::uint64_t last = 0;
  for (const PastIncarnation& one : record.past) {
    if (one.incarnation <= last) return false;
    last = one.incarnation;
  }
  return record.past.empty() || last < record.incarnation.incarnation;
}

void Put(const Labels& labels, RecordWriter* out) {
  out->Text(labels.zone);
  out->Text(labels.rack);
  out->Text(labels.host);
}

void Put(const ChainPlace& place, RecordWriter* out) {
  out->Id(place.parent);
  out->Id(place.anchor);
  out->U32(place.position);
  out->U32(place.first_token);
  out->U32(place.tokens);
  out->U16(place.shard.count);
  out->U16(place.shard.index);
}

ChainPlace TakePlace(WireReader* in) {
  ChainPlace place;
  place.parent = in->TakeId<BlockKey>();
  place.anchor = in->TakeId<BlockKey>();
  place.position = in->U32();
  place.first_token = in->U32();
  place.tokens = in->U32();
  place.shard.count = in->U16();
  place.shard.index = in->U16();
  return place;
}

}  // namespace

std::string Encode(const ClusterRecord& record) {
  CHECK(record.past.size() <= kMaxPastIncarnations);
  RecordWriter out(RecordKind::kCluster);
  out.Id(record.cluster);
  out.U64(record.incarnation.incarnation);
  out.Id(record.incarnation.random_id);
  out.U64(record.incarnation.sequence);
  out.U64(record.incarnation.credentials);
  out.U64(record.sequence_floor);
  out.U64(record.last_change);
  out.Flag(record.told);
  out.U16(static_cast<std::uint16_t>(record.past.size()));
  for (const PastIncarnation& one : record.past) {
    out.U64(one.incarnation);
    out.Id(one.random_id);
    out.U64(one.sequence);
  }
  return out.Seal();
}

absl::StatusOr<ClusterRecord> DecodeCluster(std::string_view value) {
  ASSIGN_OR_RETURN(WireReader in,
                   OpenRecord(value, RecordKind::kCluster, "cluster"));
  ClusterRecord record;
  record.cluster = in.TakeId<ClusterId>();
  record.incarnation.incarnation = in.U64();
  record.incarnation.random_id =
      in.TakeId<decltype(record.incarnation.random_id)>();
  record.incarnation.sequence = in.U64();
  record.incarnation.credentials = in.U64();
  record.sequence_floor = in.U64();
  record.last_change = in.U64();
  const std::optional<bool> told = TakeFlag(&in);
  const std::uint16_t past = in.U16();
  if (past > kMaxPastIncarnations) {
    return Damaged("cluster", "too many past incarnations");
  }
  for (std::uint16_t i = 0; i < past && in.ok(); ++i) {
    PastIncarnation one;
    one.incarnation = in.U64();
    one.random_id = in.TakeId<decltype(one.random_id)>();
    one.sequence = in.U64();
    record.past.push_back(one);
  }
  if (!in.AtEnd()) return Damaged("cluster", "wrong length");
  if (!told.has_value()) return Damaged("cluster", "a flag is neither 0 nor 1");
  record.told = *told;
  if (!Rises(record)) {
    return Damaged("cluster", "past incarnations that do not rise");
  }
  return record;
}

std::string Encode(const TenantRecord& record) {
  RecordWriter out(RecordKind::kTenant);
  out.Id(record.tenant);
  out.Text(record.name);
  out.U64(static_cast<std::uint64_t>(record.created_unix_seconds));
  return out.Seal();
}

absl::StatusOr<TenantRecord> DecodeTenant(std::string_view value) {
  ASSIGN_OR_RETURN(WireReader in,
                   OpenRecord(value, RecordKind::kTenant, "tenant"));
  TenantRecord record;
  record.tenant = in.TakeId<TenantId>();
  record.name = TakeText(&in);
  record.created_unix_seconds = static_cast<std::int64_t>(in.U64());
  if (!in.AtEnd()) return Damaged("tenant", "wrong length");
  return record;
}

std::string Encode(const NamespaceRecord& record) {
  const NamespaceFacts& facts = record.facts;
  RecordWriter out(RecordKind::kNamespace);
  out.Id(facts.name_space);
  out.Id(facts.tenant);
  out.Text(facts.name);
  out.U32(facts.version);
  out.U64(static_cast<std::uint64_t>(facts.clear_epoch));
  out.U64(facts.block_bytes);
  out.Flag(facts.chained);
  out.U64(static_cast<std::uint64_t>(absl::ToInt64Seconds(facts.retention)));
  out.Flag(facts.strict_clear);
  out.U8(static_cast<std::uint8_t>(facts.flash_mode));
  out.U64(static_cast<std::uint64_t>(record.created_unix_seconds));
  out.U64(record.changed_at);
  out.Text(CanonicalEncoding(record.contract));
  return out.Seal();
}

absl::StatusOr<NamespaceRecord> DecodeNamespace(std::string_view value) {
  ASSIGN_OR_RETURN(WireReader in,
                   OpenRecord(value, RecordKind::kNamespace, "namespace"));
  NamespaceRecord record;
  NamespaceFacts& facts = record.facts;
  facts.name_space = in.TakeId<NamespaceId>();
  facts.tenant = in.TakeId<TenantId>();
  facts.name = TakeText(&in);
  facts.version = in.U32();
  facts.clear_epoch = ClearEpoch{in.U64()};
  facts.block_bytes = in.U64();
  const std::optional<bool> chained = TakeFlag(&in);
  const std::uint64_t retention = in.U64();
  const std::optional<bool> strict_clear = TakeFlag(&in);
  const std::uint8_t mode = in.U8();
  record.created_unix_seconds = static_cast<std::int64_t>(in.U64());
  record.changed_at = in.U64();
  const std::string contract = TakeText(&in, kMaxRecordText);
  if (!in.AtEnd()) return Damaged("namespace", "wrong length");
  if (!chained.has_value() || !strict_clear.has_value()) {
    return Damaged("namespace", "a flag is neither 0 nor 1");
  }
  if (retention > kMaxRetentionSeconds) {
    return Damaged("namespace", "impossible retention");
  }
  if (mode > static_cast<std::uint8_t>(FlashMode::kOn)) {
    return Damaged("namespace", "unknown flash mode");
  }
  facts.chained = *chained;
  facts.retention = absl::Seconds(static_cast<std::int64_t>(retention));
  facts.strict_clear = *strict_clear;
  facts.flash_mode = FlashMode{mode};
  absl::StatusOr<StateContract> decoded = DecodeCanonical(contract);
  if (!decoded.ok())
    return Damaged("namespace", ToStd(decoded.status().message()));
  record.contract = *std::move(decoded);
  // Not stored: it follows from the contract, so the two cannot disagree.
  facts.digest = MakeIdentityDigest(record.contract);
  return record;
}

std::string Encode(const NodeRecord& record) {
  CHECK(record.superseded.size() <= kMaxSupersededEpochs);
  RecordWriter out(RecordKind::kNode);
  out.Id(record.address.node);
  out.U64(static_cast<std::uint64_t>(record.address.epoch));
  out.Text(record.address.stream_address);
  out.Text(record.address.control_address);
  Put(record.address.labels, &out);
  out.Id(record.registration);
  out.U16(static_cast<std::uint16_t>(record.superseded.size()));
  for (const NodeEpoch epoch : record.superseded) {
    out.U64(static_cast<std::uint64_t>(epoch));
  }
  out.Text(record.version);
  out.U64(static_cast<std::uint64_t>(record.registered_unix_seconds));
  return out.Seal();
}

absl::StatusOr<NodeRecord> DecodeNode(std::string_view value) {
  ASSIGN_OR_RETURN(WireReader in, OpenRecord(value, RecordKind::kNode, "node"));
  NodeRecord record;
  record.address.node = in.TakeId<NodeId>();
  record.address.epoch = NodeEpoch{in.U64()};
  record.address.stream_address = TakeText(&in);
  record.address.control_address = TakeText(&in);
  record.address.labels.zone = TakeText(&in);
  record.address.labels.rack = TakeText(&in);
  record.address.labels.host = TakeText(&in);
  record.registration = in.TakeId<RegistrationId>();
  const std::uint16_t superseded = in.U16();
  if (superseded > kMaxSupersededEpochs) {
    return Damaged("node", "too many superseded epochs");
  }
  for (std::uint16_t i = 0; i < superseded; ++i) {
    record.superseded.push_back(NodeEpoch{in.U64()});
  }
  record.version = TakeText(&in);
  record.registered_unix_seconds = static_cast<std::int64_t>(in.U64());
  if (!in.AtEnd()) return Damaged("node", "wrong length");
  return record;
}

std::string Encode(const AppliedRecord& record) {
  CHECK(record.refused.size() <= kMaxAnnouncementEntries);
  RecordWriter out(RecordKind::kApplied);
  out.Id(record.registration);
  out.U64(record.applied);
  out.U8(static_cast<std::uint8_t>(record.inventory));
  out.U64(record.serial);
  out.U64(record.least_serial);
  out.U16(static_cast<std::uint16_t>(record.refused.size()));
  for (const RefusedEntry& refused : record.refused) {
    out.U32(refused.index);
    out.U8(static_cast<std::uint8_t>(refused.outcome));
  }
  out.Id(record.kept_registration);
  out.U64(record.kept_applied);
  return out.Seal();
}

absl::StatusOr<AppliedRecord> DecodeApplied(std::string_view value) {
  ASSIGN_OR_RETURN(WireReader in,
                   OpenRecord(value, RecordKind::kApplied, "applied"));
  AppliedRecord record;
  record.registration = in.TakeId<RegistrationId>();
  record.applied = in.U64();
  const std::uint8_t inventory = in.U8();
  record.serial = in.U64();
  record.least_serial = in.U64();
  const std::uint16_t refused = in.U16();
  if (inventory > static_cast<std::uint8_t>(InventoryState::kComplete)) {
    return Damaged("applied", "unknown inventory state");
  }
  if (refused > kMaxAnnouncementEntries) {
    return Damaged("applied", "too many refused entries");
  }
  record.inventory = InventoryState{inventory};
  for (std::uint16_t i = 0; i < refused && in.ok(); ++i) {
    RefusedEntry entry;
    entry.index = in.U32();
    const std::optional<Outcome> outcome = OutcomeFromWire(in.U8());
    if (!outcome.has_value()) return Damaged("applied", "unknown outcome");
    entry.outcome = *outcome;
    record.refused.push_back(entry);
  }
  record.kept_registration = in.TakeId<RegistrationId>();
  record.kept_applied = in.U64();
  if (!in.AtEnd()) return Damaged("applied", "wrong length");
  return record;
}

std::string Encode(const EntryRecord& record) {
  CHECK(!record.locations.empty());
  CHECK(record.locations.size() <= kMaxCopiesABlock);
  RecordWriter out(RecordKind::kEntry);
  out.U64(record.sequence);
  out.U64(static_cast<std::uint64_t>(record.clear_epoch));
  Put(record.place, &out);
  out.U16(static_cast<std::uint16_t>(record.locations.size()));
  for (const Location& location : record.locations) {
    out.Id(location.run.node);
    out.U64(static_cast<std::uint64_t>(location.run.epoch));
    out.U64(location.run.serial);
    out.U8(location.tier);
    out.U64(static_cast<std::uint64_t>(location.generation));
    out.U64(location.length);
  }
  return out.Seal();
}

absl::StatusOr<EntryRecord> DecodeEntry(std::string_view value) {
  ASSIGN_OR_RETURN(WireReader in,
                   OpenRecord(value, RecordKind::kEntry, "entry"));
  EntryRecord record;
  record.sequence = in.U64();
  record.clear_epoch = ClearEpoch{in.U64()};
  record.place = TakePlace(&in);
  const std::uint16_t count = in.U16();
  if (count == 0 || count > kMaxCopiesABlock) {
    return Damaged("entry", "impossible number of locations");
  }
  for (std::uint16_t i = 0; i < count && in.ok(); ++i) {
    Location location;
    location.run.node = in.TakeId<NodeId>();
    location.run.epoch = NodeEpoch{in.U64()};
    location.run.serial = in.U64();
    location.tier = in.U8();
    location.generation = Generation{in.U64()};
    location.length = in.U64();
    if (in.ok() &&
        (location.tier > kLastTier || location.length > kLargestBlockBytes)) {
      return Damaged("entry", "impossible location");
    }
    record.locations.push_back(location);
  }
  if (!in.AtEnd()) return Damaged("entry", "wrong length");
  return record;
}

std::string EntryKey(const BlockId& block) {
  return StrCat(block.name_space.view(), block.key.view());
}

std::optional<BlockId> DecodeEntryKey(std::string_view key) {
  if (key.size() != NamespaceId::kBytes + BlockKey::kBytes) return std::nullopt;
  return BlockId{
      .name_space = *NamespaceId::FromBytes(key.substr(0, NamespaceId::kBytes)),
      .key = *BlockKey::FromBytes(key.substr(NamespaceId::kBytes))};
}

}  // namespace firnkv
