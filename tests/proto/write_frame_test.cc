// Frames of writes. Their bytes are checked in tests/format.

#include "proto/base/write_frame.h"

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "proto/base/frame.h"
#include "proto/base/limits.h"
#include "tests/proto/broken_bytes.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ReserveBody SampleReserve() {
  ReserveBody body;
  body.header.protocol = kProtocolOfStreamWrites;
  body.header.remaining = absl::Milliseconds(250);
  body.header.traffic = TrafficClass::kBackgroundWrite;
  body.header.trace = CountingId<TraceId>(0x50);
  body.name_space = CountingId<NamespaceId>(0x10);
  body.clear_epoch = ClearEpoch{3};
  body.reserve_for = absl::Seconds(30);
  body.wait_for = 1;
  body.session_state = 2;
  body.conversation = "chat 7";
  body.blocks.push_back(
      {SampleHeader().block.key, SampleHeader().place, 70'000});
  body.blocks.push_back({CountingId<BlockKey>(0x21), SampleHeader().place, 1});
  return body;
}

ReservedBody SampleReserved() {
  ReservedBody body;
  body.valid_for = absl::Seconds(29);
  body.retry_after = absl::Milliseconds(20);
  body.clear_epoch = ClearEpoch{4};
  body.outcomes = {Outcome::kStored, Outcome::kAlreadyThere};
  return body;
}

WriteBody SampleWrite() {
  return {.index = 1,
          .key = SampleHeader().block.key,
          .pieces = SampleHeader().pieces};
}

WrittenBody SampleWritten() {
  WrittenBody body;
  body.retry_after = absl::Milliseconds(20);
  body.blocks.push_back({1, Outcome::kStored});
  body.blocks.push_back({0, Outcome::kCorrupt});
  return body;
}

// Puts the right checksum behind bytes that were changed by hand.
template <typename T>
std::string With(std::string bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  bytes.resize(bytes.size() - 4);
  const std::uint32_t crc =
      Crc32c({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
  bytes.append(reinterpret_cast<const char*>(&crc), 4);
  return bytes;
}

TEST(ReserveBody, ComesBackAsItWas) {
  const ReserveBody sample = SampleReserve();

  ASSERT_OK_AND_ASSIGN(const ReserveBody body,
                       DecodeReserve(EncodeReserve(sample)));

  EXPECT_EQ(body.header.protocol, 2u);
  EXPECT_EQ(body.header.remaining, sample.header.remaining);
  EXPECT_EQ(body.header.traffic, sample.header.traffic);
  EXPECT_EQ(body.header.trace, sample.header.trace);
  EXPECT_EQ(body.name_space, sample.name_space);
  EXPECT_EQ(body.clear_epoch, sample.clear_epoch);
  EXPECT_EQ(body.reserve_for, sample.reserve_for);
  EXPECT_EQ(body.wait_for, 1u);
  EXPECT_EQ(body.session_state, 2u);
  EXPECT_EQ(body.conversation, "chat 7");
  ASSERT_EQ(body.blocks.size(), 2u);
  EXPECT_EQ(body.blocks[0].key, sample.blocks[0].key);
  EXPECT_EQ(body.blocks[0].place, sample.blocks[0].place);
  EXPECT_EQ(body.blocks[0].length, 70'000u);
  EXPECT_EQ(body.blocks[1].length, 1u);
}

TEST(ReserveBody, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeReserve(SampleReserve()),
      [](std::string_view bytes) { return DecodeReserve(bytes).ok(); });
}

TEST(ReserveBody, TheLargestOneFitsIntoAFrame) {
  ReserveBody body = SampleReserve();
  body.conversation = std::string(kMaxConversationBytes, 'c');
  body.blocks.resize(kMaxReserveBlocks, body.blocks[0]);

  const std::string bytes = EncodeReserve(body);

  EXPECT_LE(bytes.size(), kMaxFrameBodyBytes);
  EXPECT_THAT(DecodeReserve(bytes), IsOk());
}

TEST(ReserveBody, EachFieldHasItsBound) {
  ReserveBody body = SampleReserve();
  body.conversation = std::string(kMaxConversationBytes + 1, 'c');
  EXPECT_THAT(DecodeReserve(EncodeReserve(body)),
              StatusIs(kInvalid, HasSubstr("conversation")));

  for (const std::uint64_t length :
       {std::uint64_t{0}, kLargestBlockBytes + 1}) {
    body = SampleReserve();
    body.blocks[0].length = length;
    EXPECT_THAT(DecodeReserve(EncodeReserve(body)),
                StatusIs(kInvalid, HasSubstr("bytes")));
  }

  body = SampleReserve();
  body.blocks[1].place.shard = {.count = 2, .index = 2};
  EXPECT_THAT(DecodeReserve(EncodeReserve(body)),
              StatusIs(kInvalid, HasSubstr("shard")));

  body = SampleReserve();
  body.wait_for = 3;
  EXPECT_THAT(DecodeReserve(EncodeReserve(body)), StatusIs(kInvalid));

  body = SampleReserve();
  body.session_state = 3;
  EXPECT_THAT(DecodeReserve(EncodeReserve(body)), StatusIs(kInvalid));

  body = SampleReserve();
  body.blocks.clear();
  EXPECT_THAT(DecodeReserve(EncodeReserve(body)),
              StatusIs(kInvalid, HasSubstr("0 blocks")));
}

TEST(ReservedBody, ComesBackAsItWas) {
  const ReservedBody sample = SampleReserved();

  ASSERT_OK_AND_ASSIGN(const ReservedBody body,
                       DecodeReserved(EncodeReserved(sample)));

  EXPECT_THAT(body.status, IsOk());
  EXPECT_EQ(body.valid_for, sample.valid_for);
  EXPECT_EQ(body.retry_after, sample.retry_after);
  EXPECT_EQ(body.clear_epoch, sample.clear_epoch);
  EXPECT_EQ(body.outcomes, sample.outcomes);
}

TEST(ReservedBody, ARefusalSaysWhyAndHasNoOutcomes) {
  ReservedBody sample;
  sample.status = absl::InvalidArgumentError("a key twice");

  ASSERT_OK_AND_ASSIGN(const ReservedBody body,
                       DecodeReserved(EncodeReserved(sample)));

  EXPECT_EQ(body.status, sample.status);
  sample.outcomes = {Outcome::kStored};
  EXPECT_THAT(DecodeReserved(EncodeReserved(sample)), StatusIs(kInvalid));
}

TEST(ReservedBody, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeReserved(SampleReserved()),
      [](std::string_view bytes) { return DecodeReserved(bytes).ok(); });
}

TEST(ReservedBody, AnOutcomeThatNoWriteHasIsRefused) {
  for (const Outcome outcome :
       {Outcome::kUnset, Outcome::kHit, Outcome::kBeingWritten,
        Outcome::kStaleLocation, Outcome{200}}) {
    ReservedBody body = SampleReserved();
    body.outcomes[1] = outcome;
    EXPECT_THAT(DecodeReserved(EncodeReserved(body)),
                StatusIs(kInvalid, HasSubstr("outcome")));
  }
}

TEST(WriteBody, ComesBackAsItWas) {
  ASSERT_OK_AND_ASSIGN(const WriteBody body,
                       DecodeWrite(EncodeWrite(SampleWrite()), 70'000));

  EXPECT_EQ(body.index, 1u);
  EXPECT_EQ(body.key, SampleHeader().block.key);
  EXPECT_EQ(body.pieces, SampleHeader().pieces);
}

TEST(WriteBody, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeWrite(SampleWrite()),
      [](std::string_view bytes) { return DecodeWrite(bytes, 70'000).ok(); });
}

// Rule T1: every byte of a payload has a checksum that came before it.
TEST(WriteBody, HasAsManyChecksumsAsItsPayloadNeeds) {
  const std::string bytes = EncodeWrite(SampleWrite());

  EXPECT_THAT(DecodeWrite(bytes, kPieceBytes + 1), IsOk());
  EXPECT_THAT(DecodeWrite(bytes, 2 * kPieceBytes), IsOk());
  for (const std::uint64_t payload :
       {std::uint64_t{0}, std::uint64_t{1}, kPieceBytes, 2 * kPieceBytes + 1}) {
    EXPECT_THAT(DecodeWrite(bytes, payload),
                StatusIs(kInvalid, HasSubstr("checksums")));
  }
}

TEST(WriteBody, AnIndexBeyondAnyReserveIsRefused) {
  WriteBody body = SampleWrite();
  body.index = kMaxReserveBlocks;

  EXPECT_THAT(DecodeWrite(EncodeWrite(body), 70'000),
              StatusIs(kInvalid, HasSubstr("index")));
}

TEST(WrittenBody, ComesBackAsItWas) {
  ASSERT_OK_AND_ASSIGN(const WrittenBody body,
                       DecodeWritten(EncodeWritten(SampleWritten())));

  EXPECT_EQ(body.retry_after, absl::Milliseconds(20));
  ASSERT_EQ(body.blocks.size(), 2u);
  EXPECT_EQ(body.blocks[0].index, 1u);
  EXPECT_EQ(body.blocks[0].outcome, Outcome::kStored);
  EXPECT_EQ(body.blocks[1].outcome, Outcome::kCorrupt);
}

TEST(WrittenBody, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      EncodeWritten(SampleWritten()),
      [](std::string_view bytes) { return DecodeWritten(bytes).ok(); });
}

TEST(WrittenBody, ACountThatIsNotThereIsRefused) {
  const std::string bytes = EncodeWritten(SampleWritten());

  for (const std::uint32_t count : {0u, 1u, 3u, 0xffffffffu}) {
    EXPECT_THAT(DecodeWritten(With(bytes, 8, count)), StatusIs(kInvalid));
  }
}

}  // namespace
}  // namespace firnkv
