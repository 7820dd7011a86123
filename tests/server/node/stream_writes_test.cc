// Writes over the stream at the node's end: what lands, what is thrown away,
// and what a writer costs that lies, stalls, drips or goes away.

#include "server/node/stream_writes.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "tests/server/node/stream_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::Pair;

class StreamWritesTest : public StreamFixture {
 protected:
  static constexpr std::size_t kBytes = 100'000;

  // Blocks [from, to) of granite, of `bytes` each.
  ReserveBody Wanting(std::uint64_t from, std::uint64_t to,
                      std::size_t bytes = kBytes) {
    ReserveBody body;
    body.name_space = granite_.name_space;
    for (std::uint64_t n = from; n < to; ++n) {
      body.blocks.push_back({KeyOf(n), ChainPlace{.anchor = KeyOf(n)}, bytes});
    }
    return body;
  }
  void AwaitReserved(RawStreamPeer* peer, std::uint64_t request) {
    EXPECT_TRUE(world_.executor()->RunUntil(
        [&] { return !peer->ReservedOf(request).empty() || peer->closed(); }));
  }
  void AwaitClosed(RawStreamPeer* peer) {
    EXPECT_TRUE(world_.executor()->RunUntil([&] { return peer->closed(); }));
  }
  // A kWrite frame and the first `sent` bytes of its payload.
  void SendPart(RawStreamPeer* peer, std::uint64_t request, std::uint64_t n,
                std::size_t sent) {
    const std::vector<std::byte> content = ContentOf(n, kBytes);
    peer->SendFrame(
        FrameType::kWrite, request,
        EncodeWrite(
            {.index = 0, .key = KeyOf(n), .pieces = PieceChecksums(content)}),
        kBytes);
    peer->SendRaw(
        std::string(reinterpret_cast<const char*>(content.data()), sent));
  }
  // The stored bytes of block `n` are those of its content.
  void ExpectStored(std::uint64_t n, std::size_t bytes = kBytes) {
    const HeldRequest::Key key{KeyOf(n)};
    const PoolNamespace name_space = ToPoolNamespace(granite_);
    HeldAnswer held =
        pool_->OpenHeld({.name_space = &name_space, .keys = {&key, 1}});
    ASSERT_EQ(held.blocks[0].outcome, Outcome::kHit);
    const std::vector<std::byte> content = ContentOf(n, bytes);
    ASSERT_EQ(held.blocks[0].bytes.size(), bytes);
    EXPECT_EQ(std::memcmp(held.blocks[0].bytes.data(), content.data(), bytes),
              0);
    EXPECT_EQ(held.blocks[0].header.pieces, PieceChecksums(content));
  }
  void ExpectNothingKept() {
    RunFor(absl::Seconds(2));
    const PoolSnapshot pool = pool_->Snapshot();
    EXPECT_EQ(pool.holds, 0u);
    EXPECT_EQ(pool.reserved_slots, 0u);
    EXPECT_EQ(pool.retiring_slots, 0u);
    EXPECT_EQ(reservations_.totals().live, 0u);
    EXPECT_EQ(reservations_.totals().reserved_bytes, 0u);
  }
};

// Rule P1: the node receives the bytes itself.
TEST_F(StreamWritesTest, BytesOfAReservedBlockLandInThePool) {
  const auto peer = ConnectAs(alice_);

  peer->SendReserve(1, Wanting(0, 3));
  AwaitReserved(peer.get(), 1);
  EXPECT_THAT(
      peer->ReservedOf(1),
      ElementsAre(Outcome::kStored, Outcome::kStored, Outcome::kStored));
  for (std::uint32_t n = 0; n < 3; ++n) {
    peer->SendWrite(1, n, KeyOf(n), ContentOf(n, kBytes));
  }
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->WrittenOf(1),
              ElementsAre(Pair(0, Outcome::kStored), Pair(1, Outcome::kStored),
                          Pair(2, Outcome::kStored)));
  for (std::uint64_t n = 0; n < 3; ++n) ExpectStored(n);
  ExpectNothingKept();
}

