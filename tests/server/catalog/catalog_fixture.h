// The parts of a catalog over a SimStore, without services and threads: what
// the strand does is done by the test, one step after the other. It can be
// restarted over what its store has kept.

#ifndef FIRNKV_TESTS_SERVER_CATALOG_CATALOG_FIXTURE_H_
#define FIRNKV_TESTS_SERVER_CATALOG_CATALOG_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/contract.h"
#include "proto/base/copy_digest.h"
#include "proto/base/random.h"
#include "server/catalog/announcements.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/entries.h"
#include "server/catalog/key_index.h"
#include "server/catalog/locator.h"
#include "server/catalog/membership.h"
#include "server/catalog/registry.h"
#include "server/catalog/removals.h"
#include "server/catalog/run_digests.h"
#include "tests/support/manual_clock.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_store.h"

namespace firnkv {

inline StateContract TestContract() {
  StateContract contract;
  contract.model = "test/model-8b";
  contract.weights_revision = "0123abcd";
  contract.tokenizer = "test/tokenizer 1";
  contract.preprocessing = "none";
  contract.positional = "rope theta=5e5";
  contract.kv_dtype = "bf16";
  contract.layer_order = "layers,kv,heads,tokens,dim";
  contract.kv_order = "k-then-v";
  contract.head_grouping = "8 kv heads";
  contract.page_order = "tokens";
  contract.block_tokens = 16;
  contract.tensor_parallel = 1;
  contract.pipeline_parallel = 1;
  contract.context_parallel = 1;
  contract.layout_version = 1;
  return contract;
}

inline BlockKey Key(std::uint64_t n) {
  return MakeBlockKey(std::string("key ") + std::to_string(n), Shard{});
}

inline NodeId Node(std::uint8_t n) {
  NodeId node;
  node.bytes[0] = n;
  node.bytes[15] = 0x77;
  return node;
}

inline NodeAddress AddressOf(std::uint8_t node, std::uint64_t epoch) {
  return NodeAddress{
      .node = Node(node),
      .epoch = NodeEpoch{epoch},
      .stream_address = "host-" + std::to_string(node) + ":7411",
      .control_address = "host-" + std::to_string(node) + ":7410",
      .labels = {.zone = "z", .rack = "r", .host = "h"}};
}

// One life of a catalog's parts over `store`.
struct CatalogLife {
  CatalogLife(SimStore* store, ManualClock* clock, Random* random,
              std::uint64_t max_index_entries)
      : cluster(store, random),
        registry({}, {store, &cluster, clock, random}),
        membership({}, {store, clock, random}),
        digests(&membership),
        index(max_index_entries),
        entries({store, &cluster, &index, &digests}),
        removals({}),
        locator({&membership, &entries, &removals}),
        announcements({&cluster, &registry, &membership, &entries}) {}

  absl::Status Start() {
    bool made = false;
    RETURN_IF_ERROR(cluster.Load(&made));
    RETURN_IF_ERROR(registry.Load());
    return membership.Load();
  }

  ClusterState cluster;
  Registry registry;
  Membership membership;
  RunDigests digests;
  KeyIndex index;
  Entries entries;
  Removals removals;
  Locator locator;
  Announcements announcements;
};

class CatalogFixture : public testing::Test {
 protected:
  CatalogFixture() { Restart(); }

  // The process ends, and a new one starts over what the store has.
  void Restart() {
    life_ = std::make_unique<CatalogLife>(&store_, &clock_, &random_,
                                          max_index_entries_);
    ASSERT_OK(life_->Start());
  }
  void LoadIndex() {
    while (*life_->entries.LoadStep(100)) {
    }
  }

  NamespaceFacts MakeNamespace(std::string_view name,
                               std::string_view tenant = kDefaultTenant) {
    if (!life_->registry.FindTenant(tenant).has_value()) {
      EXPECT_OK(life_->registry.CreateTenant(tenant));
    }
    Registry::Wanted wanted;
    wanted.tenant = life_->registry.FindTenant(tenant)->tenant;
    wanted.name = std::string(name);
    wanted.contract = TestContract();
    auto opened = life_->registry.OpenOrCreate(wanted);
    EXPECT_OK(opened);
    return opened->record.facts;
  }
  void Clear(const NamespaceFacts& facts) {
    ASSERT_OK(life_->registry.Clear(facts.tenant, facts.name, facts.version));
  }

  // What a node knows of its own registration.
  struct Member {
    std::uint8_t node = 0;
    NodeEpoch epoch = NodeEpoch::kNone;
    RegistrationId registration;
    std::uint64_t number = 0;
    // As the registration began.
    bool kept = false;
    RegistrationId kept_registration;
    std::uint64_t kept_applied = 0;
  };
  absl::StatusOr<Member> TryRegister(std::uint8_t node, std::uint64_t epoch,
                                     std::uint64_t predecessor = 0) {
    Membership::Boot boot;
    boot.address = AddressOf(node, epoch);
    boot.predecessor = NodeEpoch{predecessor};
    ASSIGN_OR_RETURN(const Membership::Registered registered,
                     life_->membership.Register(boot));
    return Member{.node = node,
                  .epoch = NodeEpoch{epoch},
                  .registration = registered.registration,
                  .kept = registered.kept,
                  .kept_registration = registered.kept_registration,
                  .kept_applied = registered.kept_applied};
  }
  Member Register(std::uint8_t node, std::uint64_t epoch,
                  std::uint64_t predecessor = 0) {
    auto member = TryRegister(node, epoch, predecessor);
    EXPECT_OK(member);
    return member.ok() ? *member : Member{};
  }
  // Registered, with an empty inventory behind it.
  Member Join(std::uint8_t node, std::uint64_t epoch,
              std::uint64_t predecessor = 0) {
    Member member = Register(node, epoch, predecessor);
    EXPECT_OK(Send(&member, BatchKind::kInventoryBegin, {}));
    EXPECT_OK(Send(&member, BatchKind::kInventoryEnd, {}));
    return member;
  }

