// Clients of other versions at this node: an SDK is as old as its engine, or
// newer than its node.

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "proto/base/request.h"
#include "tests/server/node/whole_node.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::HasSubstr;

struct Range {
  std::uint32_t oldest;
  std::uint32_t newest;
};
constexpr Range kOlder = {kOldestProtocolVersion, kOldestProtocolVersion};
constexpr Range kNewer = {kOldestProtocolVersion, kProtocolVersion + 6};
constexpr Range kForeign = {kProtocolVersion + 4, kProtocolVersion + 6};

class VersionsTest : public WholeNodeTest {
 protected:
  VersionsTest() { StartNode(); }
  ~VersionsTest() override { StopNode(); }

  std::unique_ptr<SessionPeer> SayHello(Range range) {
    auto peer = std::make_unique<SessionPeer>(NewClient(kAliceUid), kSocket);
    v1::ClientMessage hello = SessionPeer::Hello(catalog_.cluster);
    v1::Handshake& handshake = *hello.mutable_hello()->mutable_handshake();
    handshake.set_oldest_protocol(range.oldest);
    handshake.set_newest_protocol(range.newest);
    // What only a newer node would know: field 900.
    EXPECT_TRUE(hello.mutable_hello()->MergeFromString("\xa0\x38\x07"));
    peer->Send(hello);
    RunFor(absl::Milliseconds(10));
    return peer;
  }
  std::unique_ptr<RawStreamPeer> SayStreamHello(Range range) {
    auto peer = std::make_unique<RawStreamPeer>(NewClient(kAliceUid), kStream);
    EXPECT_TRUE(world_.executor()->RunUntil([&] { return peer->connected(); }));
    HelloBody hello;
    hello.handshake = {.oldest_protocol = range.oldest,
                       .newest_protocol = range.newest,
                       .cluster = catalog_.cluster,
                       .test_vector = HandshakeTestVector()};
    hello.token = TokenOf(Role::kTenant, alice_);
    peer->SendFrame(FrameType::kHello, 0, EncodeHello(hello));
    RunFor(absl::Milliseconds(10));
    return peer;
  }
  absl::StatusOr<v1::ConnectResponse> CallConnect(Range range) {
    v1::ConnectRequest request;
    ToProto(Handshake{.oldest_protocol = range.oldest,
                      .newest_protocol = range.newest,
                      .cluster = catalog_.cluster,
                      .test_vector = HandshakeTestVector()},
            request.mutable_handshake());
    return Call<v1::ConnectResponse>("Connect", request);
  }
};

TEST_F(VersionsTest, SessionsAgreeOnTheHighestCommonVersion) {
  const auto older = SayHello(kOlder);
  const auto newer = SayHello(kNewer);

  ASSERT_NE(older->welcome(), nullptr);
  ASSERT_NE(newer->welcome(), nullptr);
  EXPECT_EQ(older->welcome()->agreed_protocol(), kOldestProtocolVersion);
  EXPECT_EQ(newer->welcome()->agreed_protocol(), kProtocolVersion);
  for (const auto* session : {&older, &newer}) {
    EXPECT_EQ(Write(session->get(), granite_, 1),
              session == &older ? Outcome::kStored : Outcome::kAlreadyThere);
    EXPECT_EQ(Read(session->get(), granite_, 1), Outcome::kHit);
  }
}

TEST_F(VersionsTest, ASessionWithoutACommonVersionIsRefusedWithBothRanges) {
  const auto foreign = SayHello(kForeign);

  ASSERT_NE(foreign->refused(), nullptr);
  EXPECT_EQ(foreign->refused()->code(),
            static_cast<std::uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(foreign->refused()->reason(),
              AllOf(HasSubstr(std::to_string(kForeign.oldest)),
                    HasSubstr(std::to_string(kProtocolVersion))));
  EXPECT_TRUE(foreign->closed());
}

TEST_F(VersionsTest, StreamsOfOlderAndNewerClientsAreServed) {
  for (const Range range : {kOlder, kNewer}) {
    const auto peer = SayStreamHello(range);

    peer->SendRead(1, granite_.name_space, {KeyOf(1)});
    RunFor(absl::Milliseconds(10));

    EXPECT_EQ(peer->OutcomesOf(1), std::vector<Outcome>{Outcome::kMiss});
  }
}

TEST_F(VersionsTest, AStreamWithoutACommonVersionIsRefused) {
  const auto peer = SayStreamHello(kForeign);

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(VersionsTest, ControlConnectionsAgreeAsSessionsDo) {
  const auto older = CallConnect(kOlder);
  const auto newer = CallConnect(kNewer);

  ASSERT_OK(older);
  ASSERT_OK(newer);
  EXPECT_EQ(older->agreed_protocol(), kOldestProtocolVersion);
  EXPECT_EQ(newer->agreed_protocol(), kProtocolVersion);
  EXPECT_THAT(CallConnect(kForeign),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(VersionsTest, ARequestOfAVersionThatIsNotSpokenIsRefused) {
  const auto session = Connect(kAliceUid);
  v1::OpenReadRequest request = OpenOf(session->id(), granite_, 1);
  request.mutable_header()->set_protocol(kProtocolVersion + 1);

  EXPECT_THAT(Call<v1::OpenReadResponse>("OpenRead", request),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace firnkv