TEST_F(StreamWritesTest, BytesMayComeAheadOfTheAnswerToTheirReservation) {
  Store(granite_, 1, kBytes);
  const auto peer = ConnectAs(alice_);

  peer->SendReserve(1, Wanting(0, 3));
  for (std::uint32_t n = 0; n < 3; ++n) {
    peer->SendWrite(1, n, KeyOf(n), ContentOf(n, kBytes));
  }
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(
      peer->ReservedOf(1),
      ElementsAre(Outcome::kStored, Outcome::kAlreadyThere, Outcome::kStored));
  // What was there already is thrown away without an answer.
  EXPECT_THAT(peer->WrittenOf(1), ElementsAre(Pair(0, Outcome::kStored),
                                              Pair(2, Outcome::kStored)));
  ExpectStored(0);
  ExpectStored(2);
  ExpectNothingKept();
}

TEST_F(StreamWritesTest, ABlockOfManyStepsLandsWhole) {
  constexpr std::size_t kLong = kMiB - 17;
  const auto peer = ConnectAs(alice_);

  peer->SendReserve(1, Wanting(0, 1, kLong));
  peer->SendWrite(1, 0, KeyOf(0), ContentOf(0, kLong));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->WrittenOf(1), ElementsAre(Pair(0, Outcome::kStored)));
  ExpectStored(0, kLong);
}

// Rules P1 and T1: what landed is compared with what the writer said before.
TEST_F(StreamWritesTest, BytesThatFailTheirChecksumAreNeverStored) {
  const auto peer = ConnectAs(alice_);
  std::vector<std::byte> content = ContentOf(0, kBytes);
  const std::vector<std::uint32_t> pieces = PieceChecksums(content);
  content[70'000] ^= std::byte{1};  // In the second piece.

  peer->SendReserve(1, Wanting(0, 1));
  peer->SendFrame(FrameType::kWrite, 1,
                  EncodeWrite({.index = 0, .key = KeyOf(0), .pieces = pieces}),
                  kBytes);
  peer->SendRaw(std::string(reinterpret_cast<const char*>(content.data()),
                            content.size()));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->WrittenOf(1), ElementsAre(Pair(0, Outcome::kCorrupt)));
  EXPECT_FALSE(Holds(granite_, 0));
  ExpectNothingKept();
}

TEST_F(StreamWritesTest, BytesUnderAnotherKeyOrLengthEndTheConnection) {
  struct Lie {
    BlockKey key;
    std::size_t bytes;
    std::uint32_t index;
  };
  for (const Lie& lie :
       {Lie{KeyOf(9), kBytes, 0}, Lie{KeyOf(0), kBytes - 1, 0},
        Lie{KeyOf(0), kBytes + 1, 0}, Lie{KeyOf(0), kBytes, 1}}) {
    const auto peer = ConnectAs(alice_);
    peer->SendReserve(1, Wanting(0, 1));
    AwaitReserved(peer.get(), 1);

    peer->SendWrite(1, lie.index, lie.key, ContentOf(0, lie.bytes));
    AwaitClosed(peer.get());

    EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_FALSE(Holds(granite_, 0));
    EXPECT_FALSE(Holds(granite_, 9));
  }
  ExpectNothingKept();
}

