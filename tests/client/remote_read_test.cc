// What a read does at other nodes: finding them, their streams, their failures.

#include <string>
#include <utility>
#include <vector>

#include "proto/catalog.pb.h"
#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;

class RemoteReadTest : public ClientFixture {
 protected:
  void SetUp() override { Connect(); }
  void PutRemote(int number, std::size_t size) {
    remote_->Put(Id(number), BytesFor(number, size));
    catalog_->Locate(Id(number), remote_->address(), size);
  }
  std::uint64_t ControlCalls() {
    std::uint64_t calls = 0;
    for (const auto& [method, count] : client_->Stats().calls) {
      // Nobody waits for these.
      if (method != "NodeService/Release" &&
          method != "NodeService/NoteRemoteReads") {
        calls += count;
      }
    }
    return calls;
  }
};

TEST_F(RemoteReadTest, WhatTheLocalNodeLacksIsLocatedAndFetched) {
  PutRemote(1, 300'000);
  std::vector<Landing> wanted;
  wanted.push_back(Landing(1, 300'000, {7, 100'000, 199'993}));

  const ReadReport report = Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 300'000));
  EXPECT_EQ(report.bytes_remote, 300'000u);
}

TEST_F(RemoteReadTest, AWarmRemoteReadMakesNoControlCall) {
  PutRemote(1, 1000);
  std::vector<Landing> cold{{1, 1000}};
  Read(cold);
  const std::uint64_t before = ControlCalls();
  const int connections = remote_->stream().connections;
  std::vector<Landing> warm{{1, 1000}};

  Read(warm);

  EXPECT_THAT(OutcomesOf(warm), ElementsAre(Outcome::kHit));
  EXPECT_EQ(ControlCalls(), before);
  EXPECT_EQ(remote_->stream().connections, connections);
}

TEST_F(RemoteReadTest, ALocationIsBelievedForItsLifeOnly) {
  PutRemote(1, 1000);
  std::vector<Landing> cold{{1, 1000}};
  Read(cold);
  RunFor(options_.location_life);
  std::vector<Landing> later{{1, 1000}};

  Read(later);

  EXPECT_THAT(OutcomesOf(later), ElementsAre(Outcome::kHit));
  EXPECT_EQ(catalog_->calls["Locate"], 2);
}

TEST_F(RemoteReadTest, ALeadingRunGoesOnOverLocalAndRemoteBlocks) {
  node_->Put(Id(1), BytesFor(1, 500));
  PutRemote(2, 500);
  node_->Put(Id(3), BytesFor(3, 500));
  std::vector<Landing> wanted{{1, 500}, {2, 500}, {3, 500}, {4, 500}};

  const ReadReport report = Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit, Outcome::kHit,
                                              Outcome::kHit, Outcome::kMiss));
  EXPECT_EQ(report.leading_hits, 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(wanted[i].memory, BytesFor(i + 1, 500));
  }
}

TEST_F(RemoteReadTest, BehindAGapThatNobodyFillsNothingIsFetched) {
  PutRemote(2, 500);
  std::vector<Landing> wanted{{1, 500}, {2, 500}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted),
              ElementsAre(Outcome::kMiss, Outcome::kSkipped));
  EXPECT_EQ(remote_->stream().reads, 0);
}

TEST_F(RemoteReadTest, ARangeOfARemoteBlockLands) {
  PutRemote(1, 300'000);
  std::vector<Landing> wanted{{1, 1000}};
  wanted[0].target.offset = 123'456;
  wanted[0].target.length = 1000;

  Read(wanted);

  const auto all = BytesFor(1, 300'000);
  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, std::vector<std::byte>(all.begin() + 123'456,
                                                     all.begin() + 124'456));
}

TEST_F(RemoteReadTest, AStaleLocationIsLookedUpOnceMore) {
  PutRemote(1, 64);
  std::vector<Landing> cold{{1, 64}};
  Read(cold);
  FakeNode third(&world_, "node3", cluster_);
  third.Put(Id(1), BytesFor(1, 64));
  remote_->Forget(Id(1));
  catalog_->Forget(Id(1));
  catalog_->Locate(Id(1), third.address(), 64);
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 64));
  EXPECT_EQ(client_->Stats().stale_locations, 1u);
  client_.reset();
}

TEST_F(RemoteReadTest, ALocationThatStaysStaleIsAMiss) {
  PutRemote(1, 64);
  remote_->Forget(Id(1));
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kMiss));
  EXPECT_EQ(catalog_->calls["Locate"], 2);
  EXPECT_EQ(remote_->stream().reads, 2);
}

