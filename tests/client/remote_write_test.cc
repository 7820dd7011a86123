// Writes of a worker without a local node: round trips, what nodes may answer,
// failures, and both ends of the operation.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "proto/catalog.pb.h"
#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RemoteWriteTest : public ClientFixture {
 protected:
  RemoteWriteTest() {
    options_.socket_path.clear();
    options_.catalog_address = kFakeCatalogAddress;
    options_.token = "a token of the catalog's";
    catalog_->takers = {remote_->address(), node_->address()};
  }
  void SetUp() override { Connect(); }

  // Blocks [0, count) of `size` bytes.
  std::shared_ptr<WriteState> Begin(
      int count, std::size_t size, absl::Duration deadline = absl::Seconds(1)) {
    contents_.clear();
    std::vector<std::pair<int, absl::Span<const std::byte>>> blocks;
    for (int i = 0; i < count; ++i) contents_.push_back(BytesFor(i, size));
    for (int i = 0; i < count; ++i) blocks.emplace_back(i, contents_[i]);
    return BeginWrite(blocks, deadline);
  }
  std::vector<Outcome> Write(int count, std::size_t size,
                             absl::Duration deadline = absl::Seconds(1)) {
    const auto state = Begin(count, size, deadline);
    Finish(state.get());
    report_ = *state->report;
    return OutcomesOf(*state);
  }
  static std::vector<Outcome> OutcomesOf(const WriteState& state) {
    std::vector<Outcome> outcomes;
    for (const WriteBlock& block : state.blocks) {
      outcomes.push_back(block.outcome);
    }
    return outcomes;
  }
  void ExpectWritten(FakeNode* node, int count, std::size_t size) {
    for (int i = 0; i < count; ++i) {
      const std::vector<std::byte> bytes = BytesFor(i, size);
      const std::string& got = node->stream().written[KeyOf(i)];
      EXPECT_EQ(got.size(), bytes.size()) << "block " << i;
      EXPECT_TRUE(std::equal(
          got.begin(), got.end(), reinterpret_cast<const char*>(bytes.data()),
          reinterpret_cast<const char*>(bytes.data()) + bytes.size()))
          << "block " << i;
    }
  }

  std::vector<std::vector<std::byte>> contents_;
  WriteReport report_;
};

