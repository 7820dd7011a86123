// Every hand-made format against its golden bytes, both ways. If one of these
// fails, a format changed: see proto/README.md for what else must change then.

#include <cstring>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/contract.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/session_frame.h"
#include "proto/base/slot_header.h"
#include "proto/base/token.h"
#include "proto/base/write_frame.h"
#include "tests/format/golden_file.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::Eq;
using ::testing::Optional;

std::string Counting(std::uint8_t first, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size; ++i) {
    out.push_back(static_cast<char>(first + i));
  }
  return out;
}

TEST(GoldenKeys, KeysAndAnchorsAreTheDocumentedOnes) {
  const GoldenFile golden("keys.hex");
  const std::string eight = Counting(1, 8);
  const std::string long_hash = Counting(0, 32);
  const std::map<std::string, BlockKey> ours = {
      {"handshake test vector", HandshakeTestVector()},
      {"empty hash, shard 0 of 1", MakeBlockKey("", {})},
      {"empty hash, anchor", MakeAnchor("")},
      {"8 bytes, shard 0 of 1", MakeBlockKey(eight, {})},
      {"8 bytes, shard 1 of 2", MakeBlockKey(eight, {.count = 2, .index = 1})},
      {"8 bytes, anchor", MakeAnchor(eight)},
      {"32 bytes, shard 0 of 1", MakeBlockKey(long_hash, {})},
      {"32 bytes, anchor", MakeAnchor(long_hash)},
      {"text, shard 0 of 8",
       MakeBlockKey("sha256:5feceb66ffc86f38", {.count = 8, .index = 0})},
      {"4096 bytes, shard 0 of 1", MakeBlockKey(Counting(0, 4096), {})},
  };

  for (const auto& [name, key] : ours) {
    EXPECT_EQ(ToHex(key), golden.Hex(name)) << name;
  }
}

TEST(GoldenContract, EncodingAndDigestAreTheDocumentedOnes) {
  const GoldenFile golden("contract.hex");
  const std::map<std::string, StateContract> ours = {
      {"sample", SampleContract()},
      {"sample with options", SampleContractWithOptions()},
  };

  for (const auto& [name, contract] : ours) {
    EXPECT_EQ(ToHex(CanonicalEncoding(contract)), golden.Hex(name));
    EXPECT_EQ(ToHex(MakeIdentityDigest(contract)),
              golden.Hex("digest of " + name));
    EXPECT_THAT(DecodeCanonical(golden.Bytes(name)), IsOkAndHolds(contract));
  }
}

TEST(GoldenSlotHeader, EncodingIsTheDocumentedOne) {
  const GoldenFile golden("slot_header.hex");
  std::string ours;

  AppendSlotHeader(SampleHeader(), &ours);

  EXPECT_EQ(ToHex(ours), golden.Hex("sample"));
  const std::string bytes = golden.Bytes("sample");
  std::string_view rest = bytes;
  EXPECT_THAT(TakeSlotHeader(&rest), Optional(Eq(SampleHeader())));
}

class GoldenMappedTable : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kPages = 64;
  static constexpr RegionId kRegion{NodeEpoch{0xabcdef}, 7};
  // Offsets by docs/PROTOCOL.md.
  static constexpr std::size_t kHeaders = 4096;
  static constexpr std::size_t kPieces = 4096 + 256 * kPages;

  GoldenMappedTable() { std::memset(table_, 0, sizeof(table_)); }

  std::string Hex(std::size_t offset, std::size_t size) const {
    return ToHex(
        std::string_view(reinterpret_cast<const char*>(table_) + offset, size));
  }
  void Put(std::size_t offset, const std::string& bytes) {
    std::memcpy(table_ + offset, bytes.data(), bytes.size());
  }

  alignas(4096) std::byte table_[HeaderTableBytes(kPages * kPageBytes)];
  const GoldenFile golden_{"mapped_table.hex"};
};

