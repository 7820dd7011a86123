// Calls of a local session as frames. Their bytes are checked in tests/format.

#include "proto/base/session_frame.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/frame_body.h"
#include "proto/base/limits.h"
#include "tests/proto/broken_bytes.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(CallPacket, ComesBackAsItWas) {
  const std::string packet =
      EncodeCallPacket(FrameType::kCallOpenRead, 77, SealBody("a body"));

  ASSERT_TRUE(BeginsFrame(packet));
  ASSERT_OK_AND_ASSIGN(const CallFrame frame, DecodeCallPacket(packet));
  EXPECT_EQ(frame.type, FrameType::kCallOpenRead);
  EXPECT_EQ(frame.request, 77u);
  EXPECT_THAT(OpenBody(frame.body), IsOkAndHolds("a body"));
}

TEST(CallPacket, MoreOrLessThanOneFrameIsRefused) {
  const std::string packet =
      EncodeCallPacket(FrameType::kCallRelease, 1, SealBody("a body"));

  for (std::size_t size = 0; size < packet.size(); ++size) {
    EXPECT_THAT(DecodeCallPacket(std::string_view(packet).substr(0, size)),
                StatusIs(kInvalid));
  }
  EXPECT_THAT(DecodeCallPacket(packet + '\0'), StatusIs(kInvalid));
  EXPECT_THAT(DecodeCallPacket(packet + packet), StatusIs(kInvalid));
}

TEST(CallPacket, FramesOfTheStreamAreNoCalls) {
  for (const FrameType type :
       {FrameType::kHello, FrameType::kRead, FrameType::kFoundCorrupt}) {
    EXPECT_THAT(DecodeCallPacket(EncodeCallPacket(type, 1, "")),
                StatusIs(kInvalid));
  }
}

TEST(CallPacket, NoMessageOfProtobufBeginsAsAFrameDoes) {
  // A tag's low three bits are its wire type; 6 and 7 are none.
  const std::string lead = EncodeLead({.type = FrameType::kCallOpenRead});

  EXPECT_EQ(lead[0] & 7, 6);
  EXPECT_FALSE(BeginsFrame(lead.substr(0, 3)));
}

TEST(CallOpenRead, ComesBackAsItWas) {
  const CallOpenReadBody sample = SampleCallOpenRead();

  ASSERT_OK_AND_ASSIGN(const CallOpenReadBody body,
                       DecodeCallOpenRead(EncodeCallOpenRead(sample)));

  EXPECT_EQ(body.header.remaining, sample.header.remaining);
  EXPECT_EQ(body.header.session, sample.header.session);
  EXPECT_EQ(body.name_space, sample.name_space);
  EXPECT_EQ(body.clear_epoch, sample.clear_epoch);
  EXPECT_EQ(body.leading_run, sample.leading_run);
  EXPECT_EQ(body.for_view, sample.for_view);
  EXPECT_EQ(body.lease, sample.lease);
  EXPECT_EQ(body.keys, sample.keys);
}

TEST(CallOpenRead, NothingBrokenIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeCallOpenRead(SampleCallOpenRead()),
      [](std::string_view bytes) { return DecodeCallOpenRead(bytes).ok(); });
}

TEST(CallOpenRead, OfNoKeyOrTooManyIsRefused) {
  CallOpenReadBody body = SampleCallOpenRead();
  body.keys.assign(kMaxCallKeys, CountingId<BlockKey>(1));
  EXPECT_THAT(DecodeCallOpenRead(EncodeCallOpenRead(body)), IsOk());

  body.keys.push_back(CountingId<BlockKey>(2));
  EXPECT_THAT(DecodeCallOpenRead(EncodeCallOpenRead(body)),
              StatusIs(kInvalid, HasSubstr("1025 keys")));
  body.keys.clear();
  EXPECT_THAT(DecodeCallOpenRead(EncodeCallOpenRead(body)),
              StatusIs(kInvalid, HasSubstr("0 keys")));
}

TEST(CallOpenRead, TheLongestAndItsAnswerFitAPacket) {
  CallOpenReadBody body = SampleCallOpenRead();
  body.keys.assign(kMaxCallKeys, CountingId<BlockKey>(1));
  CallOpenedBody answer = SampleCallOpened();
  const CallOpenedBody::Block hit = answer.blocks.front();
  answer.blocks.assign(kMaxCallKeys, hit);

  const std::string asked = EncodeCallOpenRead(body);
  const std::string answered = EncodeCallOpened(answer);

  EXPECT_LE(kFrameLeadBytes + asked.size(), kMaxSessionMessageBytes);
  EXPECT_LE(kFrameLeadBytes + answered.size(), kMaxSessionMessageBytes);
  EXPECT_THAT(DecodeCallOpened(answered), IsOk());
}

