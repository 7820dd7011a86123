// Copies between nodes, in a whole cluster: what is read again and again comes
// to where it is read, and a node that asks another for copies gets them.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/node.pb.h"
#include "tests/cluster/cluster_fixture.h"
#include "tests/support/cluster.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::Each;

class PromotionClusterTest : public ClusterFixture {
 protected:
  PromotionClusterTest()
      : ClusterFixture({.seed = 42, .pool_bytes = 16 * kMiB}) {}

  std::vector<Outcome> Write(int node, const std::vector<PlannedBlock>& blocks,
                             WriteWait wait_for = WriteWait::kPublished) {
    return WriteBy(&cluster_.Worker(node, kAlice), blocks, wait_for);
  }
  // And the time in which what follows from it is over.
  std::vector<Outcome> Read(int node, const std::vector<PlannedBlock>& blocks) {
    std::vector<Outcome> outcomes =
        ReadBy(&cluster_.Worker(node, kAlice), blocks);
    cluster_.RunFor(absl::Milliseconds(500));
    return outcomes;
  }
  std::uint64_t BlocksAt(int node) {
    return cluster_.Node(node).Snapshot().blocks;
  }
  std::uint64_t Mapped() const { return operations_.counts().bytes_mapped; }
  std::uint64_t Remote() const { return operations_.counts().bytes_remote; }
  // The whole of a node's pool, by files of another size.
  void FillPoolOf(int node) {
    std::vector<PlannedBlock> files;
    for (int i = 0; i < 80; ++i) {
      files.push_back(keys_.singles()[9]);
      files.back().key.bytes[0] = static_cast<std::uint8_t>(i);
      files.back().place.anchor = files.back().key;
      // Four of them are a region, without a rest.
      files.back().length = 256 * kKiB;
    }
    for (int at = 0; at < 80; at += 20) {
      Await([&](Operations::Done done) {
        operations_.Write(
            &cluster_.Worker(node, kAlice),
            {.name_space = KeySpace::kUnchained,
             .blocks = {files.begin() + at, files.begin() + at + 20},
             .deadline = absl::Seconds(5)},
            std::move(done));
      });
    }
  }
  void ExpectNothingKept(int node) {
    cluster_.RunFor(absl::Seconds(10));
    EXPECT_EQ(cluster_.Node(node).Snapshot().reserved_slots, 0u);
    EXPECT_EQ(cluster_.Node(node).Snapshot().holds, 0u);
  }

  // A node's call to another, as one that drains makes it.
  absl::StatusOr<std::vector<Outcome>> FetchCopies(
      int source, int destination, Role role,
      const std::vector<PlannedBlock>& blocks) {
    Node* const node = cluster_.Node(source).node();
    TenantId somebody;
    somebody.bytes.fill(7);
    v1::FetchCopiesRequest request;
    RequestHeader header{.remaining = absl::Seconds(5)};
    header.token = MintToken(
        {.cluster = cluster_.Node(source).memory().cluster,
         .tenant = role == Role::kTenant ? somebody : TenantId{},
         .role = role,
         .session = {},
         .expires =
             cluster_.Node(source).machine()->process()->clock()->WallNow() +
             absl::Minutes(5)},
        cluster_.secret());
    ToProto(header, request.mutable_header());
    ToProto(node->address(), request.mutable_source());
    const NamespaceHandle& name_space =
        cluster_.Worker(source, kAlice).name_space(KeySpace::kChained);
    request.set_name_space(IdToProto(name_space.id));
    std::vector<BlockRow> rows;
    for (const PlannedBlock& block : blocks) {
      rows.push_back({block.key, block.place, block.length});
      request.add_clear_epochs(1);
    }
    ToProto(rows, request.mutable_blocks());
    const auto channel =
        cluster_.Node(source).machine()->seams().control->Connect(
            StrCat(cluster_.Node(destination).host(), ":7410"));
    std::optional<absl::StatusOr<std::string>> answer;
    channel->StartCall("/firnkv.v1.NodeService/FetchCopies",
                       request.SerializeAsString(), absl::Seconds(5),
                       [&](absl::StatusOr<std::string> response) {
                         answer = std::move(response);
                       });
    EXPECT_TRUE(cluster_.RunUntil([&] { return answer.has_value(); }));
    if (!answer->ok()) return answer->status();
    v1::FetchCopiesResponse response;
    EXPECT_TRUE(response.ParseFromString(**answer));
    return OutcomesFromProto(response.outcomes(), blocks.size());
  }
};

TEST_F(PromotionClusterTest, TheSecondRemoteReadMakesTheThirdALocalOne) {
  ASSERT_THAT(Write(1, prompt_), Each(Outcome::kStored));
  ASSERT_THAT(Read(2, prompt_), Each(Outcome::kHit));
  EXPECT_EQ(BlocksAt(2), 0u);
  ASSERT_THAT(Read(2, prompt_), Each(Outcome::kHit));
  EXPECT_EQ(BlocksAt(2), prompt_.size());
  const std::uint64_t remote = Remote();
  ASSERT_EQ(Mapped(), 0u);

  EXPECT_THAT(Read(2, prompt_), Each(Outcome::kHit));

  EXPECT_EQ(Remote(), remote);
  EXPECT_EQ(Mapped(), remote / 2);
  EXPECT_EQ(CounterOf(2, "firnkv_node_promoted_blocks_total"), prompt_.size());
  ExpectNothingKept(2);
}

TEST_F(PromotionClusterTest, APromotedCopyIsAnnounced) {
  Write(1, prompt_);
  Read(2, prompt_);
  Read(2, prompt_);
  ASSERT_EQ(BlocksAt(2), prompt_.size());

  cluster_.Node(1).Crash();
  cluster_.RunFor(absl::Seconds(15));

  EXPECT_THAT(Read(3, prompt_), Each(Outcome::kHit));
}

