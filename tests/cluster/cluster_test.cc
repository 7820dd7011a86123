// What a cluster does for its users, in a few stories.

#include "tests/support/cluster.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster_fixture.h"
#include "tests/sim/key_space.h"
#include "tests/sim/operations.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;

class ClusterTest : public ClusterFixture {
 protected:
  ClusterTest() : ClusterFixture({.seed = 42, .pool_bytes = 16 * kMiB}) {}

  std::vector<Outcome> Write(int node, int tenant,
                             const std::vector<PlannedBlock>& blocks,
                             WriteWait wait_for = WriteWait::kLocal) {
    return WriteBy(&cluster_.Worker(node, tenant), blocks, wait_for);
  }
  std::vector<Outcome> Read(int node, int tenant,
                            const std::vector<PlannedBlock>& blocks) {
    return ReadBy(&cluster_.Worker(node, tenant), blocks);
  }
  std::vector<Outcome> Exists(int node, int tenant,
                              const std::vector<PlannedBlock>& blocks) {
    return Await([&](Operations::Done done) {
      operations_.Exists(&cluster_.Worker(node, tenant), KeySpace::kChained,
                         blocks, absl::Seconds(2), std::move(done));
    });
  }
};

TEST_F(ClusterTest, AWorkerReadsWhatAnotherOfItsHostWrote) {
  EXPECT_THAT(Write(1, kAlice, prompt_), Each(Outcome::kStored));

  EXPECT_THAT(Read(1, kAlice, prompt_), Each(Outcome::kHit));

  EXPECT_GT(operations_.counts().bytes_mapped, 0u);
  EXPECT_EQ(operations_.counts().bytes_remote, 0u);
}

TEST_F(ClusterTest, AWorkerReadsFromAnotherHostWhatWasPublished) {
  EXPECT_THAT(Write(1, kAlice, prompt_, WriteWait::kPublished),
              Each(Outcome::kStored));

  EXPECT_THAT(Read(2, kAlice, prompt_), Each(Outcome::kHit));

  EXPECT_EQ(operations_.counts().bytes_mapped, 0u);
  EXPECT_GT(operations_.counts().bytes_remote, 0u);
}

TEST_F(ClusterTest, WhatIsPublishedIsLocatedAtOnceByEverybody) {
  Write(1, kAlice, prompt_, WriteWait::kPublished);

  EXPECT_THAT(Exists(3, kAlice, prompt_), Each(Outcome::kHit));
}

// Rule C1.
TEST_F(ClusterTest, TwoTenantsWithEqualPromptsNeverSeeEachOther) {
  Write(1, kAlice, prompt_, WriteWait::kPublished);

  EXPECT_THAT(Read(1, kBob, prompt_), Each(Outcome::kMiss));
  EXPECT_THAT(Read(2, kBob, prompt_), Each(Outcome::kMiss));
  EXPECT_THAT(Write(1, kBob, prompt_, WriteWait::kPublished),
              Each(Outcome::kStored));
  EXPECT_THAT(Read(2, kBob, prompt_), Each(Outcome::kHit));
  EXPECT_THAT(Read(2, kAlice, prompt_), Each(Outcome::kHit));
}

TEST_F(ClusterTest, ACrashOfTheNodeMeansMissesAndTheBlocksAreWrittenAgain) {
  Write(1, kAlice, prompt_, WriteWait::kPublished);

  cluster_.Node(1).Crash();
  ASSERT_OK(cluster_.Node(1).Start());
  cluster_.RunFor(absl::Seconds(5));

  EXPECT_THAT(Read(1, kAlice, prompt_), Each(Outcome::kMiss));
  EXPECT_THAT(Read(2, kAlice, prompt_), Each(Outcome::kMiss));
  EXPECT_THAT(Write(1, kAlice, prompt_, WriteWait::kPublished),
              Each(Outcome::kStored));
  EXPECT_THAT(Read(2, kAlice, prompt_), Each(Outcome::kHit));
}

