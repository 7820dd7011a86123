// What the local node hears of reads that other nodes served, and that no read
// pays for it.

#include "client/remote_reads.h"

#include <cstdint>
#include <string>
#include <vector>

#include "proto/node.pb.h"
#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RemoteReadsTest : public ClientFixture {
 protected:
  void SetUp() override { Connect(); }
  void PutRemote(int number) {
    remote_->Put(Id(number), BytesFor(number, 1000));
    catalog_->Locate(Id(number), remote_->address(), 1000);
  }
  // Reads those blocks; all are hits.
  void ReadAll(const std::vector<int>& numbers) {
    std::vector<Landing> wanted;
    for (const int number : numbers) wanted.push_back(Landing(number, 1000));
    Read(wanted);
    ASSERT_THAT(OutcomesOf(wanted), Each(Outcome::kHit));
  }
  static std::string Keys(const std::vector<int>& numbers) {
    std::string keys;
    for (const int number : numbers) keys += KeyOf(number).view();
    return keys;
  }
};

TEST_F(RemoteReadsTest, TheLocalNodeHearsWhatAReadFoundElsewhere) {
  node_->Put(Id(1), BytesFor(1, 1000));
  PutRemote(2);
  PutRemote(3);

  ReadAll({1, 2, 3});
  RunFor(absl::Milliseconds(20));

  ASSERT_THAT(node_->noted, SizeIs(1));
  const v1::NoteRemoteReadsRequest& note = node_->noted[0];
  EXPECT_EQ(note.name_space(), handle_.id.view());
  EXPECT_EQ(note.blocks().keys(), Keys({2, 3}));
  EXPECT_THAT(note.blocks().lengths(), ElementsAre(1000u, 1000u));
  ASSERT_EQ(note.nodes_size(), 1);
  EXPECT_EQ(note.nodes(0).node(), remote_->address().node.view());
  EXPECT_THAT(note.node_indexes(), ElementsAre(0u, 0u));
  EXPECT_THAT(note.clear_epochs(), SizeIs(2));
}

TEST_F(RemoteReadsTest, LocalReadsAndMissesAreNotTold) {
  node_->Put(Id(1), BytesFor(1, 1000));
  std::vector<Landing> wanted{{1, 1000}, {2, 1000}};

  Read(wanted);
  RunFor(absl::Milliseconds(100));

  EXPECT_THAT(node_->noted, IsEmpty());
}

TEST_F(RemoteReadsTest, ReadsCloseToEachOtherAreToldInOneCall) {
  for (const int number : {1, 2, 3}) PutRemote(number);
  std::vector<Landing> one{{1, 1000}};
  std::vector<Landing> two{{2, 1000}};
  std::vector<Landing> three{{3, 1000}};
  const auto first = BeginRead(one);
  const auto second = BeginRead(two);
  const auto third = BeginRead(three);

  Finish(first.get());
  Finish(second.get());
  Finish(third.get());
  RunFor(absl::Milliseconds(20));

  EXPECT_LE(node_->calls["NoteRemoteReads"], 2);
  std::size_t bytes = 0;
  for (const auto& note : node_->noted) bytes += note.blocks().keys().size();
  EXPECT_EQ(bytes, 3 * BlockKey::kBytes);
}

// Else the node would never know that it was read again.
TEST_F(RemoteReadsTest, TwoReadsOfABlockAreToldAsTwo) {
  PutRemote(1);
  std::vector<Landing> one{{1, 1000}};
  std::vector<Landing> again{{1, 1000}};
  const auto first = BeginRead(one);
  const auto second = BeginRead(again);

  Finish(first.get());
  Finish(second.get());
  RunFor(absl::Milliseconds(50));

  EXPECT_EQ(node_->calls["NoteRemoteReads"], 2);
}

TEST_F(RemoteReadsTest, NoReadWaitsForANodeThatDoesNotAnswer) {
  node_->silent.insert("NoteRemoteReads");
  for (int number = 1; number <= 20; ++number) {
    PutRemote(number);
    ReadAll({number});
    RunFor(absl::Milliseconds(20));
  }

  EXPECT_EQ(node_->calls["NoteRemoteReads"], RemoteReads::kMostCalls);

  // What waited has gone by once those calls have timed out.
  RunFor(absl::Seconds(11));
  EXPECT_GT(client_->Stats().remote_reads_dropped, 0u);
}

TEST_F(RemoteReadsTest, ANodeThatDoesNotKnowTheCallIsLeftAlone) {
  node_->instead["NoteRemoteReads"] = [](const std::string&) {
    return absl::UnimplementedError("no such method");
  };
  for (int number = 1; number <= 5; ++number) {
    PutRemote(number);
    ReadAll({number});
    RunFor(absl::Seconds(2));
  }

  EXPECT_EQ(node_->calls["NoteRemoteReads"], 1);
}

// The location was still believed: the read would have gone there again.
TEST_F(RemoteReadsTest, WhatIsHereNowIsReadHere) {
  PutRemote(1);
  node_->promotes = {0};
  ReadAll({1});
  node_->Put(Id(1), BytesFor(1, 1000));
  RunFor(absl::Milliseconds(20));
  const std::uint64_t remote = client_->Stats().bytes_remote;

  ReadAll({1});

  EXPECT_EQ(client_->Stats().bytes_remote, remote);
  EXPECT_EQ(client_->Stats().promoted_here, 1u);
}

TEST_F(RemoteReadsTest, ANodeThatSpeaksOfOtherBlocksIsNotBelieved) {
  PutRemote(1);
  node_->promotes = {7};

  ReadAll({1});
  RunFor(absl::Milliseconds(20));

  EXPECT_EQ(client_->Stats().promoted_here, 0u);
  ReadAll({1});
}

}  // namespace
}  // namespace firnkv
