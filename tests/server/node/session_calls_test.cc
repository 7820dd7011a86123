// Calls of a local session as frames: the same answers as by gRPC, and what a
// hostile session may try with them.

#include "server/node/session_calls.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/frame_body.h"
#include "proto/base/limits.h"
#include "tests/server/node/whole_node.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::HasSubstr;

class SessionCallsTest : public WholeNodeTest {
 protected:
  SessionCallsTest() {
    StartNode();
    alice_session_ = Connect(kAliceUid);
  }
  ~SessionCallsTest() override {
    alice_session_.reset();
    StopNode();
  }

  static RequestHeader Header(const SessionPeer& session,
                              absl::Duration remaining = absl::Seconds(5)) {
    RequestHeader header;
    header.remaining = remaining;
    header.session = session.id();
    return header;
  }
  CallOpenReadBody Open(const SessionPeer& session,
                        std::vector<std::uint64_t> numbers) {
    CallOpenReadBody body;
    body.header = Header(session);
    body.name_space = granite_.name_space;
    body.lease = absl::Seconds(5);
    for (const std::uint64_t n : numbers) body.keys.push_back(KeyOf(n));
    return body;
  }
  CallReserveBody Reserve(const SessionPeer& session, std::uint64_t n,
                          std::uint64_t bytes = 4096) {
    CallReserveBody body;
    body.header = Header(session);
    body.name_space = granite_.name_space;
    body.reservation = absl::Seconds(10);
    body.blocks.push_back({KeyOf(n), ChainPlace{.anchor = KeyOf(n)}, bytes});
    return body;
  }
  CallCommitBody Commit(const SessionPeer& session, std::uint64_t reservation,
                        std::uint64_t n, std::uint64_t bytes = 4096) {
    CallCommitBody body;
    body.header = Header(session);
    body.reservation = reservation;
    CallCommitBody::Block block;
    block.extents.push_back({next_staging_, 0, bytes});
    block.pieces = PieceChecksums(ContentOf(n, bytes));
    body.blocks.push_back(std::move(block));
    return body;
  }

  // Its answer; waits for it.
  SessionPeer::GotFrame Call(SessionPeer* session, FrameType type,
                             const std::string& body) {
    const std::uint64_t request = session->SendCall(type, body);
    CHECK(world_.executor()->RunUntil([&] {
      return session->closed() || (!session->frames.empty() &&
                                   session->frames.back().request == request);
    }));
    CHECK(!session->closed());
    return session->frames.back();
  }
  absl::StatusOr<CallOpenedBody> CallOpen(SessionPeer* session,
                                          const CallOpenReadBody& body) {
    const auto answer =
        Call(session, FrameType::kCallOpenRead, EncodeCallOpenRead(body));
    if (answer.type != FrameType::kCallOpened) {
      return DecodeRefused(answer.body)->reason;
    }
    return DecodeCallOpened(answer.body);
  }
  absl::StatusOr<CallReservedBody> CallReserve(SessionPeer* session,
                                               const CallReserveBody& body) {
    const auto answer =
        Call(session, FrameType::kCallReserve, EncodeCallReserve(body));
    if (answer.type != FrameType::kCallReserved) {
      return DecodeRefused(answer.body)->reason;
    }
    return DecodeCallReserved(answer.body);
  }
  absl::StatusOr<CallCommittedBody> CallCommit(SessionPeer* session,
                                               const CallCommitBody& body) {
    const auto answer =
        Call(session, FrameType::kCallCommit, EncodeCallCommit(body));
    if (answer.type != FrameType::kCallCommitted) {
      return DecodeRefused(answer.body)->reason;
    }
    return DecodeCallCommitted(answer.body);
  }

  std::unique_ptr<SessionPeer> alice_session_;
};

// --- The same answers.

