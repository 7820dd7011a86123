// Workers without a local node: they write where the catalog says, read from
// there, and hang on nobody who stops.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "tests/cluster/cluster_fixture.h"
#include "tests/support/cluster.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::AnyOf;
using ::testing::Each;

class RemoteWorkerTest : public ClusterFixture {
 protected:
  RemoteWorkerTest()
      : ClusterFixture(
            {.seed = 42, .pool_bytes = 16 * kMiB, .remote_workers = 1}) {}

  SimWorker* Away(int tenant) { return &cluster_.RemoteWorker(tenant); }
  // So many files of 192 KiB each.
  std::vector<PlannedBlock> Files(int many) const {
    std::vector<PlannedBlock> files;
    for (int i = 0; i < many; ++i) {
      files.push_back(keys_.singles()[9]);
      files.back().key.bytes[0] = static_cast<std::uint8_t>(i);
      files.back().place.anchor = files.back().key;
      files.back().length = 192 * kKiB;
    }
    return files;
  }
  std::vector<Outcome> WriteFiles(const std::vector<PlannedBlock>& files,
                                  absl::Duration deadline) {
    return Await([&](Operations::Done done) {
      operations_.Write(Away(kAlice),
                        {.name_space = KeySpace::kUnchained,
                         .blocks = files,
                         .deadline = deadline},
                        std::move(done));
    });
  }
  std::uint64_t ReceivedBy(int node) {
    return CounterOf(node, "firnkv_node_stream_received_bytes_total");
  }
  std::uint64_t BlocksAt(int node) {
    return cluster_.Node(node).Snapshot().blocks;
  }
  void ExpectNothingKept() {
    cluster_.RunFor(absl::Seconds(8));
    for (int n = 1; n <= cluster_.nodes(); ++n) {
      if (!cluster_.Node(n).running()) continue;
      EXPECT_EQ(cluster_.Node(n).Snapshot().reserved_slots, 0u);
      EXPECT_EQ(cluster_.Node(n).Snapshot().holds, 0u);
    }
  }
};

TEST_F(RemoteWorkerTest, ItReadsWhatItWroteAtOnce) {
  EXPECT_THAT(WriteBy(Away(kAlice), prompt_), Each(Outcome::kStored));

  EXPECT_THAT(ReadBy(Away(kAlice), prompt_), Each(Outcome::kHit));

  EXPECT_EQ(operations_.counts().bytes_mapped, 0u);
  ExpectNothingKept();
}

TEST_F(RemoteWorkerTest, EverybodyReadsWhatItPublished) {
  EXPECT_THAT(WriteBy(Away(kAlice), prompt_, WriteWait::kPublished),
              Each(Outcome::kStored));

  for (int n = 1; n <= cluster_.nodes(); ++n) {
    EXPECT_THAT(ReadBy(&cluster_.Worker(n, kAlice), prompt_),
                Each(Outcome::kHit));
  }
}

// DESIGN section 6: a block goes to its parent's node.
TEST_F(RemoteWorkerTest, AChainStaysTogether) {
  WriteBy(Away(kAlice), prompt_, WriteWait::kPublished);

  std::vector<std::uint64_t> blocks;
  for (int n = 1; n <= cluster_.nodes(); ++n) blocks.push_back(BlocksAt(n));

  EXPECT_EQ(*std::max_element(blocks.begin(), blocks.end()), prompt_.size());
}

// And where somebody has it already, that copy is kept warm.
TEST_F(RemoteWorkerTest, WhatANodeHasAlreadyIsNotCopied) {
  WriteBy(&cluster_.Worker(2, kAlice), prompt_, WriteWait::kPublished);
  const std::uint64_t before = ReceivedBy(1) + ReceivedBy(2) + ReceivedBy(3);

  EXPECT_THAT(WriteBy(Away(kAlice), prompt_), Each(Outcome::kAlreadyThere));

  EXPECT_EQ(BlocksAt(1), 0u);
  EXPECT_EQ(BlocksAt(3), 0u);
  // At most what goes ahead of an answer.
  EXPECT_LE(ReceivedBy(1) + ReceivedBy(2) + ReceivedBy(3) - before, 256 * kKiB);
}

TEST_F(RemoteWorkerTest, BlocksThatAreThereAreNotSentWhereTheyAreLarge) {
  const std::vector<PlannedBlock> files = Files(8);
  EXPECT_THAT(WriteFiles(files, absl::Seconds(5)), Each(Outcome::kStored));
  const std::uint64_t before = ReceivedBy(1) + ReceivedBy(2) + ReceivedBy(3);
  cluster_.RunFor(absl::Seconds(1));

  EXPECT_THAT(WriteFiles(files, absl::Seconds(5)),
              Each(Outcome::kAlreadyThere));

  // One file alone at a node may go ahead of the answer.
  EXPECT_LE(ReceivedBy(1) + ReceivedBy(2) + ReceivedBy(3) - before,
            3 * 256 * kKiB);
}