TEST_F(RemoteReadTest, ALocationOfAnEarlierRunIsStale) {
  PutRemote(1, 64);
  NodeAddress earlier = remote_->address();
  earlier.epoch = NodeEpoch{1};
  catalog_->Forget(Id(1));
  catalog_->Locate(Id(1), earlier, 64);
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kMiss));
}

TEST_F(RemoteReadTest, AnotherCopyIsTriedWhereANodeCannotBeReached) {
  PutRemote(1, 64);
  NodeAddress dead;
  dead.node = NodeId::Make(machine_->seams().random);
  dead.epoch = NodeEpoch{7};
  dead.stream_address = "nowhere:7411";
  dead.labels.host = "node1";  // The nearest, so the first to be tried.
  catalog_->Forget(Id(1));
  catalog_->Locate(Id(1), dead, 64);
  catalog_->Locate(Id(1), remote_->address(), 64);
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted, ReadWant::kEveryBlock, absl::Seconds(5));

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(wanted[0].memory, BytesFor(1, 64));
}

TEST_F(RemoteReadTest, ANodeThatStaysUnreachableIsNotAskedEachTime) {
  NodeAddress dead;
  dead.node = NodeId::Make(machine_->seams().random);
  dead.epoch = NodeEpoch{7};
  dead.stream_address = "nowhere:7411";
  catalog_->Locate(Id(1), dead, 64);
  for (int i = 0; i < 5; ++i) {
    std::vector<Landing> wanted{{1, 64}};
    Read(wanted, ReadWant::kEveryBlock, absl::Seconds(5));
    EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kUnavailable));
  }

  EXPECT_EQ(client_->Stats().stream_connects, 1u);
  EXPECT_EQ(client_->Stats().breaker_skips, 4u);
}

TEST_F(RemoteReadTest, TheNearestCopyIsRead) {
  PutRemote(1, 64);
  FakeNode far(&world_, "node3", cluster_);
  far.Put(Id(1), BytesFor(1, 64));
  NodeAddress other_zone = far.address();
  other_zone.labels = {.zone = "elsewhere", .rack = "x", .host = "node3"};
  catalog_->Forget(Id(1));
  catalog_->Locate(Id(1), other_zone, 64);
  catalog_->Locate(Id(1), remote_->address(), 64);
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_EQ(remote_->stream().reads, 1);
  EXPECT_EQ(far.stream().reads, 0);
  client_.reset();
}

