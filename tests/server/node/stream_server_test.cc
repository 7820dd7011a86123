// Reads over the stream: what is answered, what is refused, and what a hostile
// or slow peer costs.

#include "server/node/stream_server.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "proto/base/text.h"
#include "tests/server/node/stream_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::ElementsAre;

class StreamServerTest : public StreamFixture {};

TEST_F(StreamServerTest, AReadBringsEveryBlockInOrderAndThenItsEnd) {
  for (std::uint64_t n = 0; n < 5; ++n) Store(granite_, n, 100'000 + n);
  const auto peer = ConnectAs(alice_);

  peer->SendRead(7, granite_.name_space, Keys(0, 5));
  AwaitEnd(peer.get(), 7);

  ASSERT_EQ(peer->got.size(), 7u);  // Hello, five blocks, end.
  for (std::uint64_t n = 0; n < 5; ++n) {
    const auto body = DecodeBlock(peer->got[n + 1].body);
    ASSERT_OK(body);
    const std::vector<std::byte> content = ContentOf(n, 100'000 + n);
    const std::string& payload = peer->got[n + 1].payload;
    EXPECT_EQ(body->outcome, Outcome::kHit);
    EXPECT_EQ(body->header.block.key, KeyOf(n));
    ASSERT_EQ(payload.size(), content.size());
    EXPECT_EQ(std::memcmp(payload.data(), content.data(), content.size()), 0);
    // Rule T1: the checksums stand ahead of the payload, in the body.
    EXPECT_EQ(body->header.pieces, PieceChecksums(content));
  }
}

TEST_F(StreamServerTest, TheHelloSaysWhichRunOfWhichNodeAnswers) {
  const auto peer = ConnectAs(alice_);

  const auto hello = DecodeHello(peer->got.at(0).body);

  ASSERT_OK(hello);
  EXPECT_EQ(hello->node, state_.memory().node);
  EXPECT_EQ(hello->epoch, NodeEpoch{0xe90c});
  EXPECT_EQ(hello->token, "");
}

TEST_F(StreamServerTest, ALeadingRunEndsAtTheFirstKeyThatIsNotThere) {
  Store(granite_, 0);
  Store(granite_, 2);
  const auto peer = ConnectAs(alice_);

  peer->SendRead(1, granite_.name_space, Keys(0, 4));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1),
              ElementsAre(Outcome::kHit, Outcome::kMiss, Outcome::kSkipped,
                          Outcome::kSkipped));
}

TEST_F(StreamServerTest, EveryBlockIsTriedWhereTheReaderWantsThat) {
  Store(granite_, 0);
  Store(granite_, 2);
  const auto peer = ConnectAs(alice_);

  ReadBody body;
  body.leading_run = false;
  peer->SendRead(1, granite_.name_space, Keys(0, 4), body);
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1), ElementsAre(Outcome::kHit, Outcome::kMiss,
                                               Outcome::kHit, Outcome::kMiss));
}

TEST_F(StreamServerTest, AReadOfThousandsOfBlocksIsAnsweredWhole) {
  for (std::uint64_t n = 0; n < 1000; ++n) Store(granite_, n);
  const auto peer = ConnectAs(alice_);

  peer->SendRead(1, granite_.name_space, Keys(0, 1001));
  AwaitEnd(peer.get(), 1);

  const std::vector<Outcome> outcomes = peer->OutcomesOf(1);
  ASSERT_EQ(outcomes.size(), 1001u);
  EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), Outcome::kHit), 1000);
  EXPECT_EQ(outcomes.back(), Outcome::kMiss);
}

TEST_F(StreamServerTest, ABlockLongerThanItsRoomIsWrongSize) {
  Store(granite_, 0, 8192);
  const auto peer = ConnectAs(alice_);

  ReadBody body;
  body.keys = {{KeyOf(0), 4096}};
  peer->SendRead(1, granite_.name_space, {}, body);
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1), ElementsAre(Outcome::kWrongSize));
}

