// Tenants, namespaces and their versions, clears, backups, restores.

#include "server/catalog/registry.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/limits.h"
#include "server/catalog/backup.h"
#include "tests/server/catalog/catalog_fixture.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RegistryTest : public CatalogFixture {
 protected:
  Registry& registry() { return life_->registry; }
  TenantId Tenant(std::string_view name = kDefaultTenant) {
    return registry().FindTenant(name)->tenant;
  }
  Registry::Wanted Wanted(std::string_view name = "granite") {
    Registry::Wanted wanted;
    wanted.tenant = Tenant();
    wanted.name = std::string(name);
    wanted.contract = TestContract();
    return wanted;
  }
  std::uint64_t Sequence() { return life_->cluster.incarnation().sequence; }
};

TEST_F(RegistryTest, TheFirstStartMakesTheDefaultTenantOnce) {
  const TenantId tenant = Tenant();
  const ClusterId cluster = life_->cluster.cluster();

  Restart();

  EXPECT_EQ(Tenant(), tenant);
  EXPECT_EQ(life_->cluster.cluster(), cluster);
  EXPECT_FALSE(cluster.IsZero());
  EXPECT_THAT(registry().ListTenants(), SizeIs(1));
}

TEST_F(RegistryTest, OpeningTheSameContractTwiceFindsTheSameNamespace) {
  const auto first = registry().OpenOrCreate(Wanted());
  const auto second = registry().OpenOrCreate(Wanted());

  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_TRUE(first->created);
  EXPECT_FALSE(second->created);
  EXPECT_EQ(second->record, first->record);
  EXPECT_EQ(first->record.facts.clear_epoch, ClearEpoch{1});
  EXPECT_EQ(first->record.facts.tenant_name, "default");
}

TEST_F(RegistryTest, AnotherContractIsAnotherVersionWithAnIdOfItsOwn) {
  const auto first = registry().OpenOrCreate(Wanted());
  Registry::Wanted other = Wanted();
  other.contract.kv_dtype = "fp8_e4m3";

  const auto second = registry().OpenOrCreate(other);

  ASSERT_OK(second);
  EXPECT_EQ(second->record.facts.version, 2u);
  EXPECT_NE(second->record.facts.name_space, first->record.facts.name_space);
  EXPECT_EQ(registry().FindNamespace(Tenant(), "granite", 0)->facts.version,
            2u);
  EXPECT_EQ(registry().FindNamespace(Tenant(), "granite", 1)->facts.version,
            1u);
}

TEST_F(RegistryTest, WithoutCreateTheFirstDifferenceIsNamed) {
  ASSERT_OK(registry().OpenOrCreate(Wanted()));
  Registry::Wanted other = Wanted();
  other.contract.kv_dtype = "fp8_e4m3";

  EXPECT_THAT(
      registry().Find(other),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("kv_dtype")));
  EXPECT_THAT(registry().Find(Wanted("nobody")),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RegistryTest, AMissingMandatoryFieldIsRefusedByName) {
  Registry::Wanted wanted = Wanted();
  wanted.contract.tokenizer.clear();

  EXPECT_THAT(
      registry().OpenOrCreate(wanted),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer")));
  EXPECT_EQ(registry().namespaces(), 0u);
}

TEST_F(RegistryTest, SettingsThatDisagreeAreRefusedByName) {
  Registry::Wanted wanted = Wanted();
  wanted.block_bytes = 65536;
  wanted.chained = true;
  wanted.retention = absl::Hours(1);
  ASSERT_OK(registry().OpenOrCreate(wanted));
  const auto refused_for = [&](auto change, std::string_view field) {
    Registry::Wanted other = wanted;
    change(&other);
    EXPECT_THAT(registry().OpenOrCreate(other),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(std::string(field))));
  };

  refused_for([](auto* w) { w->block_bytes = 4096; }, "block_bytes");
  refused_for([](auto* w) { w->chained = false; }, "chained");
  refused_for([](auto* w) { w->retention = absl::Hours(2); }, "retention");
  refused_for([](auto* w) { w->strict_clear = true; }, "strict_clear");

  Registry::Wanted whatever = Wanted();
  whatever.chained = true;
  EXPECT_OK(registry().OpenOrCreate(whatever));
}

TEST_F(RegistryTest, TwoTenantsMayUseOneNameForTwoNamespaces) {
  // Rule C1.
  const NamespaceFacts one = MakeNamespace("granite");
  const NamespaceFacts other = MakeNamespace("granite", "other");

  EXPECT_EQ(one.digest, other.digest);
  EXPECT_NE(one.name_space, other.name_space);
  EXPECT_NE(one.tenant, other.tenant);
}