// What a socket queues for a client that does not read (unix_connection.h).
TEST(CallOpenRead, TheAnswersThatMayBeInFlightFitTheSocketsQueue) {
  EXPECT_LE(kMaxCallsInFlight * kMaxSessionMessageBytes, kMiB);
}

TEST(CallOpened, ComesBackAsItWas) {
  const CallOpenedBody sample = SampleCallOpened();

  ASSERT_OK_AND_ASSIGN(const CallOpenedBody body,
                       DecodeCallOpened(EncodeCallOpened(sample)));

  EXPECT_EQ(body.lease, sample.lease);
  EXPECT_EQ(body.lease_time, sample.lease_time);
  EXPECT_EQ(body.clear_epoch, sample.clear_epoch);
  EXPECT_EQ(body.retry_after, sample.retry_after);
  ASSERT_EQ(body.blocks.size(), 2u);
  EXPECT_EQ(body.blocks[0].generation, sample.blocks[0].generation);
  EXPECT_EQ(body.blocks[0].extents, sample.blocks[0].extents);
  EXPECT_EQ(body.blocks[1].outcome, Outcome::kCongested);
}

TEST(CallOpened, NothingBrokenIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeCallOpened(SampleCallOpened()),
      [](std::string_view bytes) { return DecodeCallOpened(bytes).ok(); });
}

TEST(CallOpened, AHitNeedsGenerationLeaseAndBytes) {
  const auto refused = [](const CallOpenedBody& body) {
    return !DecodeCallOpened(EncodeCallOpened(body)).ok();
  };
  CallOpenedBody body = SampleCallOpened();
  ASSERT_FALSE(refused(body));

  body.lease = 0;
  EXPECT_TRUE(refused(body));
  body = SampleCallOpened();
  body.blocks[0].generation = Generation::kNone;
  EXPECT_TRUE(refused(body));
  body = SampleCallOpened();
  body.blocks[0].extents.clear();
  EXPECT_TRUE(refused(body));
  body = SampleCallOpened();
  body.blocks[0].extents[0].length = 0;
  EXPECT_TRUE(refused(body));
  body = SampleCallOpened();
  body.blocks[0].extents[0].length = kLargestBlockBytes + 1;
  EXPECT_TRUE(refused(body));
  body = SampleCallOpened();
  body.blocks[0].extents.assign(2, {1, 0, kLargestBlockBytes});
  EXPECT_TRUE(refused(body));
  body = SampleCallOpened();
  body.blocks[0].extents.assign(kMaxExtents + 1, {1, 0, 1});
  EXPECT_TRUE(refused(body));
}

TEST(CallOpened, WhatIsNoOutcomeOfAReadIsRefused) {
  for (const std::uint8_t number : {0, 14, 18, 19, 255}) {
    CallOpenedBody body = SampleCallOpened();
    body.blocks[1].outcome = Outcome{number};

    EXPECT_THAT(DecodeCallOpened(EncodeCallOpened(body)),
                StatusIs(kInvalid, HasSubstr("outcome")));
  }
}

TEST(CallRelease, ComesBackAsItWasAndNothingBrokenIsAccepted) {
  const std::string bytes = EncodeCallRelease(
      {.session = CountingId<SessionId>(1), .leases = {7, 8, 9}});

  ASSERT_OK_AND_ASSIGN(const CallReleaseBody body, DecodeCallRelease(bytes));

  EXPECT_EQ(body.session, CountingId<SessionId>(1));
  EXPECT_THAT(body.leases, ElementsAre(7, 8, 9));
  ExpectNothingBrokenAccepted(bytes, [](std::string_view broken) {
    return DecodeCallRelease(broken).ok();
  });
}

