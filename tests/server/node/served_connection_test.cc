// One stream connection under peers that break the protocol, or drip.

#include "server/node/served_connection.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/server/node/stream_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::ElementsAre;

class ServedConnectionTest : public StreamFixture {};

TEST_F(ServedConnectionTest, GarbageIsRefusedAndClosed) {
  const auto peer = Connect();

  peer->SendRaw(std::string(4096, 'x'));
  RunFor(absl::Seconds(1));

  EXPECT_TRUE(peer->closed());
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(ServedConnectionTest, ALeadWithAHugeBodyIsRefusedBeforeAnythingIsTaken) {
  const auto peer = ConnectAs(alice_);
  std::string lead = EncodeLead({.type = FrameType::kRead, .request = 1});
  // Whatever the field's place: flip the lead so that its checksum is wrong,
  // then send one whose body is beyond the bound.
  lead[12] = '\xff';
  peer->SendRaw(lead);
  RunFor(absl::Seconds(1));

  EXPECT_TRUE(peer->closed());
}

TEST_F(ServedConnectionTest, AReaderThatSendsAPayloadIsRefused) {
  const auto peer = ConnectAs(alice_);

  peer->SendFrame(FrameType::kRead, 1, "x", /*payload_bytes=*/4096);
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(peer->closed());
}

TEST_F(ServedConnectionTest, ARequestThatIsNoneIsRefused) {
  const auto peer = ConnectAs(alice_);

  peer->SendFrame(FrameType::kRead, 1, "this is no read");
  RunFor(absl::Seconds(1));

  EXPECT_FALSE(peer->refusal().ok());
  EXPECT_TRUE(peer->closed());
}

TEST_F(ServedConnectionTest, AReadWithoutTimeLeftIsRefused) {
  const auto peer = ConnectAs(alice_);

  ReadBody body;
  body.header.remaining = -absl::Seconds(1);
  body.name_space = granite_.name_space;
  body.keys = {{KeyOf(0), 1}};
  peer->SendFrame(FrameType::kRead, 1, EncodeRead(body));
  RunFor(absl::Seconds(1));

  EXPECT_TRUE(peer->closed());
}

TEST_F(ServedConnectionTest, ARequestBeforeTheHelloIsRefused) {
  const auto peer = Connect();

  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ServedConnectionTest, ASecondHelloIsRefused) {
  const auto peer = ConnectAs(alice_);

  peer->SendHello(catalog_.cluster, credentials_.SessionToken(bob_, {}));
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ServedConnectionTest, AServersFrameFromAClientIsRefused) {
  const auto peer = ConnectAs(alice_);

  peer->SendFrame(FrameType::kReadEnd, 1, "");
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ServedConnectionTest, ARequestIdThatIsInUseIsRefused) {
  Store(granite_, 0, 900'000);
  const auto peer = ConnectAs(alice_);

  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ServedConnectionTest, APeerThatSaysNothingIsClosed) {
  const auto peer = Connect();

  RunFor(absl::Seconds(6));

  EXPECT_TRUE(peer->closed());
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(ServedConnectionTest, AHelloThatDripsIsClosedInTheSameTime) {
  const auto peer = Connect();
  const std::string hello =
      EncodeLead({.type = FrameType::kHello, .request = 0, .body_bytes = 200});

  for (const char byte : hello) {
    peer->SendRaw(std::string(1, byte));
    RunFor(absl::Milliseconds(300));
  }

  EXPECT_TRUE(peer->closed());
}

TEST_F(ServedConnectionTest, ABodyThatDripsIsClosed) {
  const auto peer = ConnectAs(alice_);
  peer->SendRaw(EncodeLead(
      {.type = FrameType::kRead, .request = 1, .body_bytes = 100'000}));

  for (int i = 0; i < 20; ++i) {
    peer->SendRaw("x");
    RunFor(absl::Milliseconds(500));
  }

  EXPECT_TRUE(peer->closed());
}

TEST_F(ServedConnectionTest, AnIdentifiedConnectionMayBeIdle) {
  Store(granite_, 0);
  const auto peer = ConnectAs(alice_);
  RunFor(absl::Minutes(30));

  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1), ElementsAre(Outcome::kHit));
}

}  // namespace
}  // namespace firnkv