TEST_F(PromotionClusterTest, WhatIsReadOnceIsNeverPromoted) {
  Write(1, prompt_);
  Write(1, keys_.chains()[4]);

  Read(2, prompt_);
  Read(2, keys_.chains()[4]);
  cluster_.RunFor(absl::Minutes(1));

  // What both chains begin with was read twice.
  for (const SlotHeader& copy : cluster_.Node(2).Residents()) {
    const auto is_it = [&copy](const PlannedBlock& one) {
      return one.key == copy.block.key;
    };
    EXPECT_TRUE(
        std::any_of(prompt_.begin(), prompt_.end(), is_it) &&
        std::any_of(keys_.chains()[4].begin(), keys_.chains()[4].end(), is_it));
  }
}

TEST_F(PromotionClusterTest, WhatIsWarmerDoesNotMakeRoom) {
  Write(1, prompt_);
  Read(2, prompt_);
  FillPoolOf(2);
  const std::uint64_t blocks = BlocksAt(2);
  const std::uint64_t evicted = cluster_.Node(2).Snapshot().evicted_blocks;

  EXPECT_THAT(Read(2, prompt_), Each(Outcome::kHit));

  EXPECT_EQ(BlocksAt(2), blocks);
  EXPECT_EQ(cluster_.Node(2).Snapshot().evicted_blocks, evicted);
  EXPECT_EQ(CounterOf(2, "firnkv_node_promoted_blocks_total"), 0u);
  ExpectNothingKept(2);
}

// Rules P8 and S7.
TEST_F(PromotionClusterTest, ASourceThatDiesInTheMiddleLeavesNothing) {
  Write(1, prompt_);
  Read(2, prompt_);
  ReadBy(&cluster_.Worker(2, kAlice), prompt_);
  ASSERT_TRUE(cluster_.RunUntil(
      [&] { return cluster_.Node(2).Snapshot().reserved_slots > 0; }));

  cluster_.Node(1).Crash();
  ExpectNothingKept(2);

  ASSERT_OK(cluster_.Node(1).Start());
  cluster_.RunFor(absl::Seconds(15));
}

TEST_F(PromotionClusterTest, ASourceThatStallsLeavesNothing) {
  Write(1, prompt_);
  Read(2, prompt_);
  ReadBy(&cluster_.Worker(2, kAlice), prompt_);
  ASSERT_TRUE(cluster_.RunUntil(
      [&] { return cluster_.Node(2).Snapshot().reserved_slots > 0; }));

  cluster_.Node(1).Pause();
  ExpectNothingKept(2);

  cluster_.Node(1).Resume();
  cluster_.RunFor(absl::Seconds(1));
}

// Rules P12 and P13: the fixture checks every hit's bytes.
TEST_F(PromotionClusterTest, NoCorruptCopyBecomesResident) {
  Write(1, prompt_);
  Read(2, prompt_);
  for (int i = 0; i < 20'000; ++i) {
    cluster_.Node(1).machine()->memory()->FlipOneBit(
        cluster_.executor()->random());
  }
  operations_.ExpectCorruption();

  Read(2, prompt_);
  const std::uint64_t blocks = BlocksAt(2);
  Read(2, prompt_);

  EXPECT_LT(blocks, prompt_.size());
}

// Rules C2 and P13.
TEST_F(PromotionClusterTest, WhatIsClearedWhileItIsPromotedStaysGone) {
  Write(1, prompt_);
  Read(2, prompt_);
  ReadBy(&cluster_.Worker(2, kAlice), prompt_);
  cluster_.Admin().ClearNamespace("alice", "chat", [](const absl::Status&) {});
  cluster_.RunFor(absl::Seconds(10));

  EXPECT_THAT(Read(2, prompt_), Each(Outcome::kMiss));

  EXPECT_EQ(cluster_.Node(2).Residents().size(), 0u);
  ExpectNothingKept(2);
}

// Rule C1.
TEST_F(PromotionClusterTest, TenantsReadsAreCountedApart) {
  Write(1, prompt_);
  WriteBy(&cluster_.Worker(1, kBob), prompt_, WriteWait::kPublished);

  Read(2, prompt_);
  ReadBy(&cluster_.Worker(2, kBob), prompt_);
  cluster_.RunFor(absl::Seconds(1));

  EXPECT_EQ(BlocksAt(2), 0u);
}

TEST_F(PromotionClusterTest, ANodeThatDrainsHasItsBlocksFetched) {
  Write(1, prompt_);

  const auto first = FetchCopies(1, 2, Role::kNode, prompt_);
  const auto again = FetchCopies(1, 2, Role::kNode, prompt_);

  ASSERT_OK(first);
  ASSERT_OK(again);
  EXPECT_THAT(*first, Each(Outcome::kStored));
  EXPECT_THAT(*again, Each(Outcome::kAlreadyThere));
  const std::uint64_t remote = Remote();
  EXPECT_THAT(Read(2, prompt_), Each(Outcome::kHit));
  EXPECT_EQ(Remote(), remote);
  ExpectNothingKept(2);
}

TEST_F(PromotionClusterTest, OnlyNodesHaveCopiesFetched) {
  Write(1, prompt_);

  EXPECT_THAT(FetchCopies(1, 2, Role::kTenant, prompt_),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(FetchCopies(1, 2, Role::kAdmin, prompt_),
              StatusIs(absl::StatusCode::kPermissionDenied));

  EXPECT_EQ(BlocksAt(2), 0u);
}

TEST_F(PromotionClusterTest, ANodeIsNotItsOwnSource) {
  Write(1, prompt_);

  EXPECT_THAT(FetchCopies(1, 1, Role::kNode, prompt_),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace firnkv