// Rule S3.
TEST_F(ClusterTest, WhatADeadWorkerHadIsFreeAtOnce) {
  // Its last write is cut off between Reserve and Commit.
  operations_.Write(&cluster_.Worker(1, kAlice),
                    {.blocks = prompt_, .deadline = absl::Seconds(2)},
                    [](const std::vector<Outcome>&) {});
  ASSERT_TRUE(cluster_.RunUntil(
      [&] { return cluster_.Node(1).Snapshot().reserved_slots > 0; }));

  cluster_.Worker(1, kAlice).Crash();
  cluster_.RunFor(absl::Milliseconds(100));

  EXPECT_EQ(cluster_.Node(1).Snapshot().reserved_slots, 0u);
  EXPECT_EQ(cluster_.Node(1).Snapshot().leases, 0u);
}

// Its clock runs fast: the node answers when it has given up already.
TEST_F(ClusterTest, AReservationThatCameTooLateIsGivenBack) {
  cluster_.Worker(1, kAlice).process()->sim_clock()->SetDrift(300'000);
  // The whole pool is reserved, for a writer that waits for more.
  std::vector<PlannedBlock> files;
  for (int i = 0; i < 80; ++i) {
    files.push_back(keys_.singles()[9]);
    files.back().key.bytes[0] = static_cast<std::uint8_t>(i);
    files.back().place.anchor = files.back().key;
    files.back().length = 256 * kKiB;
  }
  operations_.Write(&cluster_.Worker(1, kBob),
                    {.name_space = KeySpace::kUnchained,
                     .blocks = files,
                     .deadline = absl::Seconds(20)},
                    [](const std::vector<Outcome>&) {});
  ASSERT_TRUE(cluster_.RunUntil(
      [&] { return cluster_.Node(1).Snapshot().reserved_slots == 64; }));

  EXPECT_THAT(Write(1, kAlice, prompt_), Each(Outcome::kTimedOut));
  cluster_.Worker(1, kBob).Crash();
  cluster_.RunFor(absl::Seconds(2));

  EXPECT_EQ(cluster_.Node(1).Snapshot().reserved_slots, 0u);
}

TEST_F(ClusterTest, WithoutItsNodeAWorkerIsRefusedAndNothingHangs) {
  cluster_.Node(1).Crash();
  cluster_.RunFor(absl::Milliseconds(100));

  EXPECT_THAT(Write(1, kAlice, prompt_), Each(Outcome::kUnavailable));
}

TEST_F(ClusterTest, WithTheCatalogAwayForMinutesLocalWorkGoesOn) {
  Write(1, kAlice, {prompt_[0]}, WriteWait::kPublished);
  cluster_.Catalog().Crash(SimCatalog::Loss::kNothing);
  cluster_.RunFor(absl::Minutes(3));

  EXPECT_THAT(Write(1, kAlice, prompt_).back(), Outcome::kStored);
  EXPECT_THAT(Read(1, kAlice, prompt_), Each(Outcome::kHit));

  // What was written meanwhile is announced once it is back.
  ASSERT_OK(cluster_.Catalog().Start());
  cluster_.RunFor(absl::Seconds(15));
  EXPECT_THAT(Read(3, kAlice, prompt_), Each(Outcome::kHit));
}

TEST_F(ClusterTest, ACatalogThatLostItsUnsyncedTailHearsOfEverythingAgain) {
  Write(1, kAlice, prompt_, WriteWait::kPublished);

  cluster_.Catalog().Crash(SimCatalog::Loss::kUnsyncedTail);
  ASSERT_OK(cluster_.Catalog().Start());
  cluster_.RunFor(absl::Seconds(15));

  EXPECT_THAT(Read(2, kAlice, prompt_), Each(Outcome::kHit));
}

// Rules A3 and A5.
TEST_F(ClusterTest, ANodeBackWithinItsGraceSendsOnlyWhatHappenedMeanwhile) {
  const std::vector<PlannedBlock>& other = keys_.chains()[4];
  Write(1, kAlice, prompt_, WriteWait::kPublished);
  const std::uint64_t entries =
      CounterOf(1, "firnkv_node_announced_entries_total");
  cluster_.Partition("node1", "catalog");
  cluster_.RunFor(absl::Minutes(2));
  // Hidden, not removed.
  ASSERT_EQ(Exists(3, kAlice, prompt_)[0], Outcome::kUnavailable);
  const std::vector<Outcome> written = Write(1, kAlice, other);
  const auto stored =
      std::count(written.begin(), written.end(), Outcome::kStored);
  ASSERT_GT(stored, 0);

  cluster_.HealEverything();
  cluster_.RunFor(absl::Seconds(5));

  EXPECT_THAT(Read(3, kAlice, prompt_), Each(Outcome::kHit));
  EXPECT_THAT(Read(3, kAlice, other), Each(Outcome::kHit));
  EXPECT_EQ(CounterOf(1, "firnkv_node_inventories_total"), 1u);
  EXPECT_EQ(CounterOf(1, "firnkv_node_announced_entries_total") - entries,
            static_cast<std::uint64_t>(stored));
  EXPECT_EQ(CounterOf(1, "firnkv_node_repaired_entries_total"), 0u);
}

TEST_F(ClusterTest, ANodeBehindACutIsUnavailableAndComesBack) {
  Write(1, kAlice, prompt_, WriteWait::kPublished);

  cluster_.Partition("node1", "node2");
  const std::vector<Outcome> cut = Read(2, kAlice, prompt_);
  EXPECT_NE(cut[0], Outcome::kHit);
  cluster_.HealEverything();
  cluster_.RunFor(absl::Seconds(10));

  EXPECT_THAT(Read(2, kAlice, prompt_), Each(Outcome::kHit));
}

// Rule P12.
TEST_F(ClusterTest, ACopyThatARemoteReaderFoundCorruptIsIsolated) {
  Write(1, kAlice, prompt_, WriteWait::kPublished);
  for (int i = 0; i < 20'000; ++i) {
    cluster_.Node(1).machine()->memory()->FlipOneBit(
        cluster_.executor()->random());
  }
  operations_.ExpectCorruption();

  const std::vector<Outcome> first = Read(2, kAlice, prompt_);
  cluster_.RunFor(absl::Seconds(5));
  const std::vector<Outcome> second = Read(3, kAlice, prompt_);

  EXPECT_THAT(first, Contains(Outcome::kCorrupt));
  EXPECT_THAT(second, Not(Contains(Outcome::kCorrupt)));
  EXPECT_GT(cluster_.Node(1).Snapshot().corrupt_copies, 0u);
  Write(1, kAlice, prompt_, WriteWait::kPublished);
  EXPECT_THAT(Read(2, kAlice, prompt_), Each(Outcome::kHit));
}

// Rule C2.
TEST_F(ClusterTest, WhatWasClearedIsGoneEverywhereAndStaysGone) {
  Write(1, kAlice, prompt_, WriteWait::kPublished);
  Write(1, kBob, prompt_, WriteWait::kPublished);
  absl::Status cleared = absl::UnknownError("not yet");

  cluster_.Admin().ClearNamespace(
      "alice", "chat", [&](absl::Status status) { cleared = status; });
  cluster_.RunFor(absl::Seconds(10));

  EXPECT_OK(cleared);
  EXPECT_THAT(Read(1, kAlice, prompt_), Each(Outcome::kMiss));
  EXPECT_THAT(Read(2, kAlice, prompt_), Each(Outcome::kMiss));
  EXPECT_THAT(Read(2, kBob, prompt_), Each(Outcome::kHit));
  EXPECT_THAT(Write(2, kAlice, prompt_), Each(Outcome::kStored));
}

}  // namespace
}  // namespace firnkv
