// The flash tier's bytes against their golden ones, both ways. If one of these
// fails, the format changed: docs/FLASH_FORMAT.md says what else must change
// then.

#include "server/tier/flash_format.h"

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "proto/base/wire.h"
#include "tests/format/golden_file.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kSegment = 7;
constexpr FlashLap kLap{5ULL << 32 | 0x89abcdef};

FlashSuperblock ASuperblock() {
  FlashSuperblock block;
  block.cluster = CountingId<ClusterId>(0xd0);
  block.device = CountingId<FlashDeviceId>(0xb0);
  block.node = CountingId<NodeId>(0xa0);
  block.sequence = 3;
  block.segment_bytes = 64 * kMiB;
  block.segments = 16;
  block.largest_block_bytes = kMiB;
  block.formatted_nanos = 1'700'000'000'123'456'789;
  return block;
}

SegmentName AName() {
  return {.device = CountingId<FlashDeviceId>(0xb0),
          .segment = kSegment,
          .lap = kLap,
          .tenant = CountingId<TenantId>(0xf0)};
}

RecordHeader ARecord() {
  RecordHeader record;
  record.lap = kLap;
  record.segment = kSegment;
  record.offset = kFlashPage;
  record.header = SampleHeader();
  return record;
}

ContentsEntry AnEntry(const RecordPlace& place, std::uint8_t key,
                      std::uint64_t length) {
  ContentsEntry entry;
  entry.offset = place.offset;
  entry.padded = place.padded;
  entry.block.name_space = CountingId<NamespaceId>(0x10);
  entry.block.key = CountingId<BlockKey>(key);
  entry.clear_epoch = ClearEpoch{3};
  entry.place = SampleHeader().place;
  entry.length = length;
  return entry;
}

std::vector<RecordPlace> Places() {
  std::vector<RecordPlace> places;
  places.push_back(PlaceRecord(kFlashPage, 70'000));
  places.push_back(PlaceRecord(places[0].end, 262'144));
  places.push_back(PlaceRecord(places[1].end, 5'000));
  return places;
}

SegmentContents AContents() {
  const std::vector<RecordPlace> places = Places();
  SegmentContents contents;
  contents.name = AName();
  contents.entries = {AnEntry(places[0], 0x20, 70'000),
                      AnEntry(places[1], 0x21, 262'144),
                      AnEntry(places[2], 0x22, 5'000)};
  contents.entries[1].block.name_space = CountingId<NamespaceId>(0x11);
  contents.entries[1].clear_epoch = ClearEpoch{1};
  return contents;
}

SegmentSeal ASeal() {
  SegmentSeal seal;
  seal.name = AName();
  seal.records = 3;
  seal.contents_bytes = EncodeContents(AContents()).size();
  seal.data_end = AlignUp(Places()[2].end, kFlashPage);
  return seal;
}

class GoldenFlash : public testing::Test {
 protected:
  const GoldenFile golden_{"flash.hex"};
};

TEST_F(GoldenFlash, BytesAreTheDocumentedOnes) {
  EXPECT_EQ(ToHex(EncodeSuperblock(ASuperblock())), golden_.Hex("superblock"));
  EXPECT_EQ(ToHex(EncodeSegmentHeader(AName())), golden_.Hex("segment header"));
  EXPECT_EQ(ToHex(EncodeRecordHeader(ARecord())), golden_.Hex("record header"));
  EXPECT_EQ(ToHex(EncodeContents(AContents())),
            golden_.Hex("table of contents"));
  EXPECT_EQ(ToHex(EncodeSeal(ASeal())), golden_.Hex("seal"));
}

TEST_F(GoldenFlash, RecordsLieWhereTheDocumentSays) {
  std::string bytes;
  WireWriter out(&bytes);
  for (const RecordPlace& place : Places()) {
    out.U64(place.offset);
    out.U64(place.payload);
    out.U64(place.end);
    out.U64(place.padded ? 1 : 0);
  }

  EXPECT_EQ(ToHex(bytes), golden_.Hex("places of three records"));
}

TEST_F(GoldenFlash, DocumentedBytesDecode) {
  EXPECT_THAT(DecodeSuperblock(golden_.Bytes("superblock")),
              IsOkAndHolds(ASuperblock()));
  EXPECT_EQ(DecodeSegmentHeader(golden_.Bytes("segment header")), AName());
  EXPECT_EQ(DecodeRecordHeader(golden_.Bytes("record header")), ARecord());
  EXPECT_EQ(DecodeContents(golden_.Bytes("table of contents")), AContents());
  EXPECT_EQ(DecodeSeal(golden_.Bytes("seal")), ASeal());
}

// `page` as a build of another version would have written it.
std::string OfVersion(std::string page, std::uint16_t version) {
  std::memcpy(page.data() + 8, &version, sizeof(version));
  page.resize(kFlashPage - 4);
  const std::uint32_t crc =
      Crc32c({reinterpret_cast<const std::byte*>(page.data()), page.size()});
  WireWriter(&page).U32(crc);
  return page;
}

TEST(FlashSuperblockTest, ANewerFormatIsRefusedAndNeverTakenForDamage) {
  EXPECT_THAT(DecodeSuperblock(OfVersion(EncodeSuperblock(ASuperblock()), 1)),
              IsOkAndHolds(ASuperblock()));
  EXPECT_THAT(DecodeSuperblock(OfVersion(EncodeSuperblock(ASuperblock()), 2)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(DecodeSuperblock(OfVersion(EncodeSuperblock(ASuperblock()), 0)),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(FlashSuperblockTest, ZerosAreNoSuperblockAndAnythingElseIsDamage) {
  EXPECT_THAT(DecodeSuperblock(std::string(kFlashPage, '\0')),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(DecodeSuperblock(std::string(kFlashPage, 'x')),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace firnkv
