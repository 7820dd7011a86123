// Frames of the data path. Their bytes are checked in tests/format.

#include "proto/base/frame.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "tests/proto/broken_bytes.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

FrameLead SampleLead() {
  return FrameLead{.type = FrameType::kBlock,
                   .request = 0x1122334455667788,
                   .body_bytes = 300,
                   .payload_bytes = 70'000};
}

HelloBody SampleHello() {
  HelloBody body;
  body.handshake.cluster = CountingId<ClusterId>(1);
  body.handshake.test_vector = HandshakeTestVector();
  body.token = "a token";
  body.node = CountingId<NodeId>(0x30);
  body.epoch = NodeEpoch{0x99};
  return body;
}

ReadBody SampleRead() {
  ReadBody body;
  body.header.remaining = absl::Milliseconds(250);
  body.header.traffic = TrafficClass::kWarmUp;
  body.header.trace = CountingId<TraceId>(0x50);
  body.header.session = CountingId<SessionId>(0x70);
  body.name_space = CountingId<NamespaceId>(0x10);
  body.clear_epoch = ClearEpoch{3};
  body.leading_run = false;
  body.keys.push_back({CountingId<BlockKey>(0x20), 70'000});
  body.keys.push_back({CountingId<BlockKey>(0x21), 1});
  return body;
}

BlockBody SampleBlock() {
  BlockBody body;
  body.index = 1;
  body.outcome = Outcome::kHit;
  body.header = SampleHeader();
  return body;
}

// Puts the right checksum behind bytes that were changed by hand.
std::string Resealed(std::string bytes) {
  bytes.resize(bytes.size() - 4);
  const std::uint32_t crc =
      Crc32c({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
  bytes.append(reinterpret_cast<const char*>(&crc), 4);
  return bytes;
}

template <typename T>
std::string With(std::string bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return Resealed(std::move(bytes));
}

TEST(FrameLead, ComesBackAsItWas) {
  const std::string bytes = EncodeLead(SampleLead());

  ASSERT_EQ(bytes.size(), kFrameLeadBytes);
  ASSERT_OK_AND_ASSIGN(const FrameLead lead, DecodeLead(bytes));
  EXPECT_EQ(lead.type, SampleLead().type);
  EXPECT_EQ(lead.request, SampleLead().request);
  EXPECT_EQ(lead.body_bytes, SampleLead().body_bytes);
  EXPECT_EQ(lead.payload_bytes, SampleLead().payload_bytes);
}

TEST(FrameLead, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeLead(SampleLead()),
      [](std::string_view bytes) { return DecodeLead(bytes).ok(); });
}

TEST(FrameLead, OfAnUnknownTypeIsRefused) {
  const std::string bytes = EncodeLead(SampleLead());

  for (const std::uint16_t type : {0, 13, 0xffff}) {
    EXPECT_THAT(DecodeLead(With(bytes, 6, type)),
                StatusIs(kInvalid, HasSubstr("type")));
  }
}

TEST(FrameLead, OfAnUnknownFramingVersionIsRefused) {
  const std::string bytes = EncodeLead(SampleLead());

  EXPECT_THAT(DecodeLead(With(bytes, 4, std::uint16_t{2})),
              StatusIs(kInvalid, HasSubstr("framing version 2")));
}

TEST(FrameLead, BodyAndPayloadHaveBounds) {
  FrameLead lead = SampleLead();
  lead.body_bytes = kMaxFrameBodyBytes;
  lead.payload_bytes = kLargestBlockBytes;
  EXPECT_THAT(DecodeLead(EncodeLead(lead)), IsOk());

  lead.body_bytes = kMaxFrameBodyBytes + 1;
  EXPECT_THAT(DecodeLead(EncodeLead(lead)),
              StatusIs(kInvalid, HasSubstr("body")));
  lead.body_bytes = 0;
  lead.payload_bytes = kLargestBlockBytes + 1;
  EXPECT_THAT(DecodeLead(EncodeLead(lead)),
              StatusIs(kInvalid, HasSubstr("payload")));
}

TEST(FrameLead, OnlyABlockHasAPayload) {
  for (const FrameType type :
       {FrameType::kHello, FrameType::kRefused, FrameType::kRead,
        FrameType::kReadEnd, FrameType::kCancel, FrameType::kFoundCorrupt,
        FrameType::kReserve, FrameType::kReserved, FrameType::kWritten,
        FrameType::kWriteEnd}) {
    FrameLead lead = SampleLead();
    lead.type = type;
    lead.payload_bytes = 1;
    EXPECT_THAT(DecodeLead(EncodeLead(lead)), StatusIs(kInvalid));

    lead.payload_bytes = 0;
    EXPECT_THAT(DecodeLead(EncodeLead(lead)), IsOk());
  }
}

TEST(HelloBody, ComesBackAsItWas) {
  ASSERT_OK_AND_ASSIGN(const HelloBody body,
                       DecodeHello(EncodeHello(SampleHello())));

  EXPECT_THAT(Agree(SampleHello().handshake, body.handshake), IsOk());
  EXPECT_EQ(body.handshake.cluster, SampleHello().handshake.cluster);
  EXPECT_EQ(body.token, "a token");
  EXPECT_EQ(body.node, SampleHello().node);
  EXPECT_EQ(body.epoch, SampleHello().epoch);
}

TEST(HelloBody, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeHello(SampleHello()),
      [](std::string_view bytes) { return DecodeHello(bytes).ok(); });
}

TEST(HelloBody, WhatANewerVersionAppendsIsPassedOver) {
  const std::string bytes = EncodeHello(SampleHello());

  const std::string newer = Resealed(bytes + "more");

  // Resealed took the last 4 bytes for a checksum; the old one is left inside.
  ASSERT_OK_AND_ASSIGN(const HelloBody body, DecodeHello(newer));
  EXPECT_EQ(body.token, "a token");
}

TEST(HelloBody, ATokenOverItsBoundIsRefused) {
  HelloBody hello = SampleHello();
  hello.token = std::string(kMaxTokenBytes, 't');
  EXPECT_THAT(DecodeHello(EncodeHello(hello)), IsOk());

  hello.token.push_back('t');

  EXPECT_THAT(DecodeHello(EncodeHello(hello)),
              StatusIs(kInvalid, HasSubstr("token")));
}

TEST(RefusedBody, ComesBackAsItWas) {
  const absl::Status reason = absl::PermissionDeniedError("not yours");

  ASSERT_OK_AND_ASSIGN(const RefusedBody body,
                       DecodeRefused(EncodeRefused({reason})));

  EXPECT_EQ(body.reason, reason);
}

TEST(RefusedBody, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeRefused({absl::PermissionDeniedError("not yours")}),
      [](std::string_view bytes) { return DecodeRefused(bytes).ok(); });
}

TEST(RefusedBody, AnOkOrUnknownCodeIsNoReason) {
  const std::string bytes = EncodeRefused({absl::InternalError("x")});

  for (const std::uint32_t code : {0u, 17u, UINT32_MAX}) {
    EXPECT_THAT(DecodeRefused(With(bytes, 0, code)),
                StatusIs(kInvalid, HasSubstr("status code")));
  }
}

TEST(RefusedBody, ALongReasonIsCut) {
  const absl::Status reason =
      absl::InternalError(std::string(2 * kMaxReasonBytes, 'x'));

  ASSERT_OK_AND_ASSIGN(const RefusedBody body,
                       DecodeRefused(EncodeRefused({reason})));

  EXPECT_EQ(body.reason.message().size(), kMaxReasonBytes);
}

TEST(RefusedBody, AReasonCannotForgeLogLines) {
  std::string bytes = EncodeRefused({absl::InternalError("one two")});
  bytes = With(std::move(bytes), 8 + 3, '\n');

  ASSERT_OK_AND_ASSIGN(const RefusedBody body, DecodeRefused(bytes));

  EXPECT_EQ(body.reason.message(), "one?two");
}

TEST(ReadBody, ComesBackAsItWas) {
  const ReadBody sample = SampleRead();

  ASSERT_OK_AND_ASSIGN(const ReadBody body, DecodeRead(EncodeRead(sample)));

  EXPECT_EQ(body.header.remaining, sample.header.remaining);
  EXPECT_EQ(body.header.traffic, sample.header.traffic);
  EXPECT_EQ(body.header.trace, sample.header.trace);
  EXPECT_EQ(body.header.session, sample.header.session);
  EXPECT_EQ(body.header.protocol, sample.header.protocol);
  EXPECT_EQ(body.name_space, sample.name_space);
  EXPECT_EQ(body.clear_epoch, sample.clear_epoch);
  EXPECT_EQ(body.leading_run, sample.leading_run);
  ASSERT_EQ(body.keys.size(), 2u);
  EXPECT_EQ(body.keys[1].key, sample.keys[1].key);
  EXPECT_EQ(body.keys[0].room, 70'000u);
}

TEST(ReadBody, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeRead(SampleRead()),
      [](std::string_view bytes) { return DecodeRead(bytes).ok(); });
}

TEST(ReadBody, OfTheLargestBatchFitsAFrame) {
  ReadBody body = SampleRead();
  body.keys.assign(kMaxBatchKeys, {CountingId<BlockKey>(1), 1});

  const std::string bytes = EncodeRead(body);

  EXPECT_LE(bytes.size(), kMaxFrameBodyBytes);
  EXPECT_THAT(DecodeRead(bytes), IsOk());
}

TEST(ReadBody, OfNoKeyOrTooManyIsRefused) {
  ReadBody none = SampleRead();
  none.keys.clear();
  ReadBody many = SampleRead();
  many.keys.assign(kMaxBatchKeys + 1, {CountingId<BlockKey>(1), 1});

  EXPECT_THAT(DecodeRead(EncodeRead(none)),
              StatusIs(kInvalid, HasSubstr("0 keys")));
  EXPECT_THAT(DecodeRead(EncodeRead(many)),
              StatusIs(kInvalid, HasSubstr("4097 keys")));
}

// Offsets in a read's body, by docs/PROTOCOL.md.
constexpr std::size_t kReadClass = 4;
constexpr std::size_t kReadRemaining = 8;
constexpr std::size_t kReadFlags = 72;
constexpr std::size_t kReadCount = 76;

TEST(ReadBody, ACountThatLiesIsRefusedBeforeAnythingIsAllocated) {
  const std::string bytes = EncodeRead(SampleRead());

  for (const std::uint32_t count : {1u, 3u, 4096u, UINT32_MAX}) {
    EXPECT_THAT(DecodeRead(With(bytes, kReadCount, count)), StatusIs(kInvalid));
  }
}

TEST(ReadBody, UnknownClassesAndFlagsAreRefused) {
  const std::string bytes = EncodeRead(SampleRead());

  EXPECT_THAT(DecodeRead(With(bytes, kReadClass, std::uint32_t{0})),
              StatusIs(kInvalid, HasSubstr("traffic class")));
  EXPECT_THAT(DecodeRead(With(bytes, kReadClass, std::uint32_t{257})),
              StatusIs(kInvalid, HasSubstr("traffic class")));
  EXPECT_THAT(DecodeRead(With(bytes, kReadFlags, std::uint32_t{2})),
              StatusIs(kInvalid, HasSubstr("flags")));
}

TEST(ReadBody, ADeadlineBeyondTheLongestIsRefused) {
  const std::string bytes = EncodeRead(SampleRead());

  for (const std::uint64_t micros : {UINT64_C(120'000'001), UINT64_MAX}) {
    EXPECT_THAT(DecodeRead(With(bytes, kReadRemaining, micros)),
                StatusIs(kInvalid, HasSubstr("deadline")));
  }
}

TEST(ReadBody, ASpentDeadlineIsSentAsNoTime) {
  ReadBody body = SampleRead();
  body.header.remaining = -absl::Seconds(1);

  ASSERT_OK_AND_ASSIGN(const ReadBody got, DecodeRead(EncodeRead(body)));

  EXPECT_THAT(Validate(got.header),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(BlockBody, AHitComesBackWithItsHeader) {
  ASSERT_OK_AND_ASSIGN(const BlockBody body,
                       DecodeBlock(EncodeBlock(SampleBlock())));

  EXPECT_EQ(body.index, 1u);
  EXPECT_EQ(body.outcome, Outcome::kHit);
  EXPECT_EQ(body.header, SampleHeader());
}

TEST(BlockBody, ChecksumsOfThePayloadStandInTheBodyAheadOfIt) {
  const std::string bytes = EncodeBlock(SampleBlock());  // Rule T1.

  ASSERT_OK_AND_ASSIGN(const BlockBody body, DecodeBlock(bytes));

  EXPECT_EQ(body.header.pieces, SampleHeader().pieces);
}

TEST(BlockBody, OtherOutcomesComeWithoutAHeader) {
  for (std::uint8_t number = 2;
       number <= static_cast<std::uint8_t>(Outcome::kStaleLocation); ++number) {
    BlockBody sent = SampleBlock();
    sent.outcome = Outcome{number};
    sent.retry_after = absl::Milliseconds(20);

    ASSERT_OK_AND_ASSIGN(const BlockBody body, DecodeBlock(EncodeBlock(sent)));

    EXPECT_EQ(body.outcome, sent.outcome);
    EXPECT_EQ(body.retry_after, absl::Milliseconds(20));
    EXPECT_EQ(body.header, SlotHeader{});
  }
}

TEST(BlockBody, NoBrokenHitIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeBlock(SampleBlock()),
      [](std::string_view bytes) { return DecodeBlock(bytes).ok(); });
}

TEST(BlockBody, NoBrokenMissIsAccepted) {
  BlockBody miss;
  miss.outcome = Outcome::kMiss;

  ExpectNothingBrokenAccepted(EncodeBlock(miss), [](std::string_view bytes) {
    return DecodeBlock(bytes).ok();
  });
}

TEST(BlockBody, WhatIsNoOutcomeOfAReadIsRefused) {
  const std::string bytes = EncodeBlock(SampleBlock());

  for (const std::uint32_t number : {0u, 14u, 18u, 19u, 257u, UINT32_MAX}) {
    EXPECT_THAT(DecodeBlock(With(bytes, 4, number)),
                StatusIs(kInvalid, HasSubstr("outcome")));
  }
}

TEST(BlockBody, AHitWithoutAHeaderIsRefused) {
  BlockBody miss;
  miss.outcome = Outcome::kMiss;
  const std::string bytes = EncodeBlock(miss);

  EXPECT_THAT(DecodeBlock(With(bytes, 4, std::uint32_t{1})),
              StatusIs(kInvalid, HasSubstr("header")));
}

TEST(BlockBody, AMissWithAHeaderIsRefused) {
  const std::string bytes = EncodeBlock(SampleBlock());

  EXPECT_THAT(DecodeBlock(With(bytes, 4, std::uint32_t{2})),
              StatusIs(kInvalid));
}

TEST(BlockBody, AnIndexBeyondAnyBatchIsRefused) {
  const std::string bytes = EncodeBlock(SampleBlock());

  EXPECT_THAT(DecodeBlock(With(bytes, 0, std::uint32_t{4096})),
              StatusIs(kInvalid, HasSubstr("index")));
}

}  // namespace
}  // namespace firnkv
