// The catalog dies at each of its writes, in every way in which a write can
// end, and starts anew: what was promised holds, nothing is half there.

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "server/catalog/backup.h"
#include "tests/server/catalog/catalog_fixture.h"

namespace firnkv {
namespace {

// How the machine goes on after the last write.
enum class Aftermath { kProcessDied, kPowerCut };

class CatalogCrashTest : public CatalogFixture,
                         public testing::WithParamInterface<
                             std::tuple<SimStore::LastWrite, Aftermath>> {
 protected:
  // What callers were told, up to the crash.
  struct Promised {
    std::map<NamespaceId, ClearEpoch> namespaces;
    std::set<std::string> tenants;
    std::uint64_t registered_epoch = 0;
    std::vector<std::uint64_t> published;
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;
    bool ended = false;
  };

  void Note(Promised* promised) {
    promised->incarnation = life_->cluster.incarnation().incarnation;
    promised->sequence = life_->cluster.incarnation().sequence;
  }

  // A little of everything that writes. Stops at the first refusal.
  Promised Run() {
    Promised promised;
    promised.tenants.insert("default");
    Note(&promised);
    const auto team = life_->registry.CreateTenant("team");
    if (!team.ok()) return promised;
    promised.tenants.insert("team");
    Note(&promised);
    Registry::Wanted wanted;
    wanted.tenant = team->tenant;
    wanted.name = "granite";
    wanted.contract = TestContract();
    const auto opened = life_->registry.OpenOrCreate(wanted);
    if (!opened.ok()) return promised;
    NamespaceFacts facts = opened->record.facts;
    promised.namespaces[facts.name_space] = facts.clear_epoch;
    Note(&promised);
    auto node = TryRegister(1, 100);
    if (!node.ok()) return promised;
    promised.registered_epoch = 100;
    if (!Send(&*node, BatchKind::kInventoryBegin, {}).ok()) return promised;
    if (!Send(&*node, BatchKind::kInventoryPart, {{&facts, 1, 1}}).ok()) {
      return promised;
    }
    if (!Send(&*node, BatchKind::kInventoryEnd, {}).ok()) return promised;
    promised.published = {1};
    if (!Send(&*node, {{&facts, 2, 2}, {&facts, 3, 3}}).ok()) return promised;
    promised.published = {1, 2, 3};
    node = TryRegister(1, 101, 100);
    if (!node.ok()) return promised;
    promised.registered_epoch = 101;
    promised.published.clear();
    const auto cleared = life_->registry.Clear(team->tenant, "granite", 0);
    if (!cleared.ok()) return promised;
    promised.namespaces[facts.name_space] = (*cleared)[0].facts.clear_epoch;
    Note(&promised);
    promised.ended = true;
    return promised;
  }

  void ExpectKept(const Promised& promised, bool unsynced_kept) {
    for (const auto& [id, epoch] : promised.namespaces) {
      const auto facts = life_->registry.Describe(id);
      ASSERT_TRUE(facts.has_value());
      EXPECT_GE(facts->clear_epoch, epoch);
    }
    for (const std::string& tenant : promised.tenants) {
      EXPECT_TRUE(life_->registry.FindTenant(tenant).has_value()) << tenant;
    }
    EXPECT_GT(life_->cluster.incarnation().incarnation, promised.incarnation);
    if (promised.registered_epoch != 0) {
      const auto row = life_->membership.Find(Node(1));
      ASSERT_TRUE(row.has_value());
      EXPECT_GE(static_cast<std::uint64_t>(row->address.epoch),
                promised.registered_epoch);
    }
    if (unsynced_kept) {
      for (const std::uint64_t key : promised.published) {
        ExpectKnown(key, promised);
      }
    }
  }
  void ExpectKnown(std::uint64_t key, const Promised& promised) {
    for (const auto& [id, epoch] : promised.namespaces) {
      const auto entry =
          life_->entries.Explain({.name_space = id, .key = Key(key)});
      ASSERT_OK(entry);
      EXPECT_TRUE(entry->has_value()) << key;
    }
  }

  // Every value decodes, the index agrees with the store, and what an applied
  // number counts is there as a whole.
  void ExpectWhole() {
    LoadIndex();
    std::size_t entries = 0;
    ASSERT_OK(store_.Scan(
        Family::kKeys, "", "", [&](std::string_view key, std::string_view v) {
          const auto record = DecodeEntry(v);
          EXPECT_OK(record);
          const auto found = life_->index.Find(*DecodeEntryKey(key));
          EXPECT_TRUE(found.has_value());
          ++entries;
          return true;
        }));
    EXPECT_EQ(life_->index.totals().entries, entries);
    // Keys 2 and 3 came in one batch.
    const auto row = life_->membership.Find(Node(1));
    if (!row.has_value()) return;
    const auto records = life_->registry.ListNamespaces(nullptr);
    ASSERT_EQ(records.size(), 1u);
    const NamespaceId id = records[0].facts.name_space;
    const bool second = life_->index.Find({id, Key(2)}).has_value();
    EXPECT_EQ(life_->index.Find({id, Key(3)}).has_value(), second);
    if (row->address.epoch == NodeEpoch{100}) {
      EXPECT_EQ(second, row->applied.applied == 4);
    }
  }
};

// Rules A1, A6, A9, C2.
TEST_P(CatalogCrashTest, WhatWasPromisedHoldsAfterACrashAtEachWrite) {
  const auto [last, aftermath] = GetParam();
  bool ended = false;
  for (std::uint64_t n = 1; !ended; ++n) {
    SCOPED_TRACE(n);
    store_.Wipe();
    Restart();
    store_.CrashAtWrite(n, last);
    const Promised promised = Run();
    ended = promised.ended;

    if (aftermath == Aftermath::kPowerCut) {
      store_.PowerCut(n % 2 == 0 ? &random_ : nullptr);
    } else {
      store_.Reopen();
    }
    Restart();

    ExpectKept(promised, aftermath == Aftermath::kProcessDied);
    ExpectWhole();
    // And it goes on: the node comes back, every key can be written again.
    const auto team = life_->registry.FindTenant("team");
    const NamespaceFacts facts =
        MakeNamespace("granite", team.has_value() ? "team" : "default");
    Member node =
        Join(1, 102,
             promised.registered_epoch == 0
                 ? 100
                 : static_cast<std::uint64_t>(
                       life_->membership.Find(Node(1))->address.epoch));
    ASSERT_OK(Send(&node, {{&facts, 1}, {&facts, 2}, {&facts, 3}}));
    EXPECT_EQ(OutcomeOf(facts, 2), Outcome::kHit);
    if (HasFailure()) return;
  }
}

// The first start of all is a row of writes too.
TEST_P(CatalogCrashTest, AFirstStartThatCrashesIsMadeGoodByTheNext) {
  const auto [last, aftermath] = GetParam();
  for (std::uint64_t n = 1; n <= 3; ++n) {
    store_.Wipe();
    store_.CrashAtWrite(n, last);
    CatalogLife first(&store_, &clock_, &random_, max_index_entries_);
    const bool started = first.Start().ok();
    if (aftermath == Aftermath::kPowerCut) {
      store_.PowerCut(nullptr);
    } else {
      store_.Reopen();
    }

    Restart();

    EXPECT_TRUE(life_->registry.FindTenant("default").has_value());
    EXPECT_EQ(life_->registry.ListTenants().size(), 1u);
    EXPECT_EQ(started, n == 3);
  }
}

// Restore replaces everything in one write.
TEST_P(CatalogCrashTest, ARestoreIsDoneOrNotDone) {
  const auto [last, aftermath] = GetParam();
  MakeNamespace("granite", "team");
  const BackupState backup = life_->registry.Backup();
  store_.Wipe();
  Restart();
  store_.CrashAtWrite(1, last);
  EXPECT_FALSE(life_->registry.Restore(backup).ok());
  if (aftermath == Aftermath::kPowerCut) {
    store_.PowerCut(nullptr);
  } else {
    store_.Reopen();
  }
  Restart();

  const bool done = last == SimStore::LastWrite::kLands;
  EXPECT_EQ(life_->cluster.cluster() == backup.cluster.cluster, done);
  EXPECT_EQ(life_->registry.namespaces(), done ? 1u : 0u);
  EXPECT_EQ(life_->registry.FindTenant("team").has_value(), done);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, CatalogCrashTest,
    testing::Combine(testing::Values(SimStore::LastWrite::kLost,
                                     SimStore::LastWrite::kLands),
                     testing::Values(Aftermath::kProcessDied,
                                     Aftermath::kPowerCut)));

}  // namespace
}  // namespace firnkv