TEST_F(GoldenMappedTable, HasTheDocumentedSize) {
  static_assert(HeaderTableBytes(64 * 4096) == 4096 + 64 * 260 + 3840);
  static_assert(HeaderTableBytes(64 * kMiB) == 4096 + 16'384 * 260);
  static_assert(kMappedLayoutVersion == 1);
}

TEST_F(GoldenMappedTable, IsWrittenAsDocumented) {
  HeaderTableWriter writer({table_, sizeof(table_)}, kRegion,
                           kPages * kPageBytes);

  writer.Write(3, SampleHeader());
  writer.Bump(40, Generation{9});

  EXPECT_EQ(Hex(0, 32), golden_.Hex("lead"));
  EXPECT_EQ(Hex(kHeaders + 3 * 256, 256), golden_.Hex("header of page 3"));
  EXPECT_EQ(Hex(kPieces + 3 * 4, 8), golden_.Hex("pieces of page 3"));
  EXPECT_EQ(Hex(kHeaders + 40 * 256, 256), golden_.Hex("header of page 40"));
}

TEST_F(GoldenMappedTable, IsReadAsDocumented) {
  Put(0, golden_.Bytes("lead"));
  Put(kHeaders + 3 * 256, golden_.Bytes("header of page 3"));
  Put(kPieces + 3 * 4, golden_.Bytes("pieces of page 3"));
  Put(kHeaders + 40 * 256, golden_.Bytes("header of page 40"));

  const auto reader =
      HeaderTableReader::Open({table_, sizeof(table_)}, kRegion);

  ASSERT_TRUE(reader);
  EXPECT_THAT(reader->Read(3), Optional(Eq(SampleHeader())));
  EXPECT_EQ(reader->Read(40), std::nullopt);
  EXPECT_THAT(reader->ReadGeneration(40), Optional(Eq(Generation{9})));
}

TEST(GoldenToken, IsTheDocumentedOne) {
  const GoldenFile golden("token.hex");
  const TokenClaims claims{.cluster = CountingId<ClusterId>(1),
                           .tenant = CountingId<TenantId>(2),
                           .role = Role::kTenant,
                           .session = CountingId<SessionId>(3),
                           .expires = absl::FromUnixSeconds(1'700'003'600),
                           .credentials = 6};
  const auto secret = CountingId<ClusterSecret>(0xa0);

  EXPECT_EQ(ToHex(MintToken(claims, secret)), golden.Hex("tenant"));
  EXPECT_THAT(CheckToken(golden.Bytes("tenant"), claims.cluster, secret, 6,
                         absl::FromUnixSeconds(1'700'000'000)),
              IsOk());
}

class GoldenFrame : public ::testing::Test {
 protected:
  const GoldenFile golden_{"frame.hex"};
};

TEST_F(GoldenFrame, LeadsAreTheDocumentedOnes) {
  EXPECT_EQ(ToHex(EncodeLead({.type = FrameType::kBlock,
                              .request = 0x1122334455667788,
                              .body_bytes = 300,
                              .payload_bytes = 70'000})),
            golden_.Hex("lead of a block"));
  EXPECT_EQ(ToHex(EncodeLead({.type = FrameType::kCancel, .request = 5})),
            golden_.Hex("lead of a cancel"));
  EXPECT_THAT(DecodeLead(golden_.Bytes("lead of a block")), IsOk());
}

TEST_F(GoldenFrame, WritesAreTheDocumentedOnes) {
  ReserveBody reserve;
  reserve.header.protocol = 2;
  reserve.header.remaining = absl::Milliseconds(250);
  reserve.header.traffic = TrafficClass::kBackgroundWrite;
  reserve.header.trace = CountingId<TraceId>(0x50);
  reserve.name_space = CountingId<NamespaceId>(0x10);
  reserve.clear_epoch = ClearEpoch{3};
  reserve.reserve_for = absl::Seconds(30);
  reserve.wait_for = 1;
  reserve.session_state = 2;
  reserve.conversation = "chat 7";
  reserve.blocks.push_back(
      {SampleHeader().block.key, SampleHeader().place, 70'000});
  const WriteBody write{.index = 1,
                        .key = SampleHeader().block.key,
                        .pieces = SampleHeader().pieces};

  EXPECT_EQ(ToHex(EncodeReserve(reserve)), golden_.Hex("reserve"));
  EXPECT_THAT(DecodeReserve(golden_.Bytes("reserve")), IsOk());
  EXPECT_EQ(ToHex(EncodeWrite(write)), golden_.Hex("write"));
  EXPECT_THAT(DecodeWrite(golden_.Bytes("write"), 70'000), IsOk());
  EXPECT_EQ(ToHex(EncodeLead({.type = FrameType::kWrite,
                              .request = 5,
                              .body_bytes = 52,
                              .payload_bytes = 70'000})),
            golden_.Hex("lead of a write"));
}

TEST_F(GoldenFrame, AnswersToWritesAreTheDocumentedOnes) {
  ReservedBody reserved;
  reserved.valid_for = absl::Seconds(29);
  reserved.retry_after = absl::Milliseconds(20);
  reserved.clear_epoch = ClearEpoch{4};
  ReservedBody refused;
  refused.status = absl::InvalidArgumentError("a key twice");
  refused.clear_epoch = ClearEpoch{4};
  reserved.outcomes = {Outcome::kStored, Outcome::kAlreadyThere,
                       Outcome::kCongested};
  WrittenBody written;
  written.retry_after = absl::Milliseconds(20);
  written.blocks.push_back({1, Outcome::kStored});
  written.blocks.push_back({0, Outcome::kCongested});

  EXPECT_EQ(ToHex(EncodeReserved(reserved)), golden_.Hex("reserved"));
  EXPECT_THAT(DecodeReserved(golden_.Bytes("reserved")), IsOk());
  EXPECT_EQ(ToHex(EncodeReserved(refused)), golden_.Hex("reserved, refused"));
  EXPECT_THAT(DecodeReserved(golden_.Bytes("reserved, refused")), IsOk());
  EXPECT_EQ(ToHex(EncodeWritten(written)), golden_.Hex("written"));
  EXPECT_THAT(DecodeWritten(golden_.Bytes("written")), IsOk());
}

TEST_F(GoldenFrame, HelloIsTheDocumentedOne) {
  HelloBody body;
  body.handshake.cluster = CountingId<ClusterId>(1);
  body.handshake.test_vector = HandshakeTestVector();
  body.token = "a token";
  body.node = CountingId<NodeId>(0x30);
  body.epoch = NodeEpoch{0x99};

  EXPECT_EQ(ToHex(EncodeHello(body)), golden_.Hex("hello"));
  EXPECT_THAT(DecodeHello(golden_.Bytes("hello")), IsOk());
}

TEST_F(GoldenFrame, RefusedIsTheDocumentedOne) {
  const absl::Status reason = absl::PermissionDeniedError("not yours");

  EXPECT_EQ(ToHex(EncodeRefused({reason})), golden_.Hex("refused"));
  ASSERT_OK_AND_ASSIGN(const RefusedBody body,
                       DecodeRefused(golden_.Bytes("refused")));
  EXPECT_EQ(body.reason, reason);
}

TEST_F(GoldenFrame, ReadIsTheDocumentedOne) {
  ReadBody body;
  body.header.remaining = absl::Milliseconds(250);
  body.header.traffic = TrafficClass::kWarmUp;
  body.header.trace = CountingId<TraceId>(0x50);
  body.header.session = CountingId<SessionId>(0x70);
  body.name_space = CountingId<NamespaceId>(0x10);
  body.clear_epoch = ClearEpoch{3};
  body.leading_run = true;
  body.keys.push_back({CountingId<BlockKey>(0x20), 70'000});
  body.keys.push_back({CountingId<BlockKey>(0x21), 1});

  EXPECT_EQ(ToHex(EncodeRead(body)), golden_.Hex("read"));
  EXPECT_THAT(DecodeRead(golden_.Bytes("read")), IsOk());
}

TEST_F(GoldenFrame, BlocksAreTheDocumentedOnes) {
  BlockBody hit;
  hit.index = 1;
  hit.outcome = Outcome::kHit;
  hit.header = SampleHeader();
  BlockBody congested;
  congested.index = 2;
  congested.outcome = Outcome::kCongested;
  congested.retry_after = absl::Milliseconds(20);

  EXPECT_EQ(ToHex(EncodeBlock(hit)), golden_.Hex("block, hit"));
  EXPECT_EQ(ToHex(EncodeBlock(congested)), golden_.Hex("block, congested"));
  EXPECT_THAT(DecodeBlock(golden_.Bytes("block, hit")), IsOk());
}

TEST_F(GoldenFrame, FoundCorruptIsTheDocumentedOne) {
  const FoundCorruptBody body{
      .block = {CountingId<NamespaceId>(0x10), CountingId<BlockKey>(0x20)},
      .generation = Generation{9}};

  EXPECT_EQ(ToHex(EncodeFoundCorrupt(body)), golden_.Hex("found corrupt"));
  EXPECT_THAT(DecodeFoundCorrupt(golden_.Bytes("found corrupt")), IsOk());
}

class GoldenSessionFrame : public ::testing::Test {
 protected:
  const GoldenFile golden_{"session_frame.hex"};
};

TEST_F(GoldenSessionFrame, APacketIsTheDocumentedOne) {
  EXPECT_EQ(ToHex(EncodeCallPacket(
                FrameType::kCallRelease, 9,
                EncodeCallRelease({.session = CountingId<SessionId>(0x70),
                                   .leases = {5, 6}}))),
            golden_.Hex("packet of a release"));
}

TEST_F(GoldenSessionFrame, BodiesOfReadsAreTheDocumentedOnes) {
  EXPECT_EQ(ToHex(EncodeCallOpenRead(SampleCallOpenRead())),
            golden_.Hex("open read"));
  EXPECT_EQ(ToHex(EncodeCallOpened(SampleCallOpened())), golden_.Hex("opened"));
  EXPECT_THAT(DecodeCallOpenRead(golden_.Bytes("open read")), IsOk());
  EXPECT_THAT(DecodeCallOpened(golden_.Bytes("opened")), IsOk());
}

TEST_F(GoldenSessionFrame, BodiesOfWritesAreTheDocumentedOnes) {
  const CallCommittedBody committed{
      .retry_after = absl::Milliseconds(20),
      .outcomes = {Outcome::kStored, Outcome::kCongested}};

  EXPECT_EQ(ToHex(EncodeCallReserve(SampleCallReserve())),
            golden_.Hex("reserve"));
  EXPECT_EQ(ToHex(EncodeCallReserved(SampleCallReserved())),
            golden_.Hex("reserved"));
  EXPECT_EQ(ToHex(EncodeCallCommit(SampleCallCommit())), golden_.Hex("commit"));
  EXPECT_EQ(ToHex(EncodeCallCommitted(committed)), golden_.Hex("committed"));
}

}  // namespace
}  // namespace firnkv