TEST_F(StreamWritesTest, BytesThatNothingWasReservedForEndTheConnection) {
  const auto peer = ConnectAs(alice_);

  peer->SendWrite(7, 0, KeyOf(0), ContentOf(0, kBytes));
  AwaitClosed(peer.get());

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(StreamWritesTest, TheFirstOfTwoWritersWins) {
  const auto one = ConnectAs(alice_);
  const auto two = ConnectAs(alice_);
  one->SendReserve(1, Wanting(0, 1));
  two->SendReserve(1, Wanting(0, 1));
  AwaitReserved(one.get(), 1);
  AwaitReserved(two.get(), 1);

  two->SendWrite(1, 0, KeyOf(0), ContentOf(0, kBytes));
  AwaitEnd(two.get(), 1);
  one->SendWrite(1, 0, KeyOf(0), ContentOf(0, kBytes));
  AwaitEnd(one.get(), 1);

  EXPECT_THAT(two->WrittenOf(1), ElementsAre(Pair(0, Outcome::kStored)));
  EXPECT_THAT(one->WrittenOf(1), ElementsAre(Pair(0, Outcome::kAlreadyThere)));
  ExpectNothingKept();
}

// Rule S5: a block is stored once however often its bytes come.
TEST_F(StreamWritesTest, BytesThatComeTwiceAreThrownAwayTheSecondTime) {
  const auto peer = ConnectAs(alice_);
  peer->SendReserve(1, Wanting(0, 2));

  peer->SendWrite(1, 0, KeyOf(0), ContentOf(0, kBytes));
  peer->SendWrite(1, 0, KeyOf(0), ContentOf(5, kBytes));
  peer->SendWrite(1, 1, KeyOf(1), ContentOf(1, kBytes));
  AwaitEnd(peer.get(), 1);
  peer->SendWrite(1, 1, KeyOf(1), ContentOf(5, kBytes));
  peer->SendReserve(2, Wanting(0, 2));
  AwaitEnd(peer.get(), 2);

  EXPECT_THAT(peer->WrittenOf(1), ElementsAre(Pair(0, Outcome::kStored),
                                              Pair(1, Outcome::kStored)));
  EXPECT_THAT(peer->ReservedOf(2),
              ElementsAre(Outcome::kAlreadyThere, Outcome::kAlreadyThere));
  ExpectStored(0);
  ExpectStored(1);
}

// Rule S7: bytes of a reservation that has ended are not stored.
TEST_F(StreamWritesTest, BytesThatComeAfterTheReservationsEndAreThrownAway) {
  const auto peer = ConnectAs(alice_);
  ReserveBody body = Wanting(0, 1);
  body.reserve_for = absl::Milliseconds(100);
  peer->SendReserve(1, body);
  AwaitReserved(peer.get(), 1);

  RunFor(absl::Milliseconds(200));
  peer->SendWrite(1, 0, KeyOf(0), ContentOf(0, kBytes));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->WrittenOf(1),
              ElementsAre(Pair(0, Outcome::kReservationOver)));
  EXPECT_FALSE(Holds(granite_, 0));
  ExpectNothingKept();
}

// Rules S7 and P8: the slot is dead from the reservation's end, and free only
// once nothing lands in it any more.
TEST_F(StreamWritesTest, AReservationThatEndsWhileBytesArriveStoresNothing) {
  const auto peer = ConnectAs(alice_);
  ReserveBody body = Wanting(0, 1);
  body.reserve_for = absl::Milliseconds(500);
  peer->SendReserve(1, body);
  AwaitReserved(peer.get(), 1);
  SendPart(peer.get(), 1, 0, 50'000);
  RunFor(absl::Seconds(1));
  EXPECT_EQ(pool_->Snapshot().holds, 1u);
  EXPECT_EQ(pool_->Snapshot().retiring_slots, 1u);

  const std::vector<std::byte> content = ContentOf(0, kBytes);
  peer->SendRaw(std::string(
      reinterpret_cast<const char*>(content.data()) + 50'000, kBytes - 50'000));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->WrittenOf(1),
              ElementsAre(Pair(0, Outcome::kReservationOver)));
  EXPECT_FALSE(Holds(granite_, 0));
  ExpectNothingKept();
}

// Rule C2: an older clear epoch is not committed.
TEST_F(StreamWritesTest, AClearBetweenReservationAndBytesRefusesThem) {
  const auto peer = ConnectAs(alice_);
  peer->SendReserve(1, Wanting(0, 1));
  AwaitReserved(peer.get(), 1);

  pool_->SetClearEpoch(
      granite_.name_space,
      ClearEpoch{static_cast<std::uint64_t>(granite_.clear_epoch) + 1});
  peer->SendWrite(1, 0, KeyOf(0), ContentOf(0, kBytes));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->WrittenOf(1), ElementsAre(Pair(0, Outcome::kCleared)));
  EXPECT_FALSE(Holds(granite_, 0));
}

// Rule S3: what a connection reserved ends with it, at once.
TEST_F(StreamWritesTest, TheEndOfAConnectionEndsItsReservations) {
  const auto peer = ConnectAs(alice_);
  peer->SendReserve(1, Wanting(0, 3));
  AwaitReserved(peer.get(), 1);
  EXPECT_EQ(registry_.size(), 1u);
  EXPECT_EQ(pool_->Snapshot().reserved_slots, 3u);

  peer->Close();
  RunFor(absl::Milliseconds(100));

  EXPECT_EQ(registry_.size(), 0u);
  ExpectNothingKept();
}