TEST_F(SessionCallsTest, AReadIsAnsweredAsByGrpc) {
  ASSERT_EQ(Write(alice_session_.get(), granite_, 1), Outcome::kStored);
  v1::OpenReadRequest message = OpenOf(alice_session_->id(), granite_, 1);
  message.mutable_keys()->append(KeyOf(2).view());

  const auto by_grpc =
      WholeNodeTest::Call<v1::OpenReadResponse>("OpenRead", message);
  ASSERT_OK_AND_ASSIGN(
      const CallOpenedBody by_frame,
      CallOpen(alice_session_.get(), Open(*alice_session_, {1, 2})));

  ASSERT_OK(by_grpc);
  ASSERT_EQ(by_frame.blocks.size(), 2u);
  EXPECT_EQ(by_frame.blocks[0].outcome, Outcome::kHit);
  EXPECT_EQ(by_frame.blocks[1].outcome, Outcome::kMiss);
  EXPECT_EQ(static_cast<std::uint64_t>(by_frame.blocks[0].generation),
            by_grpc->generations(0));
  ASSERT_EQ(by_frame.blocks[0].extents.size(), 1u);
  EXPECT_EQ(by_frame.blocks[0].extents[0],
            (CallExtent{by_grpc->extent_regions(0), by_grpc->extent_offsets(0),
                        by_grpc->lengths(0)}));
  EXPECT_EQ(by_frame.lease_time, absl::Seconds(5));
  EXPECT_EQ(static_cast<std::uint64_t>(by_frame.clear_epoch),
            by_grpc->clear_epoch());
  EXPECT_EQ(node_->pool().leases, 2u);
}

TEST_F(SessionCallsTest, ALeadingRunEndsAtItsFirstMiss) {
  ASSERT_EQ(Write(alice_session_.get(), granite_, 2), Outcome::kStored);
  CallOpenReadBody body = Open(*alice_session_, {1, 2});
  body.leading_run = true;

  ASSERT_OK_AND_ASSIGN(const CallOpenedBody opened,
                       CallOpen(alice_session_.get(), body));

  EXPECT_EQ(opened.blocks[0].outcome, Outcome::kMiss);
  EXPECT_EQ(opened.blocks[1].outcome, Outcome::kSkipped);
  EXPECT_EQ(opened.lease, 0u);
}

TEST_F(SessionCallsTest, AReleaseGivesItsLeasesBack) {
  ASSERT_EQ(Write(alice_session_.get(), granite_, 1), Outcome::kStored);
  ASSERT_OK_AND_ASSIGN(
      const CallOpenedBody opened,
      CallOpen(alice_session_.get(), Open(*alice_session_, {1})));
  ASSERT_EQ(node_->pool().leases, 1u);

  alice_session_->SendCall(FrameType::kCallRelease,
                           EncodeCallRelease({.session = alice_session_->id(),
                                              .leases = {opened.lease}}));
  RunFor(absl::Milliseconds(1));

  EXPECT_EQ(node_->pool().leases, 0u);
  EXPECT_EQ(alice_session_->frames.size(), 1u) << "a release is not answered";
}

TEST_F(SessionCallsTest, ABlockIsReservedCommittedAndRead) {
  ASSERT_OK_AND_ASSIGN(
      const CallReservedBody reserved,
      CallReserve(alice_session_.get(), Reserve(*alice_session_, 1)));
  ASSERT_EQ(reserved.outcomes, std::vector<Outcome>{Outcome::kStored});
  LendStaging(alice_session_.get(), ++next_staging_, 1, 4096);

  ASSERT_OK_AND_ASSIGN(
      const CallCommittedBody committed,
      CallCommit(alice_session_.get(),
                 Commit(*alice_session_, reserved.reservation, 1)));

  EXPECT_EQ(committed.outcomes, std::vector<Outcome>{Outcome::kStored});
  EXPECT_EQ(Read(alice_session_.get(), granite_, 1), Outcome::kHit);
}