TEST_F(StreamServerTest, PipelinedReadsAreAllAnswered) {
  for (std::uint64_t n = 0; n < 50; ++n) Store(granite_, n);
  const auto peer = ConnectAs(alice_);

  for (std::uint64_t n = 0; n < 50; ++n) {
    peer->SendRead(n + 1, granite_.name_space, {KeyOf(n)});
  }

  for (std::uint64_t n = 0; n < 50; ++n) {
    AwaitEnd(peer.get(), n + 1);
    EXPECT_THAT(peer->OutcomesOf(n + 1), ElementsAre(Outcome::kHit));
  }
}

// --- Who may read what.

TEST_F(StreamServerTest, AnotherTenantsNamespaceIsDeniedForEveryKey) {
  Store(granite_, 0);
  const auto peer = ConnectAs(bob_);

  peer->SendRead(1, granite_.name_space, Keys(0, 2));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1),
              ElementsAre(Outcome::kDenied, Outcome::kDenied));
}

TEST_F(StreamServerTest, ANamespaceThatDoesNotExistIsDeniedTheSameWay) {
  const auto peer = ConnectAs(bob_);
  SeededRandom random(3);

  peer->SendRead(1, NamespaceId::Make(&random), Keys(0, 2));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1),
              ElementsAre(Outcome::kDenied, Outcome::kDenied));
}

TEST_F(StreamServerTest, ANodeReadsForItsOwnTenants) {
  Store(granite_, 0);
  const auto peer = Connect();
  peer->SendHello(catalog_.cluster, credentials_.NodeToken());

  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1), ElementsAre(Outcome::kHit));
}

// Rule P12: a report makes the node look for itself.
TEST_F(StreamServerTest, ARemoteReportAboutASoundCopyEvictsNothing) {
  const Generation generation = Store(granite_, 0);
  const auto peer = ConnectAs(alice_);

  for (int i = 0; i < 100; ++i) {
    peer->SendFrame(
        FrameType::kFoundCorrupt, 0,
        EncodeFoundCorrupt({.block = {granite_.name_space, KeyOf(0)},
                            .generation = generation}));
  }
  RunFor(absl::Seconds(1));

  EXPECT_TRUE(Holds(granite_, 0));
  EXPECT_FALSE(peer->closed());
}

// Rule P12.
TEST_F(StreamServerTest, ARemoteReportAboutACorruptCopyIsolatesIt) {
  const Generation generation = Store(granite_, 0);
  SeededRandom random(5);
  for (int i = 0; i < 2000; ++i) node_->memory()->FlipOneBit(&random);
  const auto peer = ConnectAs(alice_);

  peer->SendFrame(FrameType::kFoundCorrupt, 0,
                  EncodeFoundCorrupt({.block = {granite_.name_space, KeyOf(0)},
                                      .generation = generation}));
  RunFor(absl::Seconds(1));

  EXPECT_FALSE(Holds(granite_, 0));
  EXPECT_FALSE(peer->closed());
}

// Rule C2.
TEST_F(StreamServerTest, AReaderThatHasSeenAClearMakesTheNodeAskTheCatalog) {
  Store(granite_, 0);
  const auto peer = ConnectAs(alice_);
  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  AwaitEnd(peer.get(), 1);
  catalog_.Clear(granite_.name_space);

  ReadBody body;
  body.clear_epoch = ClearEpoch{2};
  peer->SendRead(2, granite_.name_space, Keys(0, 1), body);
  AwaitEnd(peer.get(), 2);

  EXPECT_THAT(peer->OutcomesOf(1), ElementsAre(Outcome::kHit));
  EXPECT_THAT(peer->OutcomesOf(2), ElementsAre(Outcome::kMiss));
}