TEST_F(StreamWritesTest, AConnectionCutInABlockGivesItsSlotBack) {
  const auto peer = ConnectAs(alice_);
  peer->SendReserve(1, Wanting(0, 1));
  AwaitReserved(peer.get(), 1);
  SendPart(peer.get(), 1, 0, 50'000);
  RunFor(absl::Milliseconds(10));
  EXPECT_EQ(pool_->Snapshot().holds, 1u);

  peer->Close();

  ExpectNothingKept();
  EXPECT_FALSE(Holds(granite_, 0));
}

// Rule T3.
TEST_F(StreamWritesTest, AWriterThatStallsInABlockLosesItsConnection) {
  const auto peer = ConnectAs(alice_);
  ReserveBody body = Wanting(0, 1);
  body.header.remaining = absl::Seconds(30);
  peer->SendReserve(1, body);
  AwaitReserved(peer.get(), 1);
  const BootTime began = Now();

  SendPart(peer.get(), 1, 0, 50'000);
  AwaitClosed(peer.get());

  EXPECT_LE(Now() - began, absl::Seconds(6));
  ExpectNothingKept();
}

// Rule T3: every step in time is not enough.
TEST_F(StreamWritesTest, AWriterThatDripsLosesItsConnectionAtItsDeadline) {
  constexpr std::size_t kLong = kMiB;
  StreamServer::Options options;
  options.connection.writes.step_bytes = 64 * kKiB;
  Serve(options);
  const auto peer = ConnectAs(alice_);
  ReserveBody body = Wanting(0, 1, kLong);
  body.header.remaining = absl::Seconds(4);
  peer->SendReserve(1, body);
  AwaitReserved(peer.get(), 1);
  const BootTime began = Now();
  const std::vector<std::byte> content = ContentOf(0, kLong);
  peer->SendFrame(
      FrameType::kWrite, 1,
      EncodeWrite(
          {.index = 0, .key = KeyOf(0), .pieces = PieceChecksums(content)}),
      kLong);

  for (std::size_t sent = 0; sent < kLong && !peer->closed();
       sent += 64 * kKiB) {
    peer->SendRaw(std::string(
        reinterpret_cast<const char*>(content.data()) + sent, 64 * kKiB));
    RunFor(absl::Seconds(1));
  }

  EXPECT_TRUE(peer->closed());
  EXPECT_LE(Now() - began, absl::Seconds(7));
  ExpectNothingKept();
}

TEST_F(StreamWritesTest, ACancelledWriteGivesBackWhatHasNotCome) {
  const auto peer = ConnectAs(alice_);
  peer->SendReserve(1, Wanting(0, 3));
  peer->SendWrite(1, 0, KeyOf(0), ContentOf(0, kBytes));
  peer->SendFrame(FrameType::kCancel, 1, {});
  AwaitEnd(peer.get(), 1);

  EXPECT_TRUE(Holds(granite_, 0));
  ExpectNothingKept();
}

TEST_F(StreamWritesTest, AReservationBeyondTheCapsIsCongested) {
  const auto peer = ConnectAs(alice_);

  // 4 MiB a session.
  peer->SendReserve(1, Wanting(0, 6, kMiB));
  AwaitReserved(peer.get(), 1);

  EXPECT_THAT(
      peer->ReservedOf(1),
      ElementsAre(Outcome::kStored, Outcome::kStored, Outcome::kStored,
                  Outcome::kStored, Outcome::kCongested, Outcome::kCongested));
}

TEST_F(StreamWritesTest, TooManyWritesOfOneConnectionAreCongested) {
  StreamServer::Options options;
  options.connection.writes.max_writes = 2;
  Serve(options);
  const auto peer = ConnectAs(alice_);

  for (std::uint64_t n = 0; n < 3; ++n) {
    peer->SendReserve(n + 1, Wanting(n, n + 1));
  }
  AwaitEnd(peer.get(), 3);
  EXPECT_THAT(peer->ReservedOf(3), ElementsAre(Outcome::kCongested));

  // Those whose time is over make room, whatever their writer says.
  RunFor(absl::Seconds(6));
  peer->SendReserve(4, Wanting(7, 8));
  AwaitReserved(peer.get(), 4);
  EXPECT_THAT(peer->ReservedOf(4), ElementsAre(Outcome::kStored));
}

// Rule S3: what a peer costs is bounded, also what it lets nobody tell it.
TEST_F(StreamWritesTest,
       APeerThatOnlyReservesIsHeardUntilItsBoundAndNoFurther) {
  constexpr std::uint64_t kRequests = 8'000;
  const auto peer = ConnectAs(alice_);
  peer->StopReading();
  RunFor(absl::Milliseconds(1));
  for (std::uint64_t n = 1; n <= kRequests; ++n) {
    peer->SendReserve(n, Wanting(0, 1));
  }
  RunFor(absl::Seconds(2));

  EXPECT_GT(peer->unsent(), 0u);
  ASSERT_FALSE(peer->closed());

  peer->ReadOn();
  AwaitEnd(peer.get(), kRequests);
  EXPECT_EQ(peer->ReservedOf(kRequests).size(), 1u);
}

// Rule C1, and who may not see a namespace does not learn whether it is there.
TEST_F(StreamWritesTest, AnotherTenantsNamespaceIsDenied) {
  const auto peer = ConnectAs(bob_);

  peer->SendReserve(1, Wanting(0, 1));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->ReservedOf(1), ElementsAre(Outcome::kDenied));
}

TEST_F(StreamWritesTest, ANodesTokenWritesNothing) {
  const auto peer = Connect();
  peer->SendHello(catalog_.cluster, TokenOf(Role::kNode, catalog_.cluster));

  peer->SendReserve(1, Wanting(0, 1));
  AwaitClosed(peer.get());

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(StreamWritesTest, WaitingForFlashIsRefusedWithItsReason) {
  const auto peer = ConnectAs(alice_);
  ReserveBody body = Wanting(0, 1);
  body.wait_for = 2;

  peer->SendReserve(1, body);
  AwaitEnd(peer.get(), 1);

  ASSERT_EQ(peer->got.size(), 3u);
  const auto reserved = DecodeReserved(peer->got[1].body);
  ASSERT_OK(reserved);
  EXPECT_THAT(reserved->status, StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(StreamWritesTest, ARequestIdOfBeforeEndsTheConnection) {
  const auto peer = ConnectAs(alice_);
  peer->SendReserve(5, Wanting(0, 1));

  peer->SendReserve(5, Wanting(1, 2));
  AwaitClosed(peer.get());

  EXPECT_THAT(peer->refusal(), StatusIs(absl::StatusCode::kInvalidArgument));
  ExpectNothingKept();
}

// Rule S8: reads first, but a writer is not starved either.
TEST_F(StreamWritesTest, BytesWaitForReadsAndNotForEver) {
  for (std::uint64_t n = 10; n < 14; ++n) Store(granite_, n, kMiB);
  const auto reader = ConnectAs(alice_);
  const auto peer = ConnectAs(alice_);
  reader->StopReading();
  reader->SendRead(1, granite_.name_space, Keys(10, 14));
  RunFor(absl::Milliseconds(10));
  ASSERT_TRUE(server_->busy());
  const BootTime began = Now();

  peer->SendReserve(1, Wanting(0, 1));
  peer->SendWrite(1, 0, KeyOf(0), ContentOf(0, kBytes));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->WrittenOf(1), ElementsAre(Pair(0, Outcome::kStored)));
  EXPECT_GE(Now() - began, absl::Milliseconds(5));
  EXPECT_LE(Now() - began, absl::Milliseconds(200));
}

TEST_F(StreamWritesTest, ANodeThatDrainsTakesNoMore) {
  const auto peer = ConnectAs(alice_);
  peer->SendReserve(1, Wanting(0, 1));
  AwaitReserved(peer.get(), 1);

  writes_.StopReserving();
  peer->SendReserve(2, Wanting(1, 2));
  AwaitEnd(peer.get(), 2);
  peer->SendWrite(1, 0, KeyOf(0), ContentOf(0, kBytes));
  AwaitEnd(peer.get(), 1);

  EXPECT_THAT(peer->ReservedOf(2), ElementsAre(Outcome::kUnavailable));
  // What is reserved may be committed.
  EXPECT_THAT(peer->WrittenOf(1), ElementsAre(Pair(0, Outcome::kStored)));
}

}  // namespace
}  // namespace firnkv