// Rule T1.
TEST_F(RemoteReadTest, APartialFrameIsNeverAHit) {
  PutRemote(1, 200'000);
  remote_->stream().cut_after = 150'000;
  std::vector<Landing> wanted{{1, 200'000}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kUnavailable));
}

// Rule T1: all but the last byte.
TEST_F(RemoteReadTest, AFrameThatLacksItsLastByteIsNeverAHit) {
  PutRemote(1, 1000);
  remote_->stream().on_read = [&](std::uint64_t request, const ReadBody& body) {
    std::string all = remote_->stream().Serve(request, body);
    all.resize(all.size() - kFrameLeadBytes - 1);
    return all;
  };
  std::vector<Landing> wanted{{1, 1000}};
  const BootTime begin = Now();

  const auto state =
      BeginRead(wanted, ReadWant::kEveryBlock, absl::Milliseconds(50));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(*state->told_at - begin, absl::Milliseconds(50));
  // Its memory was being written, so the connection was closed.
  EXPECT_LE(*state->free_at - *state->told_at, options_.buffer_grace);
  EXPECT_GT(*state->free_at, *state->told_at);
}

TEST_F(RemoteReadTest, ABitThatFlippedOnTheWayIsCorrupt) {
  PutRemote(1, 100'000);
  remote_->stream().on_read = [&](std::uint64_t request, const ReadBody& body) {
    std::string all = remote_->stream().Serve(request, body);
    all[all.size() - kFrameLeadBytes - 10] ^= 4;
    return all;
  };
  std::vector<Landing> wanted{{1, 100'000}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kCorrupt));
  EXPECT_EQ(client_->Stats().corrupt_blocks, 1u);
}

TEST_F(RemoteReadTest, ASilentNodeCostsNoMoreThanTheDeadline) {
  PutRemote(1, 64);
  remote_->stream().silent = true;
  std::vector<Landing> wanted{{1, 64}};
  const BootTime begin = Now();

  const auto state =
      BeginRead(wanted, ReadWant::kEveryBlock, absl::Milliseconds(20));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(*state->told_at - begin, absl::Milliseconds(20));
  EXPECT_EQ(*state->free_at, *state->told_at);
  EXPECT_EQ(remote_->stream().cancels, 0);
  RunFor(absl::Milliseconds(1));
  EXPECT_EQ(remote_->stream().cancels, 1);
}

TEST_F(RemoteReadTest, ACancelledRequestLeavesItsConnectionInUse) {
  PutRemote(1, 64);
  PutRemote(2, 64);
  remote_->stream().silent = true;
  std::vector<Landing> given_up{{1, 64}};
  Read(given_up, ReadWant::kEveryBlock, absl::Milliseconds(20));
  remote_->stream().silent = false;
  std::vector<Landing> wanted{{2, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_EQ(remote_->stream().connections, 1);
}

// Rule T3.
TEST_F(RemoteReadTest, AConnectionThatStaysSilentIsGivenUp) {
  PutRemote(1, 64);
  remote_->stream().silent = true;
  remote_->stream().ends_cancelled = false;
  std::vector<Landing> given_up{{1, 64}};
  Read(given_up, ReadWant::kEveryBlock, absl::Milliseconds(20));

  RunFor(options_.buffer_grace * 2);

  EXPECT_EQ(client_->Stats().stream_failures, 1u);
}

TEST_F(RemoteReadTest, ACatalogThatIsAwayLeavesWhatTheLocalNodeSaid) {
  node_->Put(Id(1), BytesFor(1, 64));
  catalog_->instead["Connect"] = [](const std::string&) {
    return absl::UnavailableError("away");
  };
  std::vector<Landing> wanted{{1, 64}, {2, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit, Outcome::kMiss));
  EXPECT_EQ(client_->Stats().locate_failures, 1u);
}

TEST_F(RemoteReadTest, ACatalogThatStaysAwayIsNotAskedEachTime) {
  catalog_->instead["Connect"] = [](const std::string&) {
    return absl::UnavailableError("away");
  };
  for (int i = 0; i < 10; ++i) {
    std::vector<Landing> wanted{{i, 64}};
    Read(wanted);
  }

  EXPECT_EQ(catalog_->calls["Connect"], 2);
}

TEST_F(RemoteReadTest, ASilentCatalogCostsNoMoreThanTheDeadline) {
  catalog_->silent.insert("Locate");
  std::vector<Landing> wanted{{1, 64}};
  const BootTime begin = Now();

  const auto state =
      BeginRead(wanted, ReadWant::kEveryBlock, absl::Milliseconds(20));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kTimedOut));
  EXPECT_EQ(*state->free_at - begin, absl::Milliseconds(20));
}

TEST_F(RemoteReadTest, TheSessionsTokenGoesWithStreamsAndCatalogCalls) {
  PutRemote(1, 64);
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(remote_->stream().tokens, Each("token 1"));
  EXPECT_THAT(catalog_->tokens, ElementsAre("token 1"));
}

TEST_F(RemoteReadTest, ARefusedTokenIsDeniedAndNotTriedElsewhere) {
  PutRemote(1, 64);
  remote_->stream().on_hello = [] {
    return FakeStream::Frame(
        FrameType::kRefused, 0,
        EncodeRefused({.reason = absl::UnauthenticatedError("expired")}), "");
  };
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kDenied));
}

TEST_F(RemoteReadTest, ALostConnectionIsMadeAnew) {
  PutRemote(1, 64);
  std::vector<Landing> first{{1, 64}};
  Read(first);
  remote_->stream().CutAll();
  RunFor(absl::Milliseconds(10));
  std::vector<Landing> again{{1, 64}};

  Read(again);

  EXPECT_THAT(OutcomesOf(again), ElementsAre(Outcome::kHit));
  EXPECT_EQ(remote_->stream().connections, 2);
}

TEST_F(RemoteReadTest, ManyBlocksGoOverSeveralConnections) {
  std::vector<Landing> wanted;
  for (int i = 0; i < 64; ++i) {
    PutRemote(i, 1000);
    wanted.emplace_back(i, 1000);
  }

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), Each(Outcome::kHit));
  for (int i = 0; i < 64; ++i) EXPECT_EQ(wanted[i].memory, BytesFor(i, 1000));
  EXPECT_EQ(remote_->stream().connections, options_.streams_per_node);
}

TEST_F(RemoteReadTest, ClosingEndsAReadThatIsLanding) {
  PutRemote(1, 4 * kMiB);
  std::vector<Landing> wanted{{1, 4 * kMiB}};
  const auto state = BeginRead(wanted);
  ASSERT_TRUE(Run([&] { return remote_->stream().reads > 0; }));
  RunFor(absl::Microseconds(300));
  ASSERT_FALSE(state->report.has_value());

  client_->Close();

  ASSERT_TRUE(state->free_at.has_value());
  EXPECT_EQ(state->targets[0].outcome, Outcome::kCancelled);
}

TEST_F(RemoteReadTest, WithoutALocalNodeReadsGoByTheCatalogAlone) {
  client_.reset();
  options_.socket_path = "";
  options_.catalog_address = std::string(kFakeCatalogAddress);
  options_.token = "mine";
  Connect();
  PutRemote(1, 1000);
  std::vector<Landing> wanted{{1, 1000}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kHit));
  EXPECT_THAT(remote_->stream().tokens, Contains("mine"));
}

// --- Frames and answers that no peer should send.

struct HostileFrame {
  std::string name;
  std::function<std::string(std::uint64_t, const FakeStream::Copy&)> answer;
};

class HostileStreamTest : public RemoteReadTest,
                          public ::testing::WithParamInterface<HostileFrame> {};

TEST_P(HostileStreamTest, IsNeverAHit) {
  PutRemote(1, 5000);
  remote_->stream().on_read = [&](std::uint64_t request, const ReadBody&) {
    FakeStream::Copy copy;
    copy.bytes = BytesFor(1, 5000);
    copy.header =
        FakeNode::HeaderOf(Id(1), Generation{9}, copy.bytes, handle_.digest);
    return GetParam().answer(request, copy) +
           FakeStream::Frame(FrameType::kReadEnd, request, "", "");
  };
  std::vector<Landing> wanted{{1, 5000}};

  Read(wanted, ReadWant::kEveryBlock, absl::Milliseconds(200));

  EXPECT_NE(wanted[0].target.outcome, Outcome::kHit);
}

INSTANTIATE_TEST_SUITE_P(
    Frames, HostileStreamTest,
    ::testing::Values(
        HostileFrame{"Nothing", [](auto, const auto&) { return ""; }},
        HostileFrame{"Garbage",
                     [](auto, const auto&) { return std::string(100, 'x'); }},
        HostileFrame{"AnotherIndex",
                     [](auto request, auto copy) {
                       return FakeStream::Block(request, 1, copy);
                     }},
        HostileFrame{"AnotherRequest",
                     [](auto request, auto copy) {
                       return FakeStream::Block(request + 1, 0, copy);
                     }},
        HostileFrame{"AnotherKey",
                     [](auto request, auto copy) {
                       copy.header.block.key = KeyOf(2);
                       return FakeStream::Block(request, 0, copy);
                     }},
        HostileFrame{"AnotherNamespace",
                     [](auto request, auto copy) {
                       copy.header.block.name_space.bytes[0] ^= 1;
                       return FakeStream::Block(request, 0, copy);
                     }},
        HostileFrame{"AnotherContract",
                     [](auto request, auto copy) {
                       copy.header.digest.bytes.fill(1);
                       return FakeStream::Block(request, 0, copy);
                     }},
        HostileFrame{"AShorterBlock",
                     [](auto request, auto copy) {
                       copy.bytes.resize(4000);
                       copy.header =
                           FakeNode::HeaderOf(copy.header.block, Generation{9},
                                              copy.bytes, copy.header.digest);
                       return FakeStream::Block(request, 0, copy);
                     }},
        HostileFrame{"ALongerBlock",
                     [](auto request, auto copy) {
                       copy.bytes.resize(6000);
                       copy.header =
                           FakeNode::HeaderOf(copy.header.block, Generation{9},
                                              copy.bytes, copy.header.digest);
                       return FakeStream::Block(request, 0, copy);
                     }},
        HostileFrame{"PayloadOfAnotherLengthThanItsHeaderSays",
                     [](auto request, auto copy) {
                       copy.bytes.resize(4999);
                       return FakeStream::Block(request, 0, copy);
                     }},
        HostileFrame{"TheBlockTwice",
                     [](auto request, auto copy) {
                       auto torn = copy;
                       torn.bytes[7] ^= std::byte{1};
                       return FakeStream::Block(request, 0, torn) +
                              FakeStream::Block(request, 0, copy);
                     }},
        HostileFrame{"AHelloInTheMiddle",
                     [](auto, const auto&) {
                       return FakeStream::Frame(FrameType::kHello, 0,
                                                EncodeHello({}), "");
                     }},
        HostileFrame{"AReadOfTheServers",
                     [](auto request, const auto&) {
                       return FakeStream::Frame(FrameType::kRead, request,
                                                EncodeRead({}), "");
                     }}),
    [](const auto& test) { return test.param.name; });

TEST_F(RemoteReadTest, LocationsThatDoNotAddUpAreNotFollowed) {
  PutRemote(1, 64);
  catalog_->tamper["Locate"] = [](std::string* answer) {
    v1::LocateResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    response.mutable_locations()->set_node_indexes(0, 9);
    *answer = response.SerializeAsString();
  };
  std::vector<Landing> wanted{{1, 64}};

  Read(wanted);

  EXPECT_THAT(OutcomesOf(wanted), ElementsAre(Outcome::kMiss));
  EXPECT_EQ(remote_->stream().reads, 0);
}

}  // namespace
}  // namespace firnkv