TEST(CallReserve, ComesBackAsItWas) {
  const CallReserveBody sample = SampleCallReserve();

  ASSERT_OK_AND_ASSIGN(const CallReserveBody body,
                       DecodeCallReserve(EncodeCallReserve(sample)));

  EXPECT_EQ(body.header.traffic, sample.header.traffic);
  EXPECT_EQ(body.name_space, sample.name_space);
  EXPECT_EQ(body.reservation, sample.reservation);
  EXPECT_EQ(body.wait_for, sample.wait_for);
  EXPECT_EQ(body.session_state, sample.session_state);
  EXPECT_EQ(body.conversation, sample.conversation);
  ASSERT_EQ(body.blocks.size(), 1u);
  EXPECT_EQ(body.blocks[0].key, sample.blocks[0].key);
  EXPECT_EQ(body.blocks[0].place, sample.blocks[0].place);
  EXPECT_EQ(body.blocks[0].length, sample.blocks[0].length);
}

TEST(CallReserve, NothingBrokenIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeCallReserve(SampleCallReserve()),
      [](std::string_view bytes) { return DecodeCallReserve(bytes).ok(); });
}

TEST(CallReserve, WhatIsOutOfBoundsIsRefused) {
  CallReserveBody body = SampleCallReserve();
  body.conversation.assign(kMaxConversationBytes + 1, 'c');
  EXPECT_THAT(DecodeCallReserve(EncodeCallReserve(body)),
              StatusIs(kInvalid, HasSubstr("conversation")));
  body = SampleCallReserve();
  body.blocks[0].length = kLargestBlockBytes + 1;
  EXPECT_THAT(DecodeCallReserve(EncodeCallReserve(body)),
              StatusIs(kInvalid, HasSubstr("a block of")));
  body = SampleCallReserve();
  body.blocks[0].place.shard = {.count = 2, .index = 2};
  EXPECT_THAT(DecodeCallReserve(EncodeCallReserve(body)),
              StatusIs(kInvalid, HasSubstr("shard 2 of 2")));
}

TEST(CallReserved, ComesBackAsItWasAndNothingBrokenIsAccepted) {
  const std::string bytes = EncodeCallReserved(SampleCallReserved());

  ASSERT_OK_AND_ASSIGN(const CallReservedBody body, DecodeCallReserved(bytes));

  EXPECT_EQ(body.reservation, 0x123u);
  EXPECT_EQ(body.reservation_time, absl::Seconds(30));
  EXPECT_THAT(body.outcomes,
              ElementsAre(Outcome::kStored, Outcome::kAlreadyThere));
  ExpectNothingBrokenAccepted(bytes, [](std::string_view broken) {
    return DecodeCallReserved(broken).ok();
  });
}

TEST(CallCommit, ComesBackAsItWas) {
  const CallCommitBody sample = SampleCallCommit();

  ASSERT_OK_AND_ASSIGN(const CallCommitBody body,
                       DecodeCallCommit(EncodeCallCommit(sample)));

  EXPECT_EQ(body.reservation, sample.reservation);
  EXPECT_EQ(body.wait_for, sample.wait_for);
  ASSERT_EQ(body.blocks.size(), 1u);
  EXPECT_EQ(body.blocks[0].index, sample.blocks[0].index);
  EXPECT_EQ(body.blocks[0].extents, sample.blocks[0].extents);
  EXPECT_EQ(body.blocks[0].pieces, sample.blocks[0].pieces);
}

TEST(CallCommit, NothingBrokenIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeCallCommit(SampleCallCommit()),
      [](std::string_view bytes) { return DecodeCallCommit(bytes).ok(); });
}

TEST(CallCommit, ChecksumsAreAsManyAsThePieces) {
  for (const std::size_t pieces : {1u, 3u}) {
    CallCommitBody body = SampleCallCommit();
    body.blocks[0].pieces.assign(pieces, 5);

    EXPECT_THAT(DecodeCallCommit(EncodeCallCommit(body)), StatusIs(kInvalid));
  }
}

TEST(CallCommitted, ComesBackAsItWasAndNothingBrokenIsAccepted) {
  const std::string bytes =
      EncodeCallCommitted({.retry_after = absl::Milliseconds(20),
                           .outcomes = {Outcome::kStored, Outcome::kCorrupt}});

  ASSERT_OK_AND_ASSIGN(const CallCommittedBody body,
                       DecodeCallCommitted(bytes));

  EXPECT_EQ(body.retry_after, absl::Milliseconds(20));
  EXPECT_THAT(body.outcomes, ElementsAre(Outcome::kStored, Outcome::kCorrupt));
  ExpectNothingBrokenAccepted(bytes, [](std::string_view broken) {
    return DecodeCallCommitted(broken).ok();
  });
}

}  // namespace
}  // namespace firnkv
