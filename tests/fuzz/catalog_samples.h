// One of each record that the catalog stores, as real ones are.

#ifndef FIRNKV_TESTS_FUZZ_CATALOG_SAMPLES_H_
#define FIRNKV_TESTS_FUZZ_CATALOG_SAMPLES_H_

#include "server/catalog/store_schema.h"
#include "tests/proto/samples.h"

namespace firnkv {

inline ClusterRecord SampleCluster() {
  ClusterRecord record;
  record.cluster = CountingId<ClusterId>(1);
  record.incarnation.incarnation = 2;
  record.incarnation.random_id.bytes[0] = 3;
  record.incarnation.sequence = 4;
  record.sequence_floor = 1 << 20;
  record.last_change = 7;
  record.told = true;
  record.past = {{1, record.incarnation.random_id, 5}};
  return record;
}

inline TenantRecord SampleTenant() {
  return {.tenant = CountingId<TenantId>(2),
          .name = "alice",
          .created_unix_seconds = 1'700'000'000};
}

inline NamespaceRecord SampleNamespace() {
  NamespaceRecord record;
  record.facts.name_space = CountingId<NamespaceId>(0x10);
  record.facts.tenant = SampleTenant().tenant;
  record.facts.name = "granite";
  record.facts.version = 1;
  record.facts.clear_epoch = ClearEpoch{1};
  record.facts.block_bytes = 65536;
  record.contract = SampleContractWithOptions();
  record.facts.digest = MakeIdentityDigest(record.contract);
  record.created_unix_seconds = 1'700'000'000;
  record.changed_at = 5;
  return record;
}

inline NodeRecord SampleNode() {
  NodeRecord record;
  record.address = {.node = CountingId<NodeId>(0x30),
                    .epoch = NodeEpoch{0x99},
                    .stream_address = "host:7411",
                    .control_address = "host:7410",
                    .labels = {.zone = "z", .rack = "r", .host = "h"}};
  record.registration.bytes[0] = 9;
  record.superseded = {NodeEpoch{0x97}, NodeEpoch{0x98}};
  record.version = "0.1.0";
  record.registered_unix_seconds = 1'700'000'000;
  return record;
}

inline AppliedRecord SampleApplied() {
  AppliedRecord record;
  record.registration.bytes[0] = 9;
  record.applied = 12;
  record.inventory = InventoryState::kComplete;
  record.serial = 40;
  record.least_serial = 40;
  record.refused = {{.index = 3, .outcome = Outcome::kCleared}};
  return record;
}

inline EntryRecord SampleEntry() {
  EntryRecord record;
  record.sequence = 77;
  record.clear_epoch = ClearEpoch{1};
  record.place = SampleHeader().place;
  for (std::uint8_t i = 0; i < 3; ++i) {
    record.locations.push_back(
        {.run = {CountingId<NodeId>(static_cast<std::uint8_t>(0x30 + i)),
                 NodeEpoch{0x99}, 40},
         .tier = 0,
         .generation = Generation{5},
         .length = 65536});
  }
  return record;
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FUZZ_CATALOG_SAMPLES_H_