// Rule S5: both ways are one reservation's.
TEST_F(SessionCallsTest, ACommitIsRepeatedAndJoinedWhicheverWayItComes) {
  ASSERT_OK_AND_ASSIGN(
      const CallReservedBody reserved,
      CallReserve(alice_session_.get(), Reserve(*alice_session_, 1)));
  LendStaging(alice_session_.get(), ++next_staging_, 1, 4096);
  const CallCommitBody commit =
      Commit(*alice_session_, reserved.reservation, 1);
  ASSERT_OK(CallCommit(alice_session_.get(), commit));

  ASSERT_OK_AND_ASSIGN(const CallCommittedBody again,
                       CallCommit(alice_session_.get(), commit));
  const auto by_grpc = WholeNodeTest::Call<v1::CommitResponse>(
      "Commit", CommitOf(alice_session_->id(), reserved.reservation, 1, 4096));

  EXPECT_EQ(again.outcomes, std::vector<Outcome>{Outcome::kStored});
  ASSERT_OK(by_grpc);
  EXPECT_EQ(by_grpc->outcomes(), OutcomesToProto({Outcome::kStored}));
  EXPECT_EQ(node_->pool().blocks, 1u);
}

TEST_F(SessionCallsTest, AnotherTenantIsDenied) {
  ASSERT_EQ(Write(alice_session_.get(), granite_, 1), Outcome::kStored);
  const auto bob = Connect(kBobUid);

  ASSERT_OK_AND_ASSIGN(const CallOpenedBody opened,
                       CallOpen(bob.get(), Open(*bob, {1})));
  ASSERT_OK_AND_ASSIGN(const CallReservedBody reserved,
                       CallReserve(bob.get(), Reserve(*bob, 2)));

  EXPECT_EQ(opened.blocks[0].outcome, Outcome::kDenied);
  EXPECT_EQ(reserved.outcomes, std::vector<Outcome>{Outcome::kDenied});
}

// --- What is refused, and the session goes on.