// Rule C2.
TEST_F(StreamServerTest, WithTheCatalogAwayAnUnseenClearIsUnavailable) {
  Store(granite_, 0);
  namespaces_.Learn({granite_});
  const auto peer = ConnectAs(alice_);
  catalog_.silent = true;

  ReadBody body;
  body.clear_epoch = ClearEpoch{2};
  peer->SendRead(1, granite_.name_space, Keys(0, 1), body);
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1), ElementsAre(Outcome::kUnavailable));
}

TEST_F(StreamServerTest, WithoutATokenNothingIsServed) {
  const auto peer = Connect();

  peer->SendHello(catalog_.cluster, "");
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_TRUE(peer->closed());
}

TEST_F(StreamServerTest, ATokenOfAnotherClusterIsRefused) {
  SeededRandom random(9);
  const auto peer = Connect();

  peer->SendHello(catalog_.cluster,
                  TokenOf(Role::kTenant, ClusterId::Make(&random)));
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST_F(StreamServerTest, APeerOfAnotherClusterIsRefusedWithTheReason) {
  SeededRandom random(9);
  const auto peer = Connect();

  peer->SendHello(ClusterId::Make(&random),
                  TokenOf(Role::kTenant, catalog_.cluster));
  RunFor(absl::Seconds(1));

  EXPECT_FALSE(peer->refusal().ok());
  EXPECT_TRUE(peer->closed());
}

TEST_F(StreamServerTest, AnAdministratorReadsNoBlocks) {
  const auto peer = Connect();

  peer->SendHello(catalog_.cluster, TokenOf(Role::kAdmin, catalog_.cluster));
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(StreamServerTest, ATokenThatExpiresEndsTheReading) {
  Store(granite_, 0);
  const auto peer = ConnectAs(alice_);
  RunFor(kTokenLife + 2 * kTokenSkew);

  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  RunFor(absl::Seconds(1));

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kUnauthenticated));
}

// --- Slow readers.

// Rule P8: a block that leaves the pool while its bytes are on the way.
TEST_F(StreamServerTest, BytesBeingSentStayWhatTheyAreUntilTheyHaveLeft) {
  constexpr std::size_t kBytes =
      900'000;  // More than the stream takes at once.
  Store(granite_, 0, kBytes);
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  RunFor(absl::Milliseconds(50));
  ASSERT_EQ(pool_->Snapshot().holds, 1u);

  const BlockKey key = KeyOf(0);
  pool_->Remove(granite_.name_space, {&key, 1});
  for (std::uint64_t n = 100; n < 110; ++n) Store(granite_, n, kBytes);
  peer->ReadOn();
  AwaitEnd(peer.get(), 1);

  ASSERT_THAT(peer->OutcomesOf(1), ElementsAre(Outcome::kHit));
  const std::vector<std::byte> content = ContentOf(0, kBytes);
  EXPECT_EQ(std::memcmp(peer->got[1].payload.data(), content.data(), kBytes),
            0);
  EXPECT_EQ(pool_->Snapshot().holds, 0u);
}

