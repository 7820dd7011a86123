// The store over RocksDB: the same promises as SimStore's, kept by a real disk
// and real kills. Release builds only.

#include "server/catalog/rocks_store.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/entries.h"
#include "server/catalog/registry.h"
#include "tests/server/catalog/catalog_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RocksStoreTest : public testing::Test {
 protected:
  RocksStoreTest() {
    std::string name = testing::TempDir() + "firnkv-rocks-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~RocksStoreTest() override {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Open() {
    store_.reset();
    auto opened = RocksStore::Open(directory_);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
  }
  void Put(Family family, std::string key, std::string value,
           Store::Durability durability = Store::Durability::kLogged) {
    ASSERT_OK(store_->Apply({{family, std::move(key), std::move(value)}},
                            durability));
  }
  std::optional<std::string> Get(Family family, std::string_view key) {
    auto value = store_->Get(family, key);
    EXPECT_OK(value);
    return *value;
  }

  // Runs `work` in a process of its own until that says "ready" (by returning),
  // then kills it.
  template <typename Work>
  void RunAndKill(Work work) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      work();
      const char byte = 'r';
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      while (true) pause();
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
  }

  std::string directory_;
  std::unique_ptr<RocksStore> store_;
};

TEST_F(RocksStoreTest, WhatWasWrittenIsThereAfterReopening) {
  Open();
  Put(Family::kTenants, "a", "1");
  Put(Family::kKeys, "a", "2");
  Open();

  EXPECT_EQ(Get(Family::kTenants, "a"), "1");
  EXPECT_EQ(Get(Family::kKeys, "a"), "2");
  EXPECT_EQ(Get(Family::kNodes, "a"), std::nullopt);
}

TEST_F(RocksStoreTest, ABatchWritesAndDeletesInOrder) {
  Open();
  Put(Family::kKeys, "gone", "1");
  ASSERT_OK(store_->Apply({{Family::kKeys, "gone", std::nullopt},
                           {Family::kKeys, "twice", "1"},
                           {Family::kKeys, "twice", "2"}},
                          Store::Durability::kSynced));

  const auto values =
      store_->MultiGet(Family::kKeys, {"twice", "gone", "never"});

  ASSERT_OK(values);
  EXPECT_THAT(*values, ElementsAre("2", std::nullopt, std::nullopt));
}

TEST_F(RocksStoreTest, AScanStaysInsideItsPrefixAndStopsWhenTold) {
  Open();
  for (const char* key : {"a1", "b1", "b2", "b3", "c1"}) {
    Put(Family::kKeys, key, "v");
  }
  const auto scan = [&](std::string_view prefix, std::string_view from,
                        std::size_t most) {
    std::vector<std::string> seen;
    EXPECT_OK(store_->Scan(Family::kKeys, prefix, from,
                           [&](std::string_view key, std::string_view) {
                             seen.emplace_back(key);
                             return seen.size() < most;
                           }));
    return seen;
  };

  EXPECT_THAT(scan("b", "", 9), ElementsAre("b1", "b2", "b3"));
  EXPECT_THAT(scan("b", "b2", 9), ElementsAre("b2", "b3"));
  EXPECT_THAT(scan("b", "", 2), ElementsAre("b1", "b2"));
  EXPECT_THAT(scan("", "c", 9), ElementsAre("c1"));
}

TEST_F(RocksStoreTest, ADirectoryInUseIsRefusedWithWhatToDo) {
  Open();

  EXPECT_THAT(RocksStore::Open(directory_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("in use by another process")));
}

TEST_F(RocksStoreTest, WhatWasLoggedSurvivesAKill) {
  RunAndKill([this] {
    Open();
    for (int i = 0; i < 1000; ++i) {
      Put(Family::kKeys, std::to_string(i), std::to_string(i));
    }
  });

  Open();

  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(Get(Family::kKeys, std::to_string(i)), std::to_string(i));
  }
}

// Kills while writes go on: a batch is there whole or not at all, and no later
// one without the earlier.
TEST_F(RocksStoreTest, AKillInTheMiddleLeavesAPrefixOfWholeBatches) {
  for (int round = 1; round <= 5; ++round) {
    std::filesystem::remove_all(directory_);
    int progress[2];
    ASSERT_EQ(pipe(progress), 0);
    const pid_t child = fork();
    if (child == 0) {
      Open();
      for (int i = 0;; ++i) {
        Put(Family::kKeys, StrCat("a", i), "v");
        const absl::Status status =
            store_->Apply({{Family::kKeys, StrCat("b", i), std::string("v")},
                           {Family::kKeys, StrCat("c", i), std::string("v")}},
                          Store::Durability::kLogged);
        const char byte = 'w';
        if (!status.ok() || write(progress[1], &byte, 1) != 1) _exit(1);
      }
    }
    close(progress[1]);
    int told = 0;
    char byte = 0;
    while (told < 100 * round && read(progress[0], &byte, 1) == 1) ++told;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    // What was told before the kill was noticed counts too.
    while (read(progress[0], &byte, 1) == 1) ++told;
    close(progress[0]);

    Open();
    int last = 0;
    while (Get(Family::kKeys, StrCat("c", last)).has_value()) {
      ASSERT_TRUE(Get(Family::kKeys, StrCat("a", last)).has_value());
      ASSERT_TRUE(Get(Family::kKeys, StrCat("b", last)).has_value());
      ++last;
    }
    EXPECT_GE(last, told);
    EXPECT_FALSE(Get(Family::kKeys, StrCat("b", last)).has_value());
    for (int i = last + 1; i < last + 100; ++i) {
      ASSERT_FALSE(Get(Family::kKeys, StrCat("a", i)).has_value());
    }
    store_.reset();
  }
}

// Ready in well under a second, also after SIGKILL, also with many entries: a
// full log is replayed, entries are not read.
TEST_F(RocksStoreTest, ACatalogIsReadyAtOnceAfterAKillWithManyEntries) {
  constexpr int kBatches = 150;
  constexpr int kEntriesABatch = 2048;
  RunAndKill([this] {
    Open();
    EntryRecord entry;
    entry.sequence = 1;
    entry.clear_epoch = ClearEpoch{1};
    entry.locations.resize(1);
    SeededRandom random(1);
    std::vector<Store::Write> batch;
    for (int i = 0; i < kBatches; ++i) {
      batch.clear();
      for (int j = 0; j < kEntriesABatch; ++j) {
        batch.push_back(
            {Family::kKeys,
             EntryKey({.name_space = {}, .key = BlockKey::Make(&random)}),
             Encode(entry)});
      }
      if (!store_->Apply(batch, Store::Durability::kLogged).ok()) _exit(1);
    }
  });
  SystemClock clock;
  SystemRandom random;

  const BootTime began = clock.Now();
  Open();
  ClusterState cluster(store_.get(), &random);
  bool made = false;
  ASSERT_OK(cluster.Load(&made));
  Registry registry({}, {store_.get(), &cluster, &clock, &random});
  ASSERT_OK(registry.Load());
  const absl::Duration took = clock.Now() - began;

  RecordProperty("open_milliseconds",
                 static_cast<int>(absl::ToInt64Milliseconds(took)));
  EXPECT_LT(took, absl::Seconds(5));  // A loaded machine; see BENCHMARKS.md.
  KeyIndex index(1 << 22);
  Entries entries(store_.get(), &cluster, &index);
  while (*entries.LoadStep(4096)) {
  }
  EXPECT_EQ(index.totals().entries,
            static_cast<std::uint64_t>(kBatches * kEntriesABatch));
}

}  // namespace
}  // namespace firnkv
