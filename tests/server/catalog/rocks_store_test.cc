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

constexpr int kBatches = 150;
constexpr int kEntriesABatch = 2048;

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

  // A process of its own that writes as `mode` says (Write below) and tells of
  // it through a pipe, a byte a time.
  struct Child {
    pid_t pid = 0;
    int progress = -1;
  };
  Child StartWriter(const char* mode) {
    int progress[2];
    EXPECT_EQ(pipe(progress), 0);
    Child child{fork(), progress[0]};
    if (child.pid == 0) {
      // Not only a fork: RocksDB's threads are not in the child, and what waits
      // for them would wait for ever.
      dup2(progress[1], STDIN_FILENO);
      execl("/proc/self/exe", "rocks_store_test", "--write", mode,
            directory_.c_str(), nullptr);
      _exit(1);
    }
    close(progress[1]);
    return child;
  }
  // Kills it once it has told of `wanted` writes; how many it told of in all.
  int KillAfter(const Child& child, int wanted) {
    int told = 0;
    char byte = 0;
    while (told < wanted && read(child.progress, &byte, 1) == 1) ++told;
    kill(child.pid, SIGKILL);
    int status = 0;
    waitpid(child.pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    // What it told of before the kill arrived.
    while (read(child.progress, &byte, 1) == 1) ++told;
    close(child.progress);
    return told;
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
  KillAfter(StartWriter("thousand"), 1);

  Open();

  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(Get(Family::kKeys, std::to_string(i)), std::to_string(i));
  }
}

// Kills while writes go on: a batch is there whole or not at all, and no later
// one without the earlier.
TEST_F(RocksStoreTest, AKillInTheMiddleLeavesAPrefixOfWholeBatches) {
  for (int round = 1; round <= 5; ++round) {
    store_.reset();
    std::filesystem::remove_all(directory_);
    const int told = KillAfter(StartWriter("forever"), 100 * round);

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
  KillAfter(StartWriter("many"), 1);
  SystemClock clock;
  SystemRandom random;

  Open();
  ClusterState cluster(store_.get(), &random);
  bool made = false;
  ASSERT_OK(cluster.Load(&made));
  Registry registry({}, {store_.get(), &cluster, &clock, &random});
  ASSERT_OK(registry.Load());

  // It can serve: what follows is done in steps while it does.
  KeyIndex index(1 << 22);
  Membership membership({}, {store_.get(), &clock, &random});
  RunDigests digests(&membership);
  Entries entries({store_.get(), &cluster, &index, &digests});
  while (*entries.LoadStep(4096)) {
  }
  EXPECT_EQ(index.totals().entries,
            static_cast<std::uint64_t>(kBatches * kEntriesABatch));
}

// What the child processes do.
bool Tell() {
  const char byte = 'w';
  return write(STDIN_FILENO, &byte, 1) == 1;
}

bool WriteThousand(RocksStore* store) {
  for (int i = 0; i < 1000; ++i) {
    if (!store
             ->Apply({{Family::kKeys, std::to_string(i), std::to_string(i)}},
                     Store::Durability::kLogged)
             .ok()) {
      return false;
    }
  }
  return Tell();
}

bool WriteForever(RocksStore* store) {
  for (int i = 0;; ++i) {
    const std::string value = "v";
    if (!store
             ->Apply({{Family::kKeys, StrCat("a", i), value}},
                     Store::Durability::kLogged)
             .ok() ||
        !store
             ->Apply({{Family::kKeys, StrCat("b", i), value},
                      {Family::kKeys, StrCat("c", i), value}},
                     Store::Durability::kLogged)
             .ok() ||
        !Tell()) {
      return false;
    }
  }
}

bool WriteMany(RocksStore* store) {
  EntryRecord entry;
  entry.sequence = 1;
  entry.clear_epoch = ClearEpoch{1};
  entry.locations.resize(1);
  SeededRandom random(1);
  for (int i = 0; i < kBatches; ++i) {
    std::vector<Store::Write> batch;
    for (int j = 0; j < kEntriesABatch; ++j) {
      const BlockId block{.name_space = {}, .key = BlockKey::Make(&random)};
      batch.push_back({Family::kKeys, EntryKey(block), Encode(entry)});
    }
    if (!store->Apply(batch, Store::Durability::kLogged).ok()) return false;
  }
  return Tell();
}

int Write(std::string_view mode, const char* directory) {
  auto store = RocksStore::Open(directory);
  if (!store.ok()) return 1;
  const bool wrote = mode == "thousand"  ? WriteThousand(store->get())
                     : mode == "forever" ? WriteForever(store->get())
                                         : WriteMany(store->get());
  while (wrote) pause();
  return 1;
}

}  // namespace
}  // namespace firnkv

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--write") {
    return firnkv::Write(argv[2], argv[3]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
