// Calls that go as frames over the session's socket: which do, which go by gRPC
// instead, and what a node may do to them. That both ways do the same is what
// all other tests of reads, views and writes show.

#include "client/frame_calls.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/frame_body.h"
#include "tests/client/client_fixture.h"
#include "tests/client/fake_frames.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class FrameCallsTest : public ClientFixture {
 protected:
  void SetUp() override {
    node_->Put(Id(1), BytesFor(1, 5000));
    node_->Put(Id(2), BytesFor(2, 200'000));
    // Only the local node is asked.
    catalog_->silent.insert("Locate");
  }
  std::vector<Outcome> ReadOne(int number, std::size_t bytes,
                               absl::Duration deadline = absl::Seconds(1)) {
    std::vector<Landing> landings;
    landings.emplace_back(number, bytes);
    Read(landings, ReadWant::kLeadingRun, deadline);
    return OutcomesOf(landings);
  }
  std::vector<Outcome> ReadHit() { return ReadOne(1, 5000); }
  std::uint64_t Frames() { return client_->Stats().frame_calls; }
  // Another session, of a node of which this is changed.
  void BeginSession(const std::function<void()>& change) {
    change();
    node_->DropSessions();
    RunFor(absl::Seconds(1));
  }
};

TEST_F(FrameCallsTest, ReadsAndTheirReleasesAreFramesByDefault) {
  Connect();

  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  RunFor(absl::Milliseconds(10));

  EXPECT_EQ(node_->calls["OpenRead"], 1);
  EXPECT_EQ(node_->calls["Release"], 1);
  EXPECT_EQ(node_->frames, 2);
  const ClientStats stats = client_->Stats();
  EXPECT_EQ(stats.frame_calls, 2u);
  EXPECT_EQ(stats.calls.at("NodeService/OpenRead"), 1u);
  EXPECT_EQ(stats.calls.at("NodeService/Release"), 1u);
}

TEST_F(FrameCallsTest, WritesAreFramesByDefault) {
  Connect();
  const std::vector<std::byte> bytes = BytesFor(7, 3000);

  const auto write = BeginWrite({{7, bytes}});
  Finish(write.get());

  EXPECT_EQ(write->blocks[0].outcome, Outcome::kStored);
  EXPECT_EQ(node_->BytesOf(Id(7)), bytes);
  EXPECT_EQ(node_->frames, 2) << "Reserve and Commit";
}

TEST_F(FrameCallsTest, ACallerMayWantNone) {
  options_.call_frames = false;
  Connect();

  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));

  EXPECT_EQ(node_->frames, 0);
}

TEST_F(FrameCallsTest, ANodeThatKnowsNoneIsCalledByGrpc) {
  node_->call_frames = 0;
  Connect();

  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  const std::vector<std::byte> bytes = BytesFor(7, 3000);
  const auto write = BeginWrite({{7, bytes}});
  Finish(write.get());

  EXPECT_EQ(write->blocks[0].outcome, Outcome::kStored);
  EXPECT_EQ(node_->frames, 0);
}

TEST_F(FrameCallsTest, ANodeThatSaysAVersionWeDoNotIsCalledByGrpc) {
  node_->on_welcome = [](v1::SessionWelcome* welcome) {
    welcome->set_call_frames(kCallFrames + 1);
  };
  Connect();

  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));

  EXPECT_EQ(node_->frames, 0);
}

TEST_F(FrameCallsTest, ANodeIsUpgradedAndDowngradedBeneathItsClient) {
  node_->call_frames = 0;
  Connect();
  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  EXPECT_EQ(Frames(), 0u);

  BeginSession([&] { node_->call_frames = kCallFrames; });
  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  EXPECT_GT(Frames(), 0u);

  BeginSession([&] { node_->call_frames = 0; });
  const std::uint64_t before = Frames();
  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  EXPECT_EQ(Frames(), before);
}