// Rule C1.
TEST_F(RemoteWorkerTest, TenantsStayApart) {
  WriteBy(Away(kAlice), prompt_, WriteWait::kPublished);

  EXPECT_THAT(ReadBy(Away(kBob), prompt_), Each(Outcome::kMiss));
  EXPECT_THAT(WriteBy(Away(kBob), prompt_), Each(Outcome::kStored));
}

TEST_F(RemoteWorkerTest, ANodeThatIsGoneIsReplacedByAnother) {
  for (int n = 1; n <= 2; ++n) cluster_.Partition("away", StrCat("node", n));

  // Its placements learn of it from the writer.
  const std::vector<Outcome> outcomes = WriteFiles(Files(6), absl::Seconds(5));

  EXPECT_GT(std::count(outcomes.begin(), outcomes.end(), Outcome::kStored), 0);
  EXPECT_THAT(outcomes, Each(AnyOf(Outcome::kStored, Outcome::kUnavailable)));
}

// Two ends: the outcome by the deadline, the buffers soon after, whatever the
// node does. (The fixture checks both against the deadline.)
TEST_F(RemoteWorkerTest, NodesThatStandStillCostNoMoreThanTheDeadline) {
  for (int n = 1; n <= cluster_.nodes(); ++n) cluster_.Node(n).Pause();

  EXPECT_THAT(WriteFiles(Files(40), absl::Milliseconds(500)),
              Each(Outcome::kTimedOut));

  for (int n = 1; n <= cluster_.nodes(); ++n) cluster_.Node(n).Resume();
  ExpectNothingKept();
}

TEST_F(RemoteWorkerTest, NodesThatStopWhileBytesComeCostNoMoreThanTheDeadline) {
  bool ended = false;
  operations_.Write(Away(kAlice),
                    {.name_space = KeySpace::kUnchained,
                     .blocks = Files(40),
                     .deadline = absl::Milliseconds(500)},
                    [&](const std::vector<Outcome>&) { ended = true; });
  ASSERT_TRUE(cluster_.RunUntil([&] {
    return ReceivedBy(1) + ReceivedBy(2) + ReceivedBy(3) > 256 * kKiB;
  }));
  for (int n = 1; n <= cluster_.nodes(); ++n) cluster_.Node(n).Pause();

  ASSERT_TRUE(cluster_.RunUntil([&] { return ended; }));

  for (int n = 1; n <= cluster_.nodes(); ++n) cluster_.Node(n).Resume();
  ExpectNothingKept();
}

TEST_F(RemoteWorkerTest, ALinkCutWhileBytesComeCostsNoMoreThanTheDeadline) {
  bool ended = false;
  operations_.Write(Away(kAlice),
                    {.name_space = KeySpace::kUnchained,
                     .blocks = Files(40),
                     .deadline = absl::Milliseconds(500)},
                    [&](const std::vector<Outcome>&) { ended = true; });
  ASSERT_TRUE(cluster_.RunUntil([&] {
    return ReceivedBy(1) + ReceivedBy(2) + ReceivedBy(3) > 256 * kKiB;
  }));
  for (int n = 1; n <= cluster_.nodes(); ++n) {
    cluster_.Partition("away", StrCat("node", n));
  }

  ASSERT_TRUE(cluster_.RunUntil([&] { return ended; }));

  cluster_.RunFor(absl::Seconds(30));
  ExpectNothingKept();
}

// Rule S3.
TEST_F(RemoteWorkerTest, WhatADeadWorkerHadIsFreeAtOnce) {
  operations_.Write(Away(kAlice),
                    {.name_space = KeySpace::kUnchained,
                     .blocks = Files(20),
                     .deadline = absl::Seconds(20)},
                    [](const std::vector<Outcome>&) {});
  ASSERT_TRUE(cluster_.RunUntil([&] {
    return ReceivedBy(1) + ReceivedBy(2) + ReceivedBy(3) > 256 * kKiB;
  }));

  Away(kAlice)->Crash();
  cluster_.RunFor(absl::Milliseconds(200));

  for (int n = 1; n <= cluster_.nodes(); ++n) {
    EXPECT_EQ(cluster_.Node(n).Snapshot().reserved_slots, 0u);
    EXPECT_EQ(cluster_.Node(n).Snapshot().holds, 0u);
  }
}

TEST_F(RemoteWorkerTest, WithTheCatalogAwayItIsRefusedAndNothingHangs) {
  WriteBy(Away(kAlice), prompt_);
  cluster_.Catalog().Crash(SimCatalog::Loss::kNothing);

  EXPECT_THAT(WriteBy(Away(kAlice), keys_.chains()[4]),
              Each(Outcome::kUnavailable));

  // Warm reads go on.
  EXPECT_THAT(ReadBy(Away(kAlice), prompt_), Each(Outcome::kHit));
}

}  // namespace
}  // namespace firnkv