// Rule T3.
TEST_F(StreamServerTest, AReaderThatStopsReadingLosesItsConnectionAndTheHold) {
  Store(granite_, 0, 900'000);
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  ReadBody body;
  body.header.remaining = absl::Seconds(2);
  peer->SendRead(1, granite_.name_space, Keys(0, 1), body);
  RunFor(absl::Seconds(2));
  ASSERT_EQ(pool_->Snapshot().holds, 1u);

  RunFor(absl::Seconds(1.5));

  EXPECT_EQ(pool_->Snapshot().holds, 0u);
  EXPECT_EQ(server_->connections(), 0u);
}

// Rule T3: whatever it asked for.
TEST_F(StreamServerTest, NoResponseLastsLongerThanTheNodeAllows) {
  Store(granite_, 0, 900'000);
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  ReadBody body;
  body.header.remaining = absl::Minutes(2);
  peer->SendRead(1, granite_.name_space, Keys(0, 1), body);

  RunFor(absl::Seconds(32));

  EXPECT_EQ(pool_->Snapshot().holds, 0u);
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(StreamServerTest, KeysWhoseTurnComesAfterTheDeadlineAreTimedOut) {
  for (std::uint64_t n = 0; n < 4; ++n) Store(granite_, n, 900'000);
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  ReadBody body;
  body.header.remaining = absl::Milliseconds(500);
  peer->SendRead(1, granite_.name_space, Keys(0, 4), body);
  RunFor(absl::Seconds(1));
  peer->ReadOn();
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->OutcomesOf(1),
              ElementsAre(Outcome::kHit, Outcome::kTimedOut, Outcome::kTimedOut,
                          Outcome::kTimedOut));
}

TEST_F(StreamServerTest, ACancelledReadSendsNoMoreThanItHasBegun) {
  for (std::uint64_t n = 0; n < 8; ++n) Store(granite_, n, 900'000);
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  peer->SendRead(1, granite_.name_space, Keys(0, 8));
  RunFor(absl::Milliseconds(50));
  peer->SendFrame(FrameType::kCancel, 1, "");
  RunFor(absl::Milliseconds(50));
  peer->ReadOn();
  AwaitEnd(peer.get(), 1);

  EXPECT_LT(peer->OutcomesOf(1).size(), 3u);
  EXPECT_FALSE(peer->closed());
}

TEST_F(StreamServerTest, APeerThatOnlyAsksIsHeardUntilItsBoundAndNoFurther) {
  Store(granite_, 0, 900'000);
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  for (std::uint64_t n = 1; n <= 200; ++n) {
    peer->SendRead(n, granite_.name_space, Keys(0, 1));
  }
  RunFor(absl::Seconds(1));

  EXPECT_LE(server_->reads_in_flight(), 16);

  peer->ReadOn();
  AwaitEnd(peer.get(), 200);
  EXPECT_THAT(peer->OutcomesOf(200), ElementsAre(Outcome::kHit));
}

TEST_F(StreamServerTest, APeerThatGoesAwayInTheMiddleLeavesNothingBehind) {
  Store(granite_, 0, 900'000);
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  RunFor(absl::Milliseconds(50));
  ASSERT_EQ(pool_->Snapshot().holds, 1u);

  peer->Close();
  RunFor(absl::Seconds(1));

  EXPECT_EQ(pool_->Snapshot().holds, 0u);
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_FALSE(server_->busy());
}

TEST_F(StreamServerTest, ANodeThatClosesEndsItsSends) {
  Store(granite_, 0, 900'000);
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  peer->SendRead(1, granite_.name_space, Keys(0, 1));
  RunFor(absl::Milliseconds(50));

  server_->Close();

  EXPECT_EQ(pool_->Snapshot().holds, 0u);
}

// --- Caps.

TEST_F(StreamServerTest, SilentConnectionsCannotKeepOthersOut) {
  Serve({.max_unidentified = 4});
  std::vector<std::unique_ptr<RawStreamPeer>> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<RawStreamPeer>(client_, kAddress));
  }
  RunFor(absl::Seconds(1));
  EXPECT_LE(server_->connections(), 4u);

  // Also while they are there: whoever speaks is heard.
  const auto at_once = ConnectAs(alice_);
  EXPECT_EQ(at_once->got.size(), 1u);
  EXPECT_FALSE(at_once->closed());

  RunFor(absl::Seconds(6));

  const auto peer = ConnectAs(alice_);
  EXPECT_EQ(peer->got.size(), 1u);
  EXPECT_FALSE(at_once->closed());
}

TEST_F(StreamServerTest, OneTenantCannotTakeAllConnections) {
  Serve({.max_connections_a_tenant = 2});
  const auto first = ConnectAs(alice_);
  const auto second = ConnectAs(alice_);

  const auto third = ConnectAs(alice_);
  const auto other = ConnectAs(bob_);
  RunFor(absl::Seconds(1));

  EXPECT_THAT(third->refusal(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(other->refusal());
  EXPECT_EQ(server_->connections(), 3u);
}

}  // namespace
}  // namespace firnkv