  // What the catalog has counted of the run (rule A5).
  BucketSums Digests(const Member& member) {
    const auto row = life_->membership.Find(Node(member.node));
    const BucketSums* sums =
        life_->digests.Find({.node = Node(member.node),
                             .epoch = member.epoch,
                             .serial = row->applied.serial});
    return sums == nullptr ? BucketSums() : *sums;
  }

  absl::Status KeepAlive(const Member& member) {
    Membership::Beat beat;
    beat.node = Node(member.node);
    beat.epoch = member.epoch;
    beat.registration = member.registration;
    beat.applied = member.number;
    return life_->membership.KeepAlive(beat);
  }
  absl::Status Unregister(const Member& member) {
    return life_->membership.Unregister(Node(member.node), member.epoch,
                                        member.registration);
  }
  // Time goes on as it does for a catalog that runs.
  void Pass(absl::Duration time) {
    const absl::Duration step = life_->membership.tick();
    for (; time > absl::ZeroDuration(); time -= step) {
      clock_.Advance(std::min(time, step));
      overdue_ = life_->membership.Tick();
    }
  }

  struct Said {
    const NamespaceFacts* name_space = nullptr;
    std::uint64_t key = 0;
    std::uint64_t generation = 1;
    EntryOperation operation = EntryOperation::kPublish;
    std::uint64_t length = 4096;
    std::uint8_t tier = 0;
  };
  AnnouncedBatch BatchOf(const Member& member, BatchKind kind,
                         const std::vector<Said>& said) {
    AnnouncedBatch batch;
    batch.node = Node(member.node);
    batch.epoch = member.epoch;
    batch.registration = member.registration;
    batch.number = member.number + 1;
    batch.kind = kind;
    for (const Said& one : said) {
      batch.copies.push_back(
          {.operation = one.operation,
           .name_space = static_cast<std::uint32_t>(batch.namespaces.size()),
           .key = Key(one.key),
           .place = {.parent = {},
                     .anchor = Key(one.key),
                     .position = static_cast<std::uint32_t>(one.key)},
           .length = one.length,
           .generation = Generation{one.generation},
           .tier = one.tier});
      batch.namespaces.push_back(
          {one.name_space->name_space, one.name_space->clear_epoch});
    }
    return batch;
  }
  // The member's next batch; its number goes on if it was applied.
  absl::StatusOr<Announcements::Applied> Send(
      Member* member, BatchKind kind, const std::vector<Said>& said,
      std::vector<std::uint32_t> buckets = {}) {
    AnnouncedBatch batch = BatchOf(*member, kind, said);
    batch.buckets = std::move(buckets);
    RETURN_IF_ERROR(CheckBatch(batch));
    auto applied = life_->announcements.Apply(batch);
    if (applied.ok()) member->number = applied->applied;
    return applied;
  }
  absl::StatusOr<Announcements::Applied> Send(Member* member,
                                              const std::vector<Said>& said) {
    return Send(member, BatchKind::kEvents, said);
  }
  // Names all that it has in the buckets of `keys`.
  absl::StatusOr<Announcements::Applied> Repair(
      Member* member, const std::vector<std::uint64_t>& keys,
      const std::vector<Said>& said) {
    std::set<std::uint32_t> buckets;
    for (const std::uint64_t key : keys) buckets.insert(CopyBucket(Key(key)));
    return Send(member, BatchKind::kRepair, said,
                {buckets.begin(), buckets.end()});
  }

  Locator::Answer Locate(const NamespaceFacts& facts,
                         const std::vector<std::uint64_t>& keys,
                         Entries::Want want = Entries::Want::kEveryKey) {
    std::vector<BlockKey> wanted;
    for (const std::uint64_t key : keys) wanted.push_back(Key(key));
    const auto now = life_->registry.Describe(facts.name_space);
    EXPECT_TRUE(now.has_value());
    auto answer = life_->locator.Locate(*now, wanted, want);
    EXPECT_OK(answer);
    return *std::move(answer);
  }
  Outcome OutcomeOf(const NamespaceFacts& facts, std::uint64_t key) {
    return Locate(facts, {key}).outcomes[0];
  }

  SimStore store_;
  ManualClock clock_;
  SeededRandom random_{1};
  std::uint64_t max_index_entries_ = 1 << 20;
  std::vector<Membership::Overdue> overdue_;
  std::unique_ptr<CatalogLife> life_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_CATALOG_CATALOG_FIXTURE_H_
