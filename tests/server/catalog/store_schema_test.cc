// Records as they lie in the store: what a decoder gives back and what it
// refuses. Golden bytes are in tests/format/catalog_schema_test.cc.

#include "server/catalog/store_schema.h"

#include <string>

#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "tests/server/catalog/catalog_fixture.h"

namespace firnkv {
namespace {

using testing::HasSubstr;

EntryRecord AnEntry() {
  EntryRecord entry;
  entry.sequence = 77;
  entry.clear_epoch = ClearEpoch{3};
  entry.place = {.parent = Key(1),
                 .anchor = Key(2),
                 .position = 4,
                 .first_token = 64,
                 .tokens = 16,
                 .shard = {.count = 8, .index = 5}};
  entry.locations = {{.run = {Node(1), NodeEpoch{10}, 20},
                      .tier = 0,
                      .generation = Generation{30},
                      .length = 40},
                     {.run = {Node(2), NodeEpoch{11}, 21},
                      .tier = 1,
                      .generation = Generation{31},
                      .length = 40}};
  return entry;
}

// `value` with its checksum made right again.
std::string Resealed(std::string value) {
  value.resize(value.size() - 4);
  const std::uint32_t crc = Crc32c(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(value.data()), value.size()));
  value.append(reinterpret_cast<const char*>(&crc), 4);
  return value;
}

TEST(StoreSchemaTest, EveryRecordComesBackAsItWas) {
  ClusterRecord cluster;
  cluster.cluster.bytes[0] = 1;
  cluster.incarnation = {.incarnation = 5, .random_id = {}, .sequence = 6};
  cluster.sequence_floor = 7;
  cluster.last_change = 8;
  cluster.told = true;
  cluster.past = {{2, {{7}}, 1}, {4, {{8}}, 0}};
  EXPECT_THAT(DecodeCluster(Encode(cluster)), IsOkAndHolds(cluster));

  TenantRecord tenant{.tenant = {}, .name = "team", .created_unix_seconds = 9};
  EXPECT_THAT(DecodeTenant(Encode(tenant)), IsOkAndHolds(tenant));

  NamespaceRecord name_space;
  name_space.contract = TestContract();
  name_space.contract.adapters = {{"lora", "7"}};
  name_space.facts.name = "granite";
  name_space.facts.version = 2;
  name_space.facts.digest = MakeIdentityDigest(name_space.contract);
  name_space.facts.clear_epoch = ClearEpoch{4};
  name_space.facts.block_bytes = 65536;
  name_space.facts.chained = true;
  name_space.facts.retention = absl::Hours(2);
  name_space.facts.strict_clear = true;
  name_space.facts.flash_mode = FlashMode::kCanary;
  name_space.changed_at = 11;
  EXPECT_THAT(DecodeNamespace(Encode(name_space)), IsOkAndHolds(name_space));

  NodeRecord node;
  node.address = AddressOf(1, 100);
  node.registration.bytes[2] = 3;
  node.superseded = {NodeEpoch{1}, NodeEpoch{2}};
  node.version = "0.1";
  node.registered_unix_seconds = 12;
  EXPECT_THAT(DecodeNode(Encode(node)), IsOkAndHolds(node));

  AppliedRecord applied;
  applied.registration = node.registration;
  applied.applied = 13;
  applied.inventory = InventoryState::kRunning;
  applied.serial = 14;
  applied.least_serial = 12;
  applied.refused = {{3, Outcome::kCleared}, {5, Outcome::kDenied}};
  applied.kept_registration.bytes[4] = 5;
  applied.kept_applied = 12;
  EXPECT_THAT(DecodeApplied(Encode(applied)), IsOkAndHolds(applied));

  EXPECT_THAT(DecodeEntry(Encode(AnEntry())), IsOkAndHolds(AnEntry()));
}

TEST(StoreSchemaTest, AnEntrysKeyComesBackAsItWas) {
  const BlockId block{.name_space = NamespaceId{{1, 2, 3}}, .key = Key(9)};

  EXPECT_EQ(DecodeEntryKey(EntryKey(block)), block);
  EXPECT_EQ(DecodeEntryKey(EntryKey(block).substr(1)), std::nullopt);
}

TEST(StoreSchemaTest, EveryChangedBitAndEveryCutIsNoticed) {
  const std::string value = Encode(AnEntry());

  for (std::size_t i = 0; i < value.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = value;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      ASSERT_FALSE(DecodeEntry(bad).ok()) << i << " " << bit;
    }
    ASSERT_FALSE(DecodeEntry(value.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(DecodeEntry(value + "x").ok());
}

TEST(StoreSchemaTest, ARecordOfANewerVersionIsRefusedAsSuch) {
  std::string value = Encode(AnEntry());
  value[1] = kSchemaVersion + 1;

  EXPECT_THAT(
      DecodeEntry(Resealed(value)),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("version 2")));
}

TEST(StoreSchemaTest, ARecordOfAnotherKindIsRefused) {
  EXPECT_THAT(DecodeTenant(Encode(AnEntry())),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(StoreSchemaTest, SizesBeyondTheirBoundsAreNotBelieved) {
  // A name of 4 GiB.
  std::string tenant = Encode(TenantRecord{.tenant = {}, .name = "x"});
  tenant.replace(2 + 16, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(DecodeTenant(Resealed(tenant)).ok());

  // No locations, and 65,535 of them.
  for (const char* count : {"\0\0", "\xff\xff"}) {
    std::string entry = Encode(AnEntry());
    entry.replace(2 + 8 + 8 + 80, 2, std::string(count, 2));
    EXPECT_FALSE(DecodeEntry(Resealed(entry)).ok());
  }

  // 65,535 past incarnations.
  std::string cluster = Encode(ClusterRecord());
  cluster.replace(cluster.size() - 4 - 2, 2, "\xff\xff");
  EXPECT_THAT(DecodeCluster(Resealed(cluster)),
              StatusIs(absl::StatusCode::kDataLoss));

  // A tier that there is not.
  std::string entry = Encode(AnEntry());
  entry[2 + 8 + 8 + 80 + 2 + 32] = 9;
  EXPECT_FALSE(DecodeEntry(Resealed(entry)).ok());
}

// A node that has seen one of two with the same number would find the wrong
// one.
TEST(StoreSchemaTest, PastIncarnationsThatDoNotRiseAreDamage) {
  ClusterRecord cluster;
  cluster.incarnation.incarnation = 5;
  for (const std::vector<std::uint64_t>& numbers :
       {std::vector<std::uint64_t>{0}, {3, 3}, {4, 3}, {3, 5}, {6}}) {
    cluster.past.clear();
    for (const std::uint64_t number : numbers) {
      cluster.past.push_back({number, {}, 0});
    }
    EXPECT_THAT(DecodeCluster(Encode(cluster)),
                StatusIs(absl::StatusCode::kDataLoss))
        << testing::PrintToString(numbers);
  }
}

TEST(StoreSchemaTest, AFlagIsZeroOrOne) {
  std::string cluster = Encode(ClusterRecord());
  cluster[cluster.size() - 4 - 2 - 1] = 2;
  EXPECT_THAT(
      DecodeCluster(Resealed(cluster)),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("neither 0 nor 1")));

  NamespaceRecord record;
  record.contract = TestContract();
  record.facts.name = "granite";
  const std::size_t chained = 2 + 16 + 16 + 4 + 7 + 4 + 8 + 8;
  const std::size_t strict = chained + 1 + 8;
  for (const std::size_t at : {chained, strict}) {
    std::string value = Encode(record);
    ASSERT_EQ(value[at], 0);
    value[at] = 2;
    EXPECT_THAT(
        DecodeNamespace(Resealed(value)),
        StatusIs(absl::StatusCode::kDataLoss, HasSubstr("neither 0 nor 1")));
  }
}

TEST(StoreSchemaTest, ARetentionThatCannotBeIsDamage) {
  NamespaceRecord record;
  record.contract = TestContract();
  record.facts.name = "granite";
  record.facts.retention = absl::Seconds(kMaxRetentionSeconds);
  ASSERT_OK(DecodeNamespace(Encode(record)));

  for (const std::int64_t seconds :
       {std::int64_t{-1}, std::int64_t{kMaxRetentionSeconds + 1}}) {
    record.facts.retention = absl::Seconds(seconds);
    EXPECT_THAT(DecodeNamespace(Encode(record)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("retention")));
  }
}

// Not INVALID_ARGUMENT, which is a caller's fault.
TEST(StoreSchemaTest, AContractThatDoesNotDecodeIsDamage) {
  NamespaceRecord record;
  record.contract = TestContract();
  record.facts.name = "granite";
  std::string value = Encode(record);
  const std::size_t contract =
      2 + 16 + 16 + 4 + 7 + 4 + 8 + 8 + 1 + 8 + 1 + 1 + 8 + 8 + 4;
  value[contract] = static_cast<char>(value[contract] ^ 0x7f);

  EXPECT_THAT(DecodeNamespace(Resealed(value)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("namespace")));
}

}  // namespace
}  // namespace firnkv