TEST_F(RegistryTest, NamesAreBoundedAndOfPlainCharacters) {
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);

  EXPECT_OK(CheckName("tenant", "Team-7/llama_3.1:70b@prod+x"));
  EXPECT_OK(CheckName("tenant", std::string(kMaxNameBytes, 'a')));
  EXPECT_THAT(CheckName("tenant", ""), invalid);
  EXPECT_THAT(CheckName("tenant", std::string(kMaxNameBytes + 1, 'a')),
              invalid);
  for (const char* bad : {"-x", "/x", "a b", "a\n", "\xc3\xa4", "a\"b", "a{"}) {
    EXPECT_THAT(CheckName("tenant", bad), invalid) << bad;
  }
}

TEST_F(RegistryTest, ATenantIsMadeOnce) {
  ASSERT_OK(registry().CreateTenant("team"));

  EXPECT_THAT(registry().CreateTenant("team"),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(RegistryTest, TheBoundsOnTenantsAndNamespacesHold) {
  Registry small(
      {.max_tenants = 2, .max_namespaces = 2, .max_versions_a_name = 1},
      {&store_, &life_->cluster, &clock_, &random_});
  ASSERT_OK(small.Load());
  const auto full = StatusIs(absl::StatusCode::kResourceExhausted);
  ASSERT_OK(small.CreateTenant("second"));
  EXPECT_THAT(small.CreateTenant("third"), full);

  ASSERT_OK(small.OpenOrCreate(Wanted("a")));
  Registry::Wanted version = Wanted("a");
  version.contract.kv_dtype = "fp8_e4m3";
  EXPECT_THAT(small.OpenOrCreate(version), full);
  ASSERT_OK(small.OpenOrCreate(Wanted("b")));
  EXPECT_THAT(small.OpenOrCreate(Wanted("c")), full);
  EXPECT_OK(small.OpenOrCreate(Wanted("a")));
}

TEST_F(RegistryTest, ClearRaisesTheEpochInOneSyncedWrite) {
  const NamespaceFacts facts = MakeNamespace("granite");
  const std::uint64_t writes = store_.writes();
  const std::uint64_t synced = store_.synced_writes();

  const auto cleared = registry().Clear(facts.tenant, "granite", 0);

  ASSERT_OK(cleared);
  EXPECT_EQ((*cleared)[0].facts.clear_epoch, ClearEpoch{2});
  EXPECT_EQ(store_.writes(), writes + 1);
  EXPECT_EQ(store_.synced_writes(), synced + 1);
  store_.PowerCut(nullptr);
  Restart();
  EXPECT_EQ(registry().Describe(facts.name_space)->clear_epoch, ClearEpoch{2});
}

TEST_F(RegistryTest, ClearOfOneVersionLeavesTheOthers) {
  const NamespaceFacts first = MakeNamespace("granite");
  Registry::Wanted other = Wanted();
  other.contract.kv_dtype = "fp8_e4m3";
  const NamespaceFacts second = registry().OpenOrCreate(other)->record.facts;

  ASSERT_OK(registry().Clear(first.tenant, "granite", 1));

  EXPECT_EQ(registry().Describe(first.name_space)->clear_epoch, ClearEpoch{2});
  EXPECT_EQ(registry().Describe(second.name_space)->clear_epoch, ClearEpoch{1});
  ASSERT_OK(registry().Clear(first.tenant, "granite", 0));
  EXPECT_EQ(registry().Describe(second.name_space)->clear_epoch, ClearEpoch{2});
  EXPECT_THAT(registry().Clear(first.tenant, "granite", 3),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RegistryTest, ChangesAreToldFromACursorOn) {
  const NamespaceFacts a = MakeNamespace("a");
  const NamespaceFacts b = MakeNamespace("b");
  const Registry::Changes all = registry().ChangesSince(0, 10);
  EXPECT_THAT(all.facts, SizeIs(2));
  EXPECT_THAT(registry().ChangesSince(all.cursor, 10).facts, IsEmpty());

  Clear(a);

  const Registry::Changes changed = registry().ChangesSince(all.cursor, 10);
  ASSERT_THAT(changed.facts, SizeIs(1));
  EXPECT_EQ(changed.facts[0].name_space, a.name_space);
  EXPECT_EQ(changed.facts[0].clear_epoch, ClearEpoch{2});
  EXPECT_EQ(b.clear_epoch, ClearEpoch{1});
}

TEST_F(RegistryTest, ManyChangesAreToldInParts) {
  for (int i = 0; i < 5; ++i) MakeNamespace("n" + std::to_string(i));
  std::set<NamespaceId> told;
  std::uint64_t cursor = 0;

  for (int i = 0; i < 3; ++i) {
    const Registry::Changes part = registry().ChangesSince(cursor, 2);
    for (const NamespaceFacts& one : part.facts) told.insert(one.name_space);
    cursor = part.cursor;
  }

  EXPECT_THAT(told, SizeIs(5));
  EXPECT_EQ(cursor, life_->cluster.last_change());
}

TEST_F(RegistryTest, ACursorOfAnotherLifeIsToldEverything) {
  MakeNamespace("a");

  EXPECT_THAT(registry().ChangesSince(1000, 10).facts, SizeIs(1));
}

// Rule A9.
TEST_F(RegistryTest, EveryStartBeginsAnIncarnation) {
  const Incarnation before = life_->cluster.incarnation();
  store_.PowerCut(nullptr);
  Restart();

  EXPECT_EQ(life_->cluster.incarnation().incarnation, before.incarnation + 1);
  EXPECT_NE(life_->cluster.incarnation().random_id, before.random_id);
}

// Rule A9.
TEST_F(RegistryTest, EveryAdministrativeWriteAdvancesTheSequence) {
  std::uint64_t last = Sequence();
  const auto advanced = [&] {
    const bool more = Sequence() > last;
    last = Sequence();
    return more;
  };

  ASSERT_OK(registry().CreateTenant("team"));
  EXPECT_TRUE(advanced());
  ASSERT_OK(registry().OpenOrCreate(Wanted()));
  EXPECT_TRUE(advanced());
  ASSERT_OK(registry().Clear(Tenant(), "granite", 0));
  EXPECT_TRUE(advanced());
  ASSERT_OK(registry().OpenOrCreate(Wanted()));
  EXPECT_FALSE(advanced());
}

// Rule A9.
TEST_F(RegistryTest, ANodeThatHasSeenALaterStateIsRefused) {
  Incarnation seen = life_->cluster.incarnation();
  EXPECT_OK(life_->cluster.CheckSeen(seen));
  EXPECT_OK(life_->cluster.CheckSeen({}));
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("accept-restore"));

  ++seen.sequence;
  EXPECT_THAT(life_->cluster.CheckSeen(seen), refused);
  seen = life_->cluster.incarnation();
  seen.random_id.bytes[0] ^= 1;
  EXPECT_THAT(life_->cluster.CheckSeen(seen), refused);
  seen = life_->cluster.incarnation();
  ++seen.incarnation;
  EXPECT_THAT(life_->cluster.CheckSeen(seen), refused);
  seen.incarnation = UINT64_MAX;
  EXPECT_THAT(life_->cluster.CheckSeen(seen),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// Rule A9: of two catalogs over copies of one directory, nodes of the one
// refuse the other.
TEST_F(RegistryTest, ADoubledCatalogIsNoticed) {
  SimStore copy;
  copy.Load(store_.Snapshot());
  Restart();
  ClusterState other(&copy, &random_);
  bool made = false;
  ASSERT_OK(other.Load(&made));

  EXPECT_FALSE(made);
  EXPECT_EQ(other.incarnation().incarnation,
            life_->cluster.incarnation().incarnation);
  EXPECT_THAT(other.CheckSeen(life_->cluster.incarnation()),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Rule A9: each start of the copy counts one on, until it is above all that the
// nodes have seen of the original.
TEST_F(RegistryTest, ARestoredDirectoryIsNoticedHoweverOftenItStarts) {
  ASSERT_OK(life_->cluster.MarkTold());
  const Incarnation before = life_->cluster.incarnation();
  const SimStore::Families backup = store_.Snapshot();
  Restart();
  ASSERT_OK(life_->cluster.MarkTold());
  const Incarnation seen = life_->cluster.incarnation();
  store_.Load(backup);

  for (int start = 0; start < 5; ++start) {
    Restart();
    ASSERT_OK(life_->cluster.MarkTold());
    EXPECT_THAT(life_->cluster.CheckSeen(seen),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("accept-restore")))
        << start;
    EXPECT_OK(life_->cluster.CheckSeen(before)) << start;
  }
}

// Rule A9.
TEST_F(RegistryTest, ABackupThatMissesTheLastWriteIsNoticed) {
  MakeNamespace("granite");
  ASSERT_OK(life_->cluster.MarkTold());
  const Incarnation at_backup = life_->cluster.incarnation();
  const BackupState backup = registry().Backup();
  ASSERT_OK(registry().Clear(Tenant(), "granite", 0));
  const Incarnation seen = life_->cluster.incarnation();
  store_.Wipe();
  for (int start = 0; start < 3; ++start) Restart();

  ASSERT_OK(registry().Restore(backup));

  EXPECT_OK(life_->cluster.CheckSeen(at_backup));
  EXPECT_THAT(life_->cluster.CheckSeen(seen),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  Restart();
  EXPECT_OK(life_->cluster.CheckSeen(at_backup));
  EXPECT_FALSE(life_->cluster.CheckSeen(seen).ok());
}

// Rule A9: a node may have been away for long.
TEST_F(RegistryTest, WhatANodeHasSeenOfAnEarlierStartIsFollowed) {
  ASSERT_OK(registry().CreateTenant("team"));
  ASSERT_OK(life_->cluster.MarkTold());
  Incarnation seen = life_->cluster.incarnation();
  for (int start = 0; start < 4; ++start) {
    Restart();
    ASSERT_OK(life_->cluster.MarkTold());
  }

  EXPECT_OK(life_->cluster.CheckSeen(seen));
  ++seen.sequence;
  EXPECT_FALSE(life_->cluster.CheckSeen(seen).ok());
}

// Rule A9: what no node can have seen need not be remembered.
TEST_F(RegistryTest, StartsThatNobodyWasToldOfPushNoneOut) {
  ASSERT_OK(life_->cluster.MarkTold());
  const Incarnation seen = life_->cluster.incarnation();

  for (std::size_t i = 0; i < 2 * kMaxPastIncarnations; ++i) Restart();

  EXPECT_THAT(life_->cluster.record().past, SizeIs(1));
  EXPECT_OK(life_->cluster.CheckSeen(seen));
}

// Rule A9: nothing says that it was of this catalog.
TEST_F(RegistryTest, WhatIsOlderThanAllThatIsRememberedIsRefused) {
  ASSERT_OK(life_->cluster.MarkTold());
  const Incarnation seen = life_->cluster.incarnation();
  for (std::size_t i = 0; i <= kMaxPastIncarnations; ++i) {
    Restart();
    ASSERT_OK(life_->cluster.MarkTold());
  }
  EXPECT_THAT(life_->cluster.record().past, SizeIs(kMaxPastIncarnations));
  EXPECT_FALSE(life_->cluster.CheckSeen(seen).ok());

  ASSERT_OK(registry().AcceptRestore());

  EXPECT_OK(life_->cluster.CheckSeen(seen));
}

// Rule A9: those of the original, of the copy, and who has said nothing yet.
TEST_F(RegistryTest, AfterAcceptRestoreEveryNodeOfBeforeComesBack) {
  const SimStore::Families backup = store_.Snapshot();
  std::vector<Incarnation> seen;
  for (int copy = 0; copy < 2; ++copy) {
    store_.Load(backup);
    for (int start = 0; start < 3 - copy; ++start) {
      Restart();
      ASSERT_OK(life_->cluster.MarkTold());
      seen.push_back(life_->cluster.incarnation());
    }
  }
  EXPECT_FALSE(life_->cluster.CheckSeen(seen[2]).ok());

  ASSERT_OK(registry().AcceptRestore());

  for (int start = 0; start < 3; ++start) {
    for (const Incarnation& one : seen) {
      EXPECT_OK(life_->cluster.CheckSeen(one));
    }
    Restart();
  }
}

// Rule A9: a backup of after an accept-restore brings its bound on tokens.
TEST_F(RegistryTest, ARestoreKeepsOutdatedTokensOutdated) {
  ASSERT_OK(registry().AcceptRestore());
  const BackupState backup = registry().Backup();
  const std::uint64_t outdated = life_->cluster.incarnation().credentials;
  store_.Wipe();
  Restart();

  ASSERT_OK(registry().Restore(backup));

  EXPECT_EQ(life_->cluster.incarnation().credentials, outdated);
}

// Rule A9.
TEST_F(RegistryTest, AcceptRestoreRaisesEverythingAboveWhatWasReported) {
  const NamespaceFacts facts = MakeNamespace("granite");
  Incarnation seen = life_->cluster.incarnation();
  seen.incarnation += 7;
  ASSERT_FALSE(life_->cluster.CheckSeen(seen).ok());
  registry().NoteReported(facts.name_space, ClearEpoch{40});

  const auto raised = registry().AcceptRestore();

  ASSERT_OK(raised);
  EXPECT_EQ(*raised, 1u);
  EXPECT_OK(life_->cluster.CheckSeen(seen));
  const Incarnation accepted = life_->cluster.incarnation();
  EXPECT_EQ(accepted.credentials, accepted.incarnation);
  EXPECT_GT(registry().Describe(facts.name_space)->clear_epoch, ClearEpoch{40});
  EXPECT_THAT(registry().ChangesSince(facts.version, 10).facts, SizeIs(1));
}

// Rule A9: what the first one served, and cleared, never comes back.
TEST_F(RegistryTest, ASecondAcceptRestoreOfOneBackupRaisesAboveTheFirst) {
  const NamespaceFacts facts = MakeNamespace("granite");
  const BackupState backup = registry().Backup();
  ASSERT_OK(registry().AcceptRestore());
  Clear(facts);
  const ClearEpoch cleared = registry().Describe(facts.name_space)->clear_epoch;
  // What every node has heard of.
  const std::uint64_t cursor = life_->cluster.last_change();
  store_.Wipe();
  Restart();
  ASSERT_OK(registry().Restore(backup));
  ASSERT_FALSE(life_->cluster.CheckCursor(cursor));

  ASSERT_OK(registry().AcceptRestore());

  EXPECT_GT(registry().Describe(facts.name_space)->clear_epoch, cleared);
  EXPECT_GT(life_->cluster.last_change(), cursor);
}

TEST_F(RegistryTest, ABackupRestoresIdsContractsAndEpochs) {
  const NamespaceFacts facts = MakeNamespace("granite", "team");
  Clear(facts);
  const std::string blob = EncodeBackup(registry().Backup());
  const ClusterId cluster = life_->cluster.cluster();
  const Incarnation before = life_->cluster.incarnation();
  store_.Wipe();
  Restart();
  ASSERT_NE(life_->cluster.cluster(), cluster);

  const auto state = DecodeBackup(blob);
  ASSERT_OK(state);
  ASSERT_OK(registry().Restore(*state));

  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(life_->cluster.cluster(), cluster);
    const auto now = registry().Describe(facts.name_space);
    ASSERT_TRUE(now.has_value());
    EXPECT_EQ(now->clear_epoch, ClearEpoch{2});
    EXPECT_EQ(now->tenant_name, "team");
    EXPECT_EQ(now->digest, facts.digest);
    EXPECT_THAT(registry().ListTenants(), SizeIs(2));
    EXPECT_GT(life_->cluster.incarnation().incarnation, before.incarnation);
    Restart();
  }
}

TEST_F(RegistryTest, RestoreIsRefusedWhereThereAreNamespaces) {
  MakeNamespace("granite");
  const BackupState state = registry().Backup();

  EXPECT_THAT(registry().Restore(state),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RegistryTest, ADamagedBackupIsRefused) {
  MakeNamespace("granite");
  const std::string blob = EncodeBackup(registry().Backup());
  ASSERT_OK(DecodeBackup(blob));

  for (std::size_t i = 0; i < blob.size(); ++i) {
    std::string bad = blob;
    bad[i] = static_cast<char>(bad[i] ^ 0x40);
    ASSERT_FALSE(DecodeBackup(bad).ok()) << i;
    ASSERT_FALSE(DecodeBackup(blob.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(DecodeBackup(blob + "x").ok());
}

TEST_F(RegistryTest, ABackupThatContradictsItselfIsRefused) {
  MakeNamespace("granite");
  const BackupState good = registry().Backup();
  ASSERT_OK(DecodeBackup(EncodeBackup(good)));
  const auto refused = [&](auto change) {
    BackupState bad = good;
    change(&bad);
    EXPECT_THAT(DecodeBackup(EncodeBackup(bad)),
                StatusIs(absl::StatusCode::kInvalidArgument));
  };

  refused([](auto* s) { s->tenants.clear(); });
  refused([](auto* s) { s->namespaces.push_back(s->namespaces[0]); });
  refused([](auto* s) { s->namespaces[0].facts.version = 2; });
  refused([](auto* s) { s->namespaces[0].facts.clear_epoch = {}; });
  refused([](auto* s) { s->namespaces[0].changed_at = 1000; });
  refused([](auto* s) { s->tenants[0].name = "a b"; });
  refused([](auto* s) { s->cluster.cluster = {}; });
}

}  // namespace
}  // namespace firnkv