TEST_F(FrameCallsTest, ABatchThatFitsNoFrameGoesByGrpc) {
  Connect();
  std::vector<Landing> landings;
  landings.reserve(kMaxCallKeys + 1);
  for (std::size_t i = 0; i <= kMaxCallKeys; ++i) {
    landings.emplace_back(static_cast<int>(i), 5000);
  }

  Read(landings, ReadWant::kEveryBlock);

  EXPECT_EQ(landings[1].target.outcome, Outcome::kHit);
  EXPECT_EQ(node_->calls["OpenRead"], 1);
  EXPECT_EQ(node_->frames, node_->calls["Release"]);
}

TEST_F(FrameCallsTest, MoreThanMayBeInFlightGoByGrpc) {
  Connect();
  node_->silent.insert("OpenRead");
  std::vector<std::vector<Landing>> landings(kMaxCallsInFlight + 3);
  std::vector<std::shared_ptr<ReadState>> reads;
  for (auto& one : landings) {
    one.emplace_back(1, 5000);
    reads.push_back(BeginRead(one));
  }
  ASSERT_TRUE(Run([&] {
    return node_->calls["OpenRead"] == static_cast<int>(landings.size());
  }));

  EXPECT_EQ(node_->frames, static_cast<int>(kMaxCallsInFlight));

  for (const auto& read : reads) Finish(read.get());
  RunFor(absl::Seconds(2));
  node_->silent.clear();
  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  EXPECT_GT(node_->frames, static_cast<int>(kMaxCallsInFlight))
      << "calls that were given up make room";
}

TEST_F(FrameCallsTest, ANodeThatDoesNotAnswerCostsTheDeadline) {
  Connect();
  node_->silent.insert("OpenRead");
  const BootTime begun = Now();

  EXPECT_THAT(ReadOne(1, 5000, absl::Milliseconds(300)),
              ElementsAre(Outcome::kTimedOut));

  EXPECT_LE(Now() - begun, absl::Milliseconds(310));
}

TEST_F(FrameCallsTest, AnAnswerAfterTheDeadlineGivesItsLeaseBack) {
  Connect();
  // It comes once the read is over, and before the call is given up.
  node_->late["OpenRead"] = absl::Milliseconds(500);

  EXPECT_THAT(ReadOne(1, 5000, absl::Milliseconds(300)),
              ElementsAre(Outcome::kTimedOut));
  RunFor(absl::Seconds(1));

  EXPECT_EQ(node_->released.size(), 1u);
}

TEST_F(FrameCallsTest, AnAnswerThatNobodyWaitsForAnyMoreIsNoNews) {
  Connect();
  node_->late["OpenRead"] = absl::Seconds(3);

  EXPECT_THAT(ReadOne(1, 5000, absl::Milliseconds(300)),
              ElementsAre(Outcome::kTimedOut));
  RunFor(absl::Seconds(5));
  node_->late.clear();

  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  EXPECT_EQ(node_->sessions, 1) << "the session goes on";
}

TEST_F(FrameCallsTest, AFailureIsTheCallsOwn) {
  Connect();
  node_->instead["OpenRead"] = [](const std::string&) {
    return absl::PermissionDeniedError("not yours");
  };

  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kDenied));

  EXPECT_EQ(node_->sessions, 1);
}

TEST_F(FrameCallsTest, ABodyThatCannotBeIsNoHitAndTheSessionGoesOn) {
  Connect();
  node_->tamper["OpenRead"] = [](std::string* answer) { *answer = "\xff"; };
  EXPECT_THAT(ReadHit(), Each(::testing::Ne(Outcome::kHit)));
  node_->tamper["OpenRead"] = [](std::string* answer) {
    v1::OpenReadResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    response.mutable_outcomes()->push_back(2);
    *answer = response.SerializeAsString();
  };
  EXPECT_THAT(ReadHit(), Each(::testing::Ne(Outcome::kHit)))
      << "about another number of blocks";
  node_->tamper["OpenRead"] = [](std::string* answer) {
    v1::OpenReadResponse response;
    ASSERT_TRUE(response.ParseFromString(*answer));
    response.set_extent_offsets(0, 17);
    *answer = response.SerializeAsString();
  };
  EXPECT_THAT(ReadHit(), Each(::testing::Ne(Outcome::kHit)));

  node_->tamper.clear();
  EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  EXPECT_EQ(node_->sessions, 1);
}