TEST_F(RemoteWriteTest, BlocksGoToTheNodeThatTheCatalogNames) {
  EXPECT_THAT(Write(3, 100'000), Each(Outcome::kStored));

  ExpectWritten(remote_.get(), 3, 100'000);
  EXPECT_EQ(report_.stored, 3u);
  EXPECT_EQ(report_.bytes_stored, 300'000u);
  EXPECT_EQ(report_.bytes_copied, 0u);
  EXPECT_EQ(node_->stream().reserves, 0);
  EXPECT_THAT(remote_->stream().tokens,
              Each(std::string("a token of the catalog's")));
}

// A warm small write is one round trip to its node: bytes go with the
// reservation.
TEST_F(RemoteWriteTest, BytesOfASmallBatchDoNotWaitForTheAnswer) {
  Write(1, 1000);
  remote_->stream().on_reserve = [](std::uint64_t, const ReserveBody&) {
    return std::string();
  };
  remote_->stream().written.clear();

  const auto state = Begin(3, 10'000, absl::Milliseconds(300));
  ASSERT_TRUE(Run([&] { return remote_->stream().written.size() == 3; }));

  EXPECT_FALSE(state->report.has_value());
  Finish(state.get());
}

TEST_F(RemoteWriteTest, BytesOfALargeBatchWaitForTheAnswer) {
  remote_->stream().on_reserve = [](std::uint64_t, const ReserveBody&) {
    return std::string();
  };

  EXPECT_THAT(Write(3, 200'000, absl::Milliseconds(300)),
              Each(Outcome::kTimedOut));

  EXPECT_EQ(remote_->stream().reserves, 1);
  EXPECT_THAT(remote_->stream().written, IsEmpty());
}

TEST_F(RemoteWriteTest, WhatIsThereAlreadyIsNotSent) {
  remote_->stream().on_reserve = [](std::uint64_t request, const ReserveBody&) {
    return FakeStream::Reserved(
        request,
        {Outcome::kAlreadyThere, Outcome::kStored, Outcome::kAlreadyThere});
  };
  remote_->stream().on_write = [](std::uint64_t request,
                                  const WriteBody& body) {
    return FakeStream::Written(request, body.index, Outcome::kStored) +
           FakeStream::WriteEnd(request);
  };

  EXPECT_THAT(Write(3, 200'000),
              ElementsAre(Outcome::kAlreadyThere, Outcome::kStored,
                          Outcome::kAlreadyThere));

  EXPECT_THAT(remote_->stream().written, SizeIs(1));
  EXPECT_EQ(report_.already_there, 2u);
}

// Clear epochs are the catalog's and the local node's to say: a peer that names
// one too high would make this client refuse every block.
TEST_F(RemoteWriteTest, APeersClearEpochIsNotBelieved) {
  remote_->stream().on_reserve = [](std::uint64_t request, const ReserveBody&) {
    return FakeStream::Frame(
               FrameType::kReserved, request,
               EncodeReserved({.clear_epoch = ClearEpoch{99},
                               .outcomes = {Outcome::kAlreadyThere}}),
               "") +
           FakeStream::WriteEnd(request);
  };
  EXPECT_THAT(Write(1, 1000), ElementsAre(Outcome::kAlreadyThere));
  EXPECT_THAT(Write(1, 1000), ElementsAre(Outcome::kAlreadyThere));

  EXPECT_EQ(remote_->stream().reserved.back().clear_epoch, ClearEpoch{1});
}

TEST_F(RemoteWriteTest, EachOutcomeOfTheNodeIsTheBlocks) {
  for (const Outcome outcome :
       {Outcome::kCongested, Outcome::kOverQuota, Outcome::kDenied,
        Outcome::kTimedOut, Outcome::kCleared}) {
    remote_->stream().on_reserve = [outcome](std::uint64_t request,
                                             const ReserveBody&) {
      return FakeStream::Reserved(request, {outcome}) +
             FakeStream::WriteEnd(request);
    };
    EXPECT_THAT(Write(1, 200'000), ElementsAre(outcome));
  }
  remote_->stream().on_reserve = nullptr;
  for (const Outcome outcome : {Outcome::kCorrupt, Outcome::kReservationOver,
                                Outcome::kCleared, Outcome::kAlreadyThere}) {
    remote_->stream().on_write = [outcome](std::uint64_t request,
                                           const WriteBody& body) {
      return FakeStream::Written(request, body.index, outcome) +
             FakeStream::WriteEnd(request);
    };
    EXPECT_THAT(Write(1, 200'000), ElementsAre(outcome));
  }
}

TEST_F(RemoteWriteTest, ARequestThatTheNodeRefusesSaysWhy) {
  remote_->stream().on_reserve = [](std::uint64_t request, const ReserveBody&) {
    ReservedBody body;
    body.status = absl::InvalidArgumentError("no flash tier");
    return FakeStream::Frame(FrameType::kReserved, request,
                             EncodeReserved(body), "") +
           FakeStream::WriteEnd(request);
  };

  Write(1, 1000);

  EXPECT_THAT(report_.status, StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(RemoteWriteTest, AManyWindowsWriteIsWhole) {
  EXPECT_THAT(Write(40, 500'000, absl::Seconds(10)), Each(Outcome::kStored));

  ExpectWritten(remote_.get(), 40, 500'000);
  // 8 MiB each.
  EXPECT_EQ(remote_->stream().reserves, 3);
}

TEST_F(RemoteWriteTest, AWriterReadsItsBlocksWithoutAskingTheCatalog) {
  Write(1, 1000);
  remote_->Put(Id(0), BytesFor(0, 1000));
  std::vector<Landing> wanted{{0, 1000}};

  Read(wanted);

  EXPECT_EQ(wanted[0].target.outcome, Outcome::kHit);
  EXPECT_EQ(catalog_->calls["Locate"], 0);
}

// --- Failures.

TEST_F(RemoteWriteTest, ANodeThatCannotBeReachedIsReplacedOnce) {
  world_.links()->Cut("node1", "node2");

  EXPECT_THAT(Write(3, 1000, absl::Seconds(5)), Each(Outcome::kStored));

  ExpectWritten(node_.get(), 3, 1000);
  EXPECT_EQ(catalog_->calls["Place"], 2);
}

TEST_F(RemoteWriteTest, AConnectionThatBreaksInBetweenIsTriedElsewhere) {
  remote_->stream().on_write = [this](std::uint64_t, const WriteBody&) {
    remote_->stream().CutAll();
    return std::string();
  };

  EXPECT_THAT(Write(3, 1000, absl::Seconds(5)), Each(Outcome::kStored));

  ExpectWritten(node_.get(), 3, 1000);
}

TEST_F(RemoteWriteTest, ANodeThatDrainsIsReplaced) {
  remote_->stream().on_reserve = [](std::uint64_t request,
                                    const ReserveBody& body) {
    return FakeStream::Reserved(request,
                                std::vector<Outcome>(body.blocks.size(),
                                                     Outcome::kUnavailable)) +
           FakeStream::WriteEnd(request);
  };

  EXPECT_THAT(Write(2, 200'000, absl::Seconds(5)), Each(Outcome::kStored));

  ExpectWritten(node_.get(), 2, 200'000);
}

TEST_F(RemoteWriteTest, WithNoNodeLeftItIsUnavailable) {
  catalog_->takers.clear();

  EXPECT_THAT(Write(2, 1000), Each(Outcome::kUnavailable));
}

TEST_F(RemoteWriteTest, AMadeUpOlderNodeGetsNoWrites) {
  remote_->stream().on_hello = [this] {
    HelloBody hello;
    hello.handshake.newest_protocol = 1;
    hello.handshake.cluster = cluster_;
    hello.handshake.test_vector = HandshakeTestVector();
    hello.node = remote_->address().node;
    hello.epoch = remote_->address().epoch;
    return FakeStream::Frame(FrameType::kHello, 0, EncodeHello(hello), "");
  };

  EXPECT_THAT(Write(2, 1000), Each(Outcome::kStored));

  // It goes to one that knows them; the old one never saw a frame of them.
  EXPECT_EQ(remote_->stream().reserves, 0);
  ExpectWritten(node_.get(), 2, 1000);
}

TEST_F(RemoteWriteTest, AMadeUpNewerNodeIsSpokenToAsToday) {
  remote_->stream().on_hello = [this] {
    HelloBody hello;
    hello.handshake.newest_protocol = 9;
    hello.handshake.cluster = cluster_;
    hello.handshake.test_vector = HandshakeTestVector();
    hello.node = remote_->address().node;
    hello.epoch = remote_->address().epoch;
    return FakeStream::Frame(FrameType::kHello, 0, EncodeHello(hello), "");
  };

  EXPECT_THAT(Write(2, 1000), Each(Outcome::kStored));

  ASSERT_THAT(remote_->stream().reserved, SizeIs(1));
  EXPECT_EQ(remote_->stream().reserved[0].header.protocol, 2u);
}

TEST_F(RemoteWriteTest, NonsenseEndsTheConnectionAndNothingElse) {
  const std::vector<std::function<std::string(std::uint64_t)>> nonsense = {
      // Too many outcomes.
      [](std::uint64_t request) {
        return FakeStream::Reserved(request,
                                    {Outcome::kStored, Outcome::kStored});
      },
      // Outcomes ahead of the reservation's answer.
      [](std::uint64_t request) {
        return FakeStream::Written(request, 0, Outcome::kStored);
      },
      // Of a block that there is not.
      [](std::uint64_t request) {
        return FakeStream::Reserved(request, {Outcome::kStored}) +
               FakeStream::Written(request, 7, Outcome::kStored);
      },
      // Twice.
      [](std::uint64_t request) {
        return FakeStream::Reserved(request, {Outcome::kStored}) +
               FakeStream::Reserved(request, {Outcome::kStored});
      },
      // Of a request that nobody made.
      [](std::uint64_t request) {
        return FakeStream::Reserved(request + 100, {Outcome::kStored});
      },
  };
  for (const auto& answer : nonsense) {
    // The breaker forgets what the last one did.
    RunFor(absl::Minutes(1));
    remote_->stream().on_reserve = [&](std::uint64_t request,
                                       const ReserveBody&) {
      return answer(request);
    };
    EXPECT_THAT(Write(1, 300'000, absl::Seconds(5)),
                ElementsAre(Outcome::kStored));
    ExpectWritten(node_.get(), 1, 300'000);
  }
}

// --- Two ends.

TEST_F(RemoteWriteTest, ASilentNodeCostsNoMoreThanTheDeadline) {
  remote_->stream().silent = true;
  const BootTime began = Now();

  const auto state = Begin(3, 1000, absl::Milliseconds(200));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), Each(Outcome::kTimedOut));
  EXPECT_EQ(*state->told_at - began, absl::Milliseconds(200));
  EXPECT_LE(*state->free_at - began, absl::Milliseconds(300));
}

// Its bytes stand in the connection: it is closed, and the buffers are free.
TEST_F(RemoteWriteTest, ANodeThatReceivesNothingIsLeftAtTheGrace) {
  remote_->stream().takes_no_payload = true;
  const BootTime began = Now();

  const auto state = Begin(6, 3 * kMiB, absl::Milliseconds(200));
  Finish(state.get());

  EXPECT_THAT(OutcomesOf(*state), Each(Outcome::kTimedOut));
  EXPECT_EQ(*state->told_at - began, absl::Milliseconds(200));
  EXPECT_LE(*state->free_at - began,
            absl::Milliseconds(200) + options_.buffer_grace);
  // The next write gets a connection of its own.
  remote_->stream().takes_no_payload = false;
  RunFor(absl::Minutes(1));
  EXPECT_THAT(Write(1, 1000), Each(Outcome::kStored));
}

TEST_F(RemoteWriteTest, WhatIsLeftReservedIsGivenBackAtTheDeadline) {
  remote_->stream().on_write = [](std::uint64_t, const WriteBody&) {
    return std::string();
  };

  Write(1, 1000, absl::Milliseconds(200));
  RunFor(absl::Milliseconds(50));

  EXPECT_EQ(remote_->stream().cancels, 1);
}

TEST_F(RemoteWriteTest, CloseEndsAWriteInFlight) {
  remote_->stream().silent = true;
  const auto state = Begin(3, 1000, absl::Seconds(5));
  ASSERT_TRUE(Run([&] { return remote_->stream().reserves == 1; }));

  client_->Close();

  ASSERT_TRUE(state->report.has_value());
  EXPECT_TRUE(state->free_at.has_value());
  EXPECT_THAT(OutcomesOf(*state), Each(Outcome::kCancelled));
}

TEST_F(RemoteWriteTest, ABlockOfAWrongSizeStaysBehind) {
  handle_.block_bytes = 4096;

  EXPECT_THAT(Write(2, 4095), Each(Outcome::kWrongSize));

  EXPECT_EQ(catalog_->calls["Place"], 0);
}

TEST_F(RemoteWriteTest, APlaceAnswerOfNonsenseIsUnavailable) {
  catalog_->tamper["Place"] = [](std::string* answer) {
    v1::PlaceResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    response.set_node_indexes(0, 7);
    *answer = response.SerializeAsString();
  };

  EXPECT_THAT(Write(2, 1000), Each(Outcome::kUnavailable));
}

}  // namespace
}  // namespace firnkv
