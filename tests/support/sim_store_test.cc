// The store's fake keeps the seam's promises and breaks what a crash breaks.

#include "tests/support/sim_store.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

class SimStoreTest : public testing::Test {
 protected:
  absl::Status Put(const std::string& key,
                   Store::Durability durability = Store::Durability::kLogged) {
    return store_.Apply({{Family::kKeys, key, std::string("v")}}, durability);
  }
  bool Has(std::string_view key) {
    const auto value = store_.Get(Family::kKeys, key);
    EXPECT_OK(value);
    return value.ok() && value->has_value();
  }

  SimStore store_;
};

TEST_F(SimStoreTest, APowerCutLosesWhatWasNotSynced) {
  ASSERT_OK(Put("before"));
  ASSERT_OK(Put("synced", Store::Durability::kSynced));
  ASSERT_OK(Put("after"));

  store_.PowerCut(nullptr);

  EXPECT_TRUE(Has("before"));
  EXPECT_TRUE(Has("synced"));
  EXPECT_FALSE(Has("after"));
}

TEST_F(SimStoreTest, WhatAPowerCutLeavesIsAPrefix) {
  SeededRandom random(3);
  std::set<int> lengths;
  for (int round = 0; round < 50; ++round) {
    store_.Wipe();
    for (int i = 0; i < 5; ++i) ASSERT_OK(Put(std::to_string(i)));
    store_.PowerCut(&random);
    int kept = 0;
    while (kept < 5 && Has(std::to_string(kept))) ++kept;
    for (int i = kept; i < 5; ++i) ASSERT_FALSE(Has(std::to_string(i)));
    lengths.insert(kept);
  }
  EXPECT_EQ(lengths.size(), 6u);
}

TEST_F(SimStoreTest, AKillLosesNothingThatWasLogged) {
  ASSERT_OK(Put("a"));
  store_.Kill();
  EXPECT_FALSE(Put("b").ok());
  EXPECT_FALSE(store_.Get(Family::kKeys, "a").ok());

  store_.Reopen();

  EXPECT_TRUE(Has("a"));
  EXPECT_FALSE(Has("b"));
}

TEST_F(SimStoreTest, TheLastWriteLandsOrNotAndNobodyLearnsOfIt) {
  for (const auto last :
       {SimStore::LastWrite::kLost, SimStore::LastWrite::kLands}) {
    store_.Wipe();
    store_.CrashAtWrite(2, last);
    EXPECT_OK(Put("first"));
    EXPECT_FALSE(Put("second").ok());
    EXPECT_FALSE(Put("third").ok());
    store_.Reopen();

    EXPECT_EQ(Has("second"), last == SimStore::LastWrite::kLands);
    EXPECT_FALSE(Has("third"));
  }
}

TEST_F(SimStoreTest, AScanSeesKeysInOrderFromWhereItIsTold) {
  for (int i = 0; i < 200; ++i) ASSERT_OK(Put(std::to_string(1000 + i)));
  std::string last;
  int seen = 0;
  ASSERT_OK(store_.Scan(Family::kKeys, "1", "1100",
                        [&](std::string_view key, std::string_view) {
                          EXPECT_GT(key, last);
                          last.assign(key);
                          ++seen;
                          return true;
                        }));

  EXPECT_EQ(seen, 100);
}

}  // namespace
}  // namespace firnkv