TEST_F(FrameCallsTest, FramesThatNoNodeSendsEndTheSession) {
  const std::vector<std::string> packets = {
      // Cut short; of the stream; a client's; to a call that there never was.
      EncodeLead({.type = FrameType::kCallOpened}).substr(0, 20),
      EncodeCallPacket(FrameType::kReadEnd, 1, ""),
      EncodeCallPacket(FrameType::kCallOpened, 1'000'000, SealBody("")),
      EncodeCallPacket(FrameType::kCallOpened, 1, SealBody("")) + "x",
  };
  Connect();
  int sessions = 1;

  for (const std::string& packet : packets) {
    node_->SendPacket(packet);
    ASSERT_TRUE(Run([&] {
      return node_->sessions > sessions && client_->Describe().session;
    }));
    ++sessions;
    EXPECT_THAT(ReadHit(), ElementsAre(Outcome::kHit));
  }
}

TEST_F(FrameCallsTest, TheAnswerToAnotherCallEndsTheSession) {
  Connect();
  node_->silent.insert("OpenRead");
  std::vector<Landing> landings;
  landings.emplace_back(1, 5000);
  const auto read = BeginRead(landings);
  ASSERT_TRUE(Run([&] { return node_->frames == 1; }));

  node_->SendPacket(EncodeCallPacket(
      FrameType::kCallCommitted, 1,
      EncodeCallCommitted({.retry_after = {}, .outcomes = {}})));
  Finish(read.get());

  EXPECT_THAT(OutcomesOf(landings), Each(::testing::Ne(Outcome::kHit)));
  EXPECT_TRUE(Run([&] { return node_->sessions == 2; }));
}

TEST_F(FrameCallsTest, ASessionThatEndsEndsItsCalls) {
  Connect();
  node_->silent.insert("OpenRead");
  std::vector<Landing> landings;
  landings.emplace_back(1, 5000);
  const auto read =
      BeginRead(landings, ReadWant::kLeadingRun, absl::Seconds(20));
  ASSERT_TRUE(Run([&] { return node_->frames == 1; }));
  const BootTime begun = Now();

  node_->DropSessions();
  ASSERT_TRUE(Run([&] { return node_->sessions == 2; }));
  EXPECT_LE(Now() - begun, absl::Seconds(1));

  client_->Close();
  Finish(read.get());
}

// Rule S1: the staging of a commit that was not answered is the session's.
TEST_F(FrameCallsTest, ACommitThatIsNotAnsweredEndsTheSession) {
  Connect();
  node_->silent = {"Commit", "Abort"};

  const std::vector<std::byte> bytes = BytesFor(7, 3000);
  const auto write = BeginWrite({{7, bytes}});
  Finish(write.get());

  EXPECT_EQ(write->blocks[0].outcome, Outcome::kTimedOut);
  EXPECT_LE(*write->free_at - *write->told_at,
            options_.buffer_grace + absl::Milliseconds(10));
  EXPECT_TRUE(Run([&] { return node_->sessions == 2; }));
}

TEST_F(FrameCallsTest, ClosingTheClientEndsACallWithKCancelled) {
  Connect();
  node_->silent.insert("OpenRead");
  std::vector<Landing> landings;
  landings.emplace_back(1, 5000);
  const auto read = BeginRead(landings);
  ASSERT_TRUE(Run([&] { return node_->frames == 1; }));

  client_->Close();

  ASSERT_TRUE(read->free_at.has_value());
  EXPECT_EQ(read->targets[0].outcome, Outcome::kCancelled);
}

}  // namespace
}  // namespace firnkv