TEST_F(SessionCallsTest, ACallThatIsWrongInItselfIsRefused) {
  CallOpenReadBody body = Open(*alice_session_, {1});
  body.header.remaining = absl::ZeroDuration();
  EXPECT_THAT(CallOpen(alice_session_.get(), body),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  body = Open(*alice_session_, {1});
  body.header.protocol = kProtocolVersion + 1;
  EXPECT_THAT(CallOpen(alice_session_.get(), body),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  body = Open(*alice_session_, {1});
  body.name_space = NamespaceId{};
  EXPECT_THAT(CallOpen(alice_session_.get(), body),
              StatusIs(absl::StatusCode::kInvalidArgument));
  CallReserveBody reserve = Reserve(*alice_session_, 1);
  reserve.wait_for = 2;
  EXPECT_THAT(CallReserve(alice_session_.get(), reserve),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("flash")));
  reserve = Reserve(*alice_session_, 1);
  reserve.session_state = 3;
  EXPECT_THAT(CallReserve(alice_session_.get(), reserve),
              StatusIs(absl::StatusCode::kInvalidArgument));
  reserve = Reserve(*alice_session_, 1);
  reserve.blocks.push_back(reserve.blocks[0]);
  EXPECT_THAT(CallReserve(alice_session_.get(), reserve),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(
      CallCommit(alice_session_.get(), Commit(*alice_session_, 0, 1)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reservation")));

  EXPECT_FALSE(alice_session_->closed());
  EXPECT_EQ(node_->pool().reserved_slots, 0u);
}

// Rule S3.
TEST_F(SessionCallsTest, ASocketSpeaksOnlyForItsOwnSession) {
  const auto other = Connect(kAliceUid);
  CallOpenReadBody body = Open(*other, {1});

  EXPECT_THAT(CallOpen(alice_session_.get(), body),
              StatusIs(absl::StatusCode::kUnauthenticated));
  body.header.session = SessionId{};
  EXPECT_THAT(CallOpen(alice_session_.get(), body),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

// Rule S3.
TEST_F(SessionCallsTest, LeasesAndReservationsOfOthersCannotBeNamed) {
  ASSERT_EQ(Write(alice_session_.get(), granite_, 1), Outcome::kStored);
  ASSERT_OK_AND_ASSIGN(
      const CallOpenedBody opened,
      CallOpen(alice_session_.get(), Open(*alice_session_, {1})));
  ASSERT_OK_AND_ASSIGN(
      const CallReservedBody reserved,
      CallReserve(alice_session_.get(), Reserve(*alice_session_, 2)));
  const auto other = Connect(kAliceUid);
  LendStaging(other.get(), ++next_staging_, 2, 4096);

  other->SendCall(
      FrameType::kCallRelease,
      EncodeCallRelease({.session = other->id(), .leases = {opened.lease}}));
  ASSERT_OK_AND_ASSIGN(
      const CallCommittedBody committed,
      CallCommit(other.get(), Commit(*other, reserved.reservation, 2)));

  EXPECT_EQ(committed.outcomes,
            std::vector<Outcome>{Outcome::kReservationOver});
  EXPECT_EQ(node_->pool().leases, 1u);
  EXPECT_EQ(node_->pool().reserved_slots, 1u);
  EXPECT_FALSE(other->closed());
}

TEST_F(SessionCallsTest, MoreCallsThanMayBeInFlightAreRefused) {
  // A namespace of which the catalog does not speak, so that calls wait.
  catalog_.silent = true;
  CallOpenReadBody body = Open(*alice_session_, {1});
  body.name_space.bytes.fill(0x77);
  for (std::size_t i = 0; i < kMaxCallsInFlight; ++i) {
    alice_session_->SendCall(FrameType::kCallOpenRead,
                             EncodeCallOpenRead(body));
  }

  EXPECT_THAT(CallOpen(alice_session_.get(), body),
              StatusIs(absl::StatusCode::kResourceExhausted));

  RunFor(absl::Seconds(10));
  EXPECT_EQ(alice_session_->frames.size(), kMaxCallsInFlight + 1)
      << "each has its answer by its deadline";
  EXPECT_THAT(CallOpen(alice_session_.get(), Open(*alice_session_, {1})),
              IsOk());
}

TEST_F(SessionCallsTest, ASessionThatAsksAndNeverReadsIsEnded) {
  SimMachine* const machine = NewClient(kAliceUid);
  const auto greedy = Connect(machine);
  const std::string ask = EncodeCallOpenRead(Open(*greedy, {1}));
  ASSERT_EQ(Status().sessions(), 2u);

  machine->process()->Pause();
  for (int i = 0; i < 20; ++i) {
    for (int n = 0; n < 50; ++n) {
      greedy->SendCall(FrameType::kCallOpenRead, ask);
    }
    RunFor(absl::Milliseconds(10));
  }

  EXPECT_EQ(Status().sessions(), 1u);
  EXPECT_THAT(CallOpen(alice_session_.get(), Open(*alice_session_, {1})),
              IsOk());
}

// --- What ends the session, and nobody else's.

class BrokenFrameTest : public SessionCallsTest {
 protected:
  // Whether alice's session is over after these packets, and the node well.
  bool IsEndedBy(const std::vector<std::string>& packets) {
    const auto session = Connect(kAliceUid);
    for (const std::string& packet : packets) session->SendRaw(packet);
    RunFor(absl::Milliseconds(10));
    EXPECT_THAT(CallOpen(alice_session_.get(), Open(*alice_session_, {1})),
                IsOk());
    return session->closed();
  }
};

TEST_F(BrokenFrameTest, AFrameCutShortEndsTheSession) {
  const std::string packet =
      EncodeCallPacket(FrameType::kCallOpenRead, 1,
                       EncodeCallOpenRead(Open(*alice_session_, {1})));

  EXPECT_TRUE(IsEndedBy({packet.substr(0, 4)}));
  EXPECT_TRUE(IsEndedBy({packet.substr(0, kFrameLeadBytes)}));
  EXPECT_TRUE(IsEndedBy({packet.substr(0, packet.size() - 1)}));
  EXPECT_TRUE(IsEndedBy({packet + "x"}));
}

TEST_F(BrokenFrameTest, ABodyThatDoesNotDecodeEndsTheSession) {
  for (const FrameType type :
       {FrameType::kCallOpenRead, FrameType::kCallRelease,
        FrameType::kCallReserve, FrameType::kCallCommit}) {
    EXPECT_TRUE(IsEndedBy({EncodeCallPacket(type, 1, SealBody("nonsense"))}));
  }
}

TEST_F(BrokenFrameTest, FramesThatNoClientSendsEndTheSession) {
  for (const FrameType type :
       {FrameType::kHello, FrameType::kRead, FrameType::kCallOpened,
        FrameType::kCallReserved, FrameType::kCallCommitted,
        FrameType::kCallFailed}) {
    EXPECT_TRUE(IsEndedBy({EncodeCallPacket(type, 1, "")}));
  }
}

TEST_F(BrokenFrameTest, AReleaseThatNamesAnotherSessionEndsTheSession) {
  EXPECT_TRUE(IsEndedBy({EncodeCallPacket(
      FrameType::kCallRelease, 1,
      EncodeCallRelease({.session = alice_session_->id(), .leases = {1}}))}));
}

// Rule S4.
TEST_F(BrokenFrameTest, AFrameWithADescriptorEndsTheSession) {
  const auto session = Connect(kAliceUid);
  const auto memory = *machine_->memory()->Make(MemoryKindWanted::kStaging,
                                                "staging", kPageBytes);

  session->SendRaw(EncodeCallPacket(FrameType::kCallOpenRead, 1,
                                    EncodeCallOpenRead(Open(*session, {1}))),
                   memory);
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(session->closed());
}

TEST_F(BrokenFrameTest, AFrameBeforeTheWelcomeEndsTheSession) {
  SessionPeer session(NewClient(kAliceUid), kSocket);

  session.SendCall(FrameType::kCallOpenRead, "");
  RunFor(absl::Milliseconds(10));

  EXPECT_TRUE(session.closed());
}

// --- Peers of other versions.

TEST_F(SessionCallsTest, AnOlderClientIsToldOfNoFrames) {
  SessionPeer old(NewClient(kAliceUid), kSocket);
  v1::ClientMessage hello = SessionPeer::Hello(catalog_.cluster);
  hello.mutable_hello()->clear_call_frames();
  old.Send(hello);
  RunFor(absl::Milliseconds(10));
  ASSERT_NE(old.welcome(), nullptr);

  EXPECT_EQ(old.welcome()->call_frames(), 0u);
  EXPECT_EQ(Read(&old, granite_, 1), Outcome::kMiss) << "gRPC stays complete";
  old.SendCall(FrameType::kCallOpenRead, EncodeCallOpenRead(Open(old, {1})));
  RunFor(absl::Milliseconds(10));
  EXPECT_TRUE(old.closed()) << "what was not agreed upon is not spoken";
}

TEST_F(SessionCallsTest, ANewerClientSpeaksOurVersion) {
  SessionPeer newer(NewClient(kAliceUid), kSocket);
  v1::ClientMessage hello = SessionPeer::Hello(catalog_.cluster);
  hello.mutable_hello()->set_call_frames(kCallFrames + 6);
  newer.Send(hello);
  RunFor(absl::Milliseconds(10));
  ASSERT_NE(newer.welcome(), nullptr);

  EXPECT_EQ(newer.welcome()->call_frames(), kCallFrames);
  EXPECT_THAT(CallOpen(&newer, Open(newer, {1})), IsOk());
}

// --- Ends.

// Rule S3.
TEST_F(SessionCallsTest, LeasesOfFramesEndWithTheSession) {
  ASSERT_EQ(Write(alice_session_.get(), granite_, 1), Outcome::kStored);
  ASSERT_OK(CallOpen(alice_session_.get(), Open(*alice_session_, {1})));
  ASSERT_OK(CallReserve(alice_session_.get(), Reserve(*alice_session_, 2)));

  alice_session_->Close();
  RunFor(absl::Milliseconds(10));

  EXPECT_EQ(node_->pool().leases, 0u);
  EXPECT_EQ(node_->pool().reserved_slots, 0u);
}

TEST_F(SessionCallsTest, AnAnswerForASessionThatHasEndedGoesNowhere) {
  catalog_.silent = true;
  CallOpenReadBody body = Open(*alice_session_, {1});
  body.name_space.bytes.fill(0x77);
  alice_session_->SendCall(FrameType::kCallOpenRead, EncodeCallOpenRead(body));
  RunFor(absl::Milliseconds(1));

  alice_session_->Close();
  RunFor(absl::Seconds(10));

  EXPECT_EQ(Status().sessions(), 0u);
}

}  // namespace
}  // namespace firnkv
