// The catalog's records and its backup against their golden bytes, both ways.
// If one of these fails, the schema changed: docs/CATALOG_SCHEMA.md says what
// else must change then.

#include <string>

#include "gtest/gtest.h"
#include "server/catalog/backup.h"
#include "server/catalog/store_schema.h"
#include "tests/format/golden_file.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

template <typename Id>
Id Counting(std::uint8_t first) {
  Id id;
  for (std::size_t i = 0; i < Id::kBytes; ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(first + i);
  }
  return id;
}

ClusterRecord ACluster() {
  ClusterRecord record;
  record.cluster = Counting<ClusterId>(0xd0);
  record.incarnation.incarnation = 7;
  record.incarnation.random_id =
      Counting<decltype(record.incarnation.random_id)>(0xe0);
  record.incarnation.sequence = 8;
  record.incarnation.credentials = 4;
  record.sequence_floor = 1 << 24;
  record.last_change = 9;
  record.told = true;
  using RandomId = decltype(record.incarnation.random_id);
  record.past = {{4, Counting<RandomId>(0x40), 3},
                 {6, Counting<RandomId>(0x50), 2}};
  return record;
}

TenantRecord ATenant() {
  return {.tenant = Counting<TenantId>(0xf0),
          .name = "default",
          .created_unix_seconds = 1'700'000'000};
}

NamespaceRecord ANamespace() {
  NamespaceRecord record;
  record.contract = SampleContract();
  record.facts.name_space = Counting<NamespaceId>(0x10);
  record.facts.tenant = Counting<TenantId>(0xf0);
  record.facts.name = "granite";
  record.facts.version = 2;
  record.facts.digest = MakeIdentityDigest(record.contract);
  record.facts.clear_epoch = ClearEpoch{3};
  record.facts.block_bytes = 65536;
  record.facts.chained = true;
  record.facts.retention = absl::Hours(1);
  record.facts.strict_clear = true;
  record.facts.flash_mode = FlashMode::kCanary;
  record.created_unix_seconds = 1'700'000'000;
  record.changed_at = 9;
  return record;
}

NodeRecord ANode() {
  NodeRecord record;
  record.address = {.node = Counting<NodeId>(0xa0),
                    .epoch = NodeEpoch{0x1112131415161718},
                    .stream_address = "10.0.0.1:7411",
                    .control_address = "10.0.0.1:7410",
                    .labels = {"zone-a", "rack-7", "host-3"}};
  record.registration = Counting<RegistrationId>(0xc0);
  record.superseded = {NodeEpoch{21}, NodeEpoch{22}};
  record.version = "0.1.0";
  record.registered_unix_seconds = 1'700'000'000;
  return record;
}

AppliedRecord AnApplied() {
  AppliedRecord record;
  record.registration = Counting<RegistrationId>(0xc0);
  record.applied = 40;
  record.inventory = InventoryState::kComplete;
  record.serial = 30;
  record.least_serial = 30;
  record.refused = {{5, Outcome::kCleared}, {9, Outcome::kDenied}};
  record.kept_registration = Counting<RegistrationId>(0xc8);
  record.kept_applied = 39;
  return record;
}

EntryRecord AnEntry() {
  EntryRecord record;
  record.sequence = 77;
  record.clear_epoch = ClearEpoch{3};
  record.place = {.parent = Counting<BlockKey>(0x60),
                  .anchor = Counting<BlockKey>(0x80),
                  .position = 5,
                  .first_token = 80,
                  .tokens = 16,
                  .shard = {.count = 4, .index = 1}};
  record.locations = {
      {.run = {Counting<NodeId>(0xa0), NodeEpoch{0x1112131415161718}, 30},
       .tier = 0,
       .generation = Generation{1001},
       .length = 70'000},
      {.run = {Counting<NodeId>(0xb0), NodeEpoch{0x2122232425262728}, 31},
       .tier = 1,
       .generation = Generation{1002},
       .length = 70'000}};
  return record;
}

class GoldenCatalogSchema : public testing::Test {
 protected:
  const GoldenFile golden_{"catalog_schema.hex"};
};

TEST_F(GoldenCatalogSchema, RecordsAreTheDocumentedOnes) {
  EXPECT_EQ(ToHex(Encode(ACluster())), golden_.Hex("cluster"));
  EXPECT_EQ(ToHex(Encode(ATenant())), golden_.Hex("tenant"));
  EXPECT_EQ(ToHex(Encode(ANamespace())), golden_.Hex("namespace"));
  EXPECT_EQ(ToHex(Encode(ANode())), golden_.Hex("node"));
  EXPECT_EQ(ToHex(Encode(AnApplied())), golden_.Hex("applied"));
  EXPECT_EQ(ToHex(Encode(AnEntry())), golden_.Hex("entry"));
  EXPECT_EQ(ToHex(EntryKey({.name_space = Counting<NamespaceId>(0x10),
                            .key = Counting<BlockKey>(0x20)})),
            golden_.Hex("entry key"));
}

TEST_F(GoldenCatalogSchema, DocumentedRecordsDecode) {
  EXPECT_THAT(DecodeCluster(golden_.Bytes("cluster")),
              IsOkAndHolds(ACluster()));
  EXPECT_THAT(DecodeTenant(golden_.Bytes("tenant")), IsOkAndHolds(ATenant()));
  EXPECT_THAT(DecodeNamespace(golden_.Bytes("namespace")),
              IsOkAndHolds(ANamespace()));
  EXPECT_THAT(DecodeNode(golden_.Bytes("node")), IsOkAndHolds(ANode()));
  EXPECT_THAT(DecodeApplied(golden_.Bytes("applied")),
              IsOkAndHolds(AnApplied()));
  EXPECT_THAT(DecodeEntry(golden_.Bytes("entry")), IsOkAndHolds(AnEntry()));
}

TEST_F(GoldenCatalogSchema, ABackupIsTheDocumentedOne) {
  BackupState state;
  state.cluster = ACluster();
  state.tenants = {ATenant()};
  state.namespaces = {ANamespace()};

  EXPECT_EQ(ToHex(EncodeBackup(state)), golden_.Hex("backup"));

  // The decoder insists on versions from 1.
  state.namespaces[0].facts.version = 1;
  EXPECT_THAT(DecodeBackup(EncodeBackup(state)), IsOkAndHolds(state));
}

}  // namespace
}  // namespace firnkv
