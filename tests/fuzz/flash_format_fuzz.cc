// What a flash device holds (server/tier/flash_format.h), with right checksums
// over whatever fields.

#include "proto/base/check.h"
#include "server/tier/flash_format.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t {
  kSuperblock,
  kSegmentHeader,
  kSeal,
  kRecord,
  kRecordWithSlotHeader,
  kContents,
  kParts,
};

// A page of content: zeros up to its checksum.
std::string Page(std::string_view content) {
  std::string page(content.substr(0, kFlashPage - 4));
  page.resize(kFlashPage - 4);
  return WithCrc(page);
}

SegmentName AName() {
  return {.device = CountingId<FlashDeviceId>(0xb0),
          .segment = 7,
          .lap = FlashLap{9},
          .tenant = CountingId<TenantId>(0xf0)};
}

RecordHeader ARecord() {
  RecordHeader record;
  record.lap = FlashLap{9};
  record.segment = 7;
  record.offset = kFlashPage;
  record.header = SampleHeader();
  return record;
}

SegmentContents AContents() {
  SegmentContents contents;
  contents.name = AName();
  std::uint64_t at = kFlashPage;
  for (int i = 0; i < 3; ++i) {
    ContentsEntry entry;
    const RecordPlace place = PlaceRecord(at, 5000);
    entry.offset = place.offset;
    entry.block = SampleHeader().block;
    entry.clear_epoch = ClearEpoch{1U + static_cast<unsigned>(i) % 2};
    entry.place = SampleHeader().place;
    entry.length = 5000;
    contents.entries.push_back(entry);
    at = place.end;
  }
  return contents;
}

void TrySuperblock(std::string_view page) {
  const absl::StatusOr<FlashSuperblock> block = DecodeSuperblock(page);
  if (block.ok()) {
    CHECK(EncodeSuperblock(*block) == page);
  } else {
    CHECK(absl::IsDataLoss(block.status()) ||
          absl::IsNotFound(block.status()) ||
          absl::IsFailedPrecondition(block.status()));
  }
}

void TryRecord(std::string_view bytes) {
  const std::optional<RecordHeader> record = DecodeRecordHeader(bytes);
  if (!record) return;
  CHECK(IsSane(record->header));
  const std::string again = EncodeRecordHeader(*record);
  CHECK(again == bytes.substr(0, again.size()));
  // Where a reader would look for its payload is bounded.
  const RecordPlace place =
      PlaceRecordAt(record->offset, record->header.length, record->padded);
  CHECK(place.payload >= place.offset + again.size());
  CHECK(place.end >= place.payload + record->header.length);
}

void TryContents(std::string_view bytes) {
  const std::optional<SegmentContents> contents = DecodeContents(bytes);
  if (contents) CHECK(EncodeContents(*contents) == bytes);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  FlashSuperblock block;
  block.cluster = CountingId<ClusterId>(0xd0);
  block.device = CountingId<FlashDeviceId>(0xb0);
  block.node = CountingId<NodeId>(0xa0);
  block.sequence = 3;
  block.segment_bytes = kMiB;
  block.segments = 16;
  block.largest_block_bytes = 4096;
  SegmentSeal seal;
  seal.name = AName();
  seal.records = 3;
  seal.contents_bytes = EncodeContents(AContents()).size();
  seal.data_end = 5 * kFlashPage;
  const std::string record = EncodeRecordHeader(ARecord());
  // The slot header within: its checksum, and the record's.
  return {Seed(kSuperblock, EncodeSuperblock(block).substr(0, 120)),
          Seed(kSegmentHeader, EncodeSegmentHeader(AName()).substr(0, 60)),
          Seed(kSeal, EncodeSeal(seal).substr(0, 80)),
          Seed(kRecord, record),
          Seed(kRecordWithSlotHeader, record.substr(0, record.size() - 8)),
          Seed(kContents, WithoutCrc(EncodeContents(AContents())))};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  const std::uint8_t part = input.U8() % kParts;
  const std::string_view rest = input.Rest();
  switch (part) {
    case kSuperblock:
      TrySuperblock(Page(rest));
      break;
    case kSegmentHeader: {
      const std::string page = Page(rest);
      const auto name = DecodeSegmentHeader(page);
      if (name) CHECK(EncodeSegmentHeader(*name) == page);
      break;
    }
    case kSeal: {
      const std::string page = Page(rest);
      const auto seal = DecodeSeal(page);
      if (seal) CHECK(EncodeSeal(*seal) == page);
      break;
    }
    case kRecord:
      TryRecord(rest);
      break;
    case kRecordWithSlotHeader: {
      // Right checksums of the slot header within, and of the whole.
      const std::string_view lead = rest.substr(0, 28);
      const std::string_view slot = rest.substr(lead.size());
      TryRecord(WithCrc(std::string(lead) + WithCrc(slot)));
      break;
    }
    case kContents:
      TryContents(WithCrc(rest));
      break;
  }
  return 0;
}
