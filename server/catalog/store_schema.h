// The catalog's records as they lie in the store (store.h): the structs, and
// their keys and values as bytes. docs/CATALOG_SCHEMA.md says the same byte for
// byte; tests/format/catalog_schema_test.cc holds golden bytes.
//
//     value = u8 kind, u8 version, fields, u32 CRC32C of all that precedes it
//
// A record of a newer version than this build knows is refused, never guessed
// at; a torn or altered one fails its checksum. Both are DATA_LOSS, naming the
// record, and every length is bounded before it is believed.
//
// Pure code over bytes. Does not know: RocksDB, leases, what may change when.

#ifndef FIRNKV_SERVER_CATALOG_STORE_SCHEMA_H_
#define FIRNKV_SERVER_CATALOG_STORE_SCHEMA_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/contract.h"
#include "proto/base/id.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"

namespace firnkv {

inline constexpr std::uint8_t kSchemaVersion = 1;

// Copies of one block that the catalog remembers: all nodes of a large cluster
// may hold a system prompt. Further ones are not recorded, which costs balance
// and no correctness.
inline constexpr std::size_t kMaxCopiesABlock = 1024;

// Boots of one node id that may never come back (rule A6).
inline constexpr std::size_t kMaxSupersededEpochs = 32;

// A century: whoever wants longer wants 0, for ever.
inline constexpr std::uint64_t kMaxRetentionSeconds = 100ull * 366 * 24 * 3600;

// Earlier incarnations that the catalog remembers (rule A9): 16 KiB. Only those
// that a node was told of count, so a catalog that starts and dies in a loop,
// before any node has reached it, pushes none out.
inline constexpr std::size_t kMaxPastIncarnations = 512;

// An incarnation that is over: what nodes may have seen of it.
struct PastIncarnation {
  std::uint64_t incarnation = 0;
  decltype(Incarnation::random_id) random_id;
  // Its last.
  std::uint64_t sequence = 0;
  friend bool operator==(const PastIncarnation&,
                         const PastIncarnation&) = default;
};

// Family::kMeta, key "cluster". Everything that there is one of.
struct ClusterRecord {
  ClusterId cluster;
  // Rule A9.
  Incarnation incarnation;
  // A node may have been told of it.
  bool told = false;
  // Those before it that nodes were told of since the last accept-restore,
  // oldest first; at most kMaxPastIncarnations.
  std::vector<PastIncarnation> past;
  // Sequences below it may have been given to entries (EntryRecord::sequence);
  // raised in large steps with synced writes, so that a lost tail cannot make
  // one come twice.
  std::uint64_t sequence_floor = 0;
  // Number of the last change to a namespace: KeepAlive's cursor.
  std::uint64_t last_change = 0;
  friend bool operator==(const ClusterRecord&, const ClusterRecord&) = default;
};

// Family::kTenants, key: the tenant id.
struct TenantRecord {
  TenantId tenant;
  std::string name;
  std::int64_t created_unix_seconds = 0;
  friend bool operator==(const TenantRecord&, const TenantRecord&) = default;
};

// Family::kNamespaces, key: the namespace id. One version of one name.
// `facts.tenant_name` is not stored: the tenant's record has it.
struct NamespaceRecord {
  NamespaceFacts facts;
  StateContract contract;
  std::int64_t created_unix_seconds = 0;
  // ClusterRecord::last_change when it last changed.
  std::uint64_t changed_at = 0;
  friend bool operator==(const NamespaceRecord&,
                         const NamespaceRecord&) = default;
};

// Family::kNodes, key: the node id. Its last registration.
struct NodeRecord {
  NodeAddress address;
  RegistrationId registration;
  // Oldest first; at most kMaxSupersededEpochs.
  std::vector<NodeEpoch> superseded;
  std::string version;
  std::int64_t registered_unix_seconds = 0;
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// One entry of a batch that was not taken.
struct RefusedEntry {
  std::uint32_t index = 0;
  Outcome outcome = Outcome::kUnset;
  friend bool operator==(const RefusedEntry&, const RefusedEntry&) = default;
};

// How far a registration's inventory is (rule A4). Numbers are stored.
enum class InventoryState : std::uint8_t {
  // None since the registration: a full one must come first.
  kNeeded = 0,
  // Begun and not ended.
  kRunning = 1,
  kComplete = 2,
};

// Family::kApplied, key: the node id. Written in the same batch as what it
// counts.
struct AppliedRecord {
  RegistrationId registration;
  // Last number applied within the registration; 0: none.
  std::uint64_t applied = 0;
  InventoryState inventory = InventoryState::kNeeded;
  // Serial of the inventory that entries are named under now. Serials come
  // from the catalog's sequence, so no two inventories ever share one.
  std::uint64_t serial = 0;
  // Entries of older inventories than this one do not count any more.
  std::uint64_t least_serial = 0;
  // What the last applied batch's answer refused, so that a repeated batch gets
  // the same answer.
  std::vector<RefusedEntry> refused;
  // Of a registration that kept what the run had announced, until its first
  // batch: the registration before it that had batches, and the last of them.
  RegistrationId kept_registration;
  std::uint64_t kept_applied = 0;
  friend bool operator==(const AppliedRecord&, const AppliedRecord&) = default;
};

// One run of one node, and the inventory under which it last named a copy: what
// tells a live location from a stale one.
struct Run {
  NodeId node;
  NodeEpoch epoch = NodeEpoch::kNone;
  std::uint64_t serial = 0;
  friend auto operator<=>(const Run&, const Run&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Run& run) {
    return H::combine(std::move(h), run.node, run.epoch, run.serial);
  }
};

struct Location {
  Run run;
  std::uint8_t tier = 0;  // 0 DRAM, 1 flash.
  Generation generation = Generation::kNone;
  std::uint64_t length = 0;
  friend bool operator==(const Location&, const Location&) = default;
};
inline constexpr std::uint8_t kLastTier = 1;

// Family::kKeys, key: namespace id, block key.
struct EntryRecord {
  // The catalog's count at which the entry came (again) into being.
  std::uint64_t sequence = 0;
  // Of every copy: what is older was dropped when this one came.
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  ChainPlace place;
  // At most one for each (node, tier); at most kMaxCopiesABlock.
  std::vector<Location> locations;
  friend bool operator==(const EntryRecord&, const EntryRecord&) = default;
};

inline constexpr std::string_view kClusterKey = "cluster";

std::string Encode(const ClusterRecord& record);
std::string Encode(const TenantRecord& record);
std::string Encode(const NamespaceRecord& record);
std::string Encode(const NodeRecord& record);
std::string Encode(const AppliedRecord& record);
std::string Encode(const EntryRecord& record);

absl::StatusOr<ClusterRecord> DecodeCluster(std::string_view value);
absl::StatusOr<TenantRecord> DecodeTenant(std::string_view value);
absl::StatusOr<NamespaceRecord> DecodeNamespace(std::string_view value);
absl::StatusOr<NodeRecord> DecodeNode(std::string_view value);
absl::StatusOr<AppliedRecord> DecodeApplied(std::string_view value);
absl::StatusOr<EntryRecord> DecodeEntry(std::string_view value);

// The key of a block in Family::kKeys, and back.
std::string EntryKey(const BlockId& block);
std::optional<BlockId> DecodeEntryKey(std::string_view key);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_STORE_SCHEMA_H_
