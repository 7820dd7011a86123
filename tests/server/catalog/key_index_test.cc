// The index in memory: what it holds, what it costs, what happens at its bound.

#include "server/catalog/key_index.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <optional>
#include <set>
#include <vector>

#include "client/transport/thread_executor.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "tests/server/catalog/catalog_fixture.h"

namespace {

// Bytes of the heap that this program has now, as the allocator counts them.
std::atomic<std::int64_t> g_heap_bytes{0};

}  // namespace

#ifndef FIRNKV_TSAN  // Whose runtime has these itself.

// g++ takes inlined calls of these for a mismatch of allocators.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t size) {
  void* const block = std::malloc(size);
  if (block == nullptr) std::abort();
  g_heap_bytes += static_cast<std::int64_t>(malloc_usable_size(block));
  return block;
}
void operator delete(void* block) noexcept {
  g_heap_bytes -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
  operator delete(block);
}

#endif

namespace firnkv {
namespace {

NamespaceId Ns(std::uint8_t n) {
  NamespaceId id;
  id.bytes[3] = n;
  return id;
}

Location At(std::uint8_t node, std::uint64_t generation) {
  return Location{
      .run = {.node = Node(node), .epoch = NodeEpoch{9}, .serial = 3},
      .tier = 0,
      .generation = Generation{generation},
      .length = 65536};
}

EntryRecord Entry(std::uint64_t sequence, std::vector<Location> locations) {
  EntryRecord entry;
  entry.sequence = sequence;
  entry.clear_epoch = ClearEpoch{1};
  entry.locations = std::move(locations);
  return entry;
}

class KeyIndexTest : public testing::Test {
 protected:
  KeyIndex index_{1 << 22};
};

TEST_F(KeyIndexTest, WhatWasPutIsFoundWithAllItsCopies) {
  const BlockId block{.name_space = Ns(1), .key = Key(1)};
  const EntryRecord entry = Entry(5, {At(1, 7), At(2, 8), At(3, 9)});
  index_.Put(block, entry);

  const auto found = index_.Find(block);

  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->sequence, 5u);
  EXPECT_THAT(found->locations, testing::ElementsAreArray(entry.locations));
}

TEST_F(KeyIndexTest, ManyAreFoundTogetherAsEachIsAlone) {
  std::vector<BlockKey> keys;
  for (std::uint64_t i = 0; i < 500; ++i) {
    keys.push_back(Key(i));
    if (i % 3 == 0) continue;
    index_.Put({.name_space = Ns(1), .key = Key(i)}, Entry(i, {At(1, i)}));
  }
  std::vector<std::optional<KeyIndex::Entry>> found(keys.size());

  index_.FindAll(Ns(1), keys, absl::MakeSpan(found));

  for (std::uint64_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(found[i].has_value(), i % 3 != 0) << i;
    if (!found[i].has_value()) continue;
    EXPECT_EQ(found[i]->sequence, i);
    EXPECT_THAT(found[i]->locations, testing::ElementsAre(At(1, i)));
  }
  std::vector<std::optional<KeyIndex::Entry>> of_another(keys.size());
  index_.FindAll(Ns(2), keys, absl::MakeSpan(of_another));
  for (const auto& one : of_another) EXPECT_FALSE(one.has_value());
}

TEST_F(KeyIndexTest, PutReplacesAndEraseForgets) {
  const BlockId block{.name_space = Ns(1), .key = Key(1)};
  index_.Put(block, Entry(5, {At(1, 7), At(2, 8)}));
  index_.Put(block, Entry(6, {At(3, 9)}));
  EXPECT_EQ(index_.Find(block)->locations.size(), 1u);
  EXPECT_EQ(index_.totals().locations, 1u);

  index_.Erase(block);

  EXPECT_FALSE(index_.Find(block).has_value());
  EXPECT_EQ(index_.totals().entries, 0u);
  EXPECT_EQ(index_.totals().locations, 0u);
}

TEST_F(KeyIndexTest, PutIfAbsentKeepsWhatIsThere) {
  const BlockId block{.name_space = Ns(1), .key = Key(1)};
  index_.Put(block, Entry(6, {At(1, 9)}));

  index_.PutIfAbsent(block, Entry(5, {At(1, 7)}));

  EXPECT_EQ(index_.Find(block)->sequence, 6u);
}

// Rule C1: numbers of namespaces are given again, ids are not.
TEST_F(KeyIndexTest, ANamespaceNeverFindsWhatAnotherOneHas) {
  for (std::uint8_t i = 1; i < 100; ++i) {
    const BlockId mine{.name_space = Ns(i), .key = Key(1)};
    index_.Put(mine, Entry(i, {At(1, i)}));
    for (std::uint8_t j = 1; j <= 100; ++j) {
      const auto found = index_.Find({.name_space = Ns(j), .key = Key(1)});
      ASSERT_EQ(found.has_value(), i == j);
    }
    index_.Erase(mine);
  }
}

TEST_F(KeyIndexTest, AHotEntryCostsAtMostAHundredBytes) {
#ifdef FIRNKV_TSAN
  GTEST_SKIP() << "allocations are not counted in this build";
#endif
  // Right after every table has grown is the worst case: 64 shards that double
  // at 7/8 of a power of two.
  constexpr std::uint64_t kEntries = 64 * 3700;
  const std::int64_t before = g_heap_bytes;
  for (std::uint64_t i = 0; i < kEntries; ++i) {
    index_.Put({.name_space = Ns(1), .key = Key(i)}, Entry(i, {At(1, i + 1)}));
  }
  const std::int64_t took = g_heap_bytes - before;

  RecordProperty("bytes_an_entry", static_cast<int>(took / kEntries));
  EXPECT_LE(took, static_cast<std::int64_t>(100 * kEntries));
  EXPECT_GE(took, static_cast<std::int64_t>(72 * kEntries));
  EXPECT_NEAR(static_cast<double>(index_.totals().bytes),
              static_cast<double>(took), 0.05 * static_cast<double>(took));
}

TEST_F(KeyIndexTest, ErasedEntriesMakeRoomForOthers) {
  for (std::uint64_t i = 0; i < 10000; ++i) {
    index_.Put({.name_space = Ns(1), .key = Key(i)},
               Entry(i, {At(1, 1), At(2, 1)}));
  }
  const std::uint64_t full = index_.totals().bytes;
  for (int round = 0; round < 5; ++round) {
    for (std::uint64_t i = 0; i < 10000; ++i) {
      index_.Erase({.name_space = Ns(1), .key = Key(i)});
    }
    for (std::uint64_t i = 0; i < 10000; ++i) {
      index_.Put({.name_space = Ns(1), .key = Key(i)},
                 Entry(i, {At(1, 1), At(2, 1)}));
    }
  }

  EXPECT_EQ(index_.totals().bytes, full);
}

TEST_F(KeyIndexTest, AtTheBoundAnEntryIsPushedOutAndTheIndexIsNotWhole) {
  KeyIndex small(128);
  small.MarkWhole();
  ASSERT_TRUE(small.whole());
  for (std::uint64_t i = 0; i < 1000; ++i) {
    small.Put({.name_space = Ns(1), .key = Key(i)}, Entry(i, {At(1, 1)}));
    ASSERT_TRUE(small.Find({.name_space = Ns(1), .key = Key(i)}).has_value());
  }

  EXPECT_LE(small.totals().entries, 128u);
  EXPECT_FALSE(small.whole());
  small.MarkWhole();
  EXPECT_FALSE(small.whole());
}

TEST_F(KeyIndexTest, AWalkSeesEveryEntryOnceInBoundedSteps) {
  for (std::uint64_t i = 0; i < 5000; ++i) {
    index_.Put({.name_space = Ns(1), .key = Key(i)}, Entry(i, {At(1, 1)}));
  }
  std::multiset<BlockId> seen;
  std::uint64_t cursor = 0;
  bool more = true;
  while (more) {
    std::size_t step = 0;
    more = index_.Walk(&cursor, 100,
                       [&](const BlockId& block, const KeyIndex::Entry&) {
                         seen.insert(block);
                         ++step;
                       });
    ASSERT_LE(step, 100u);
  }

  EXPECT_EQ(seen.size(), 5000u);
  EXPECT_EQ(std::set<BlockId>(seen.begin(), seen.end()).size(), 5000u);
}

// Rule C1, and the proof in intern_table.h: numbers are read without their
// table's lock while a writer gives them to other namespaces and runs.
TEST_F(KeyIndexTest, ReadersOnManyThreadsNeverSeeAnothersCopies) {
  SystemClock clock;
  auto executor = ThreadExecutor::Make({.threads = 3}, &clock);
  ASSERT_OK(executor);
  std::atomic<bool> over{false};
  std::atomic<int> foreign{0};
  std::atomic<int> readers{0};
  for (std::uint8_t reader = 1; reader <= 3; ++reader) {
    (*executor)->Post([&, reader] {
      ++readers;
      while (!over) {
        const auto found =
            index_.Find({.name_space = Ns(reader), .key = Key(1)});
        // A namespace's copies stand at the node of its own number.
        if (found.has_value() && found->locations[0].run.node != Node(reader)) {
          ++foreign;
        }
      }
      --readers;
    });
  }
  for (int round = 0; round < 20000; ++round) {
    const auto turn = static_cast<std::uint8_t>(round % 3 + 1);
    const BlockId block{.name_space = Ns(turn), .key = Key(1)};
    index_.Put(block, Entry(1, {At(turn, 1)}));
    index_.Erase(block);
  }
  over = true;
  while (readers > 0) {
  }

  EXPECT_EQ(foreign, 0);
}

TEST_F(KeyIndexTest, EntriesAreCountedByNamespace) {
  index_.Put({.name_space = Ns(1), .key = Key(1)}, Entry(1, {At(1, 1)}));
  index_.Put({.name_space = Ns(2), .key = Key(1)}, Entry(1, {At(1, 1)}));
  index_.Put({.name_space = Ns(2), .key = Key(2)}, Entry(1, {At(1, 1)}));

  EXPECT_EQ(index_.entries_of(Ns(1)), 1u);
  EXPECT_EQ(index_.entries_of(Ns(2)), 2u);
  EXPECT_EQ(index_.entries_of(Ns(3)), 0u);
}

}  // namespace
}  // namespace firnkv
