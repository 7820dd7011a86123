// What a flash device holds, byte for byte: encode, decode, and the arithmetic
// of where things lie. Documented in docs/FLASH_FORMAT.md; the golden bytes are
// tests/format/golden/flash.hex.
//
//     superblock  twice, pages 0 and 1
//     segments    from kFlashDataOffset on, all of one size, each:
//         header page
//         records, each 8-byte aligned: header, payload
//         ...
//         table of contents, in whole pages
//         seal page, the segment's last
//
// Everything has a magic, and a checksum over all of it; what belongs to a
// segment says which segment of which lap it is, so that what an earlier lap
// left, and what landed in a wrong place, is never taken for it (rule F1).
//
// Pure code: no I/O, no clock, no state. Decoders take bytes of an outsider.

#ifndef FIRNKV_SERVER_TIER_FLASH_FORMAT_H_
#define FIRNKV_SERVER_TIER_FLASH_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/bytes.h"
#include "proto/base/id.h"
#include "proto/base/slot_header.h"
#include "server/io/block_device.h"

namespace firnkv {

// Random, made when a device is formatted: a device is found by it and not by
// its path.
using FlashDeviceId = ByteId<struct FlashDeviceIdTag, 16>;

// One writing of one segment: how often the device's segments were written in
// the high half, random bits in the low one, so that a lap whose header was
// lost is not given again. Zero is none.
enum class FlashLap : std::uint64_t { kNone = 0 };

inline constexpr std::uint16_t kFlashFormatVersion = 1;
inline constexpr std::uint64_t kFlashPage = kDeviceAlignment;
// Room for the superblocks, and segments that start on a MiB.
inline constexpr std::uint64_t kFlashDataOffset = kMiB;
// Offsets within a segment are counted in these, in 32 bits: 32 GiB.
inline constexpr std::uint64_t kRecordAlignment = 8;
inline constexpr std::uint64_t kLargestSegmentBytes = 32 * kGiB;
// A segment is closed before a record that does not fit, so what that leaves
// empty is at most a fiftieth of it.
inline constexpr std::uint64_t kRecordsASegment = 50;
// A tenant's namespaces and their epochs in one table of contents.
inline constexpr std::size_t kMaxSegmentNamespaces = 65'535;

// --- The device.

struct FlashSuperblock {
  ClusterId cluster;
  FlashDeviceId device;
  NodeId node;
  // Rises with each writing; the higher of the two valid ones counts.
  std::uint64_t sequence = 0;
  std::uint64_t segment_bytes = 0;
  std::uint32_t segments = 0;
  std::uint64_t largest_block_bytes = 0;
  std::int64_t formatted_nanos = 0;

  std::uint64_t SegmentOffset(std::uint32_t segment) const {
    return kFlashDataOffset + segment * segment_bytes;
  }
  friend bool operator==(const FlashSuperblock&,
                         const FlashSuperblock&) = default;
};

// One page.
std::string EncodeSuperblock(const FlashSuperblock& superblock);
// NOT_FOUND: there never was one (zeros). DATA_LOSS: something else, or damage.
// FAILED_PRECONDITION: of a newer version, whose layout this build does not
// know.
absl::StatusOr<FlashSuperblock> DecodeSuperblock(std::string_view page);

// Segments for blocks of up to `largest_block_bytes` on `device_bytes`: at
// least kRecordsASegment of the largest record, and at least
// `least_segment_bytes`. INVALID_ARGUMENT where that leaves fewer than four.
absl::StatusOr<FlashSuperblock> PlanSegments(std::uint64_t device_bytes,
                                             std::uint64_t largest_block_bytes,
                                             std::uint64_t least_segment_bytes);

// --- A segment.

// Which segment, and which of its lives: stands in everything in it.
struct SegmentName {
  FlashDeviceId device;
  std::uint32_t segment = 0;
  FlashLap lap = FlashLap::kNone;
  TenantId tenant;
  friend bool operator==(const SegmentName&, const SegmentName&) = default;
};

// One page each. The header is flushed before the lap's first record.
std::string EncodeSegmentHeader(const SegmentName& name);
std::optional<SegmentName> DecodeSegmentHeader(std::string_view page);

struct SegmentSeal {
  SegmentName name;
  // Of the encoded table of contents, which ends where the seal's page begins
  // but for zeros that fill its last page.
  std::uint64_t contents_bytes = 0;
  std::uint32_t records = 0;
  // Where the last record ends.
  std::uint64_t data_end = 0;
  friend bool operator==(const SegmentSeal&, const SegmentSeal&) = default;
};
std::string EncodeSeal(const SegmentSeal& seal);
std::optional<SegmentSeal> DecodeSeal(std::string_view page);

constexpr std::uint64_t SealOffset(std::uint64_t segment_bytes) {
  return segment_bytes - kFlashPage;
}
constexpr std::uint64_t ContentsOffset(std::uint64_t segment_bytes,
                                       std::uint64_t contents_bytes) {
  return SealOffset(segment_bytes) - AlignUp(contents_bytes, kFlashPage);
}

// --- A record.

// Where a record of `length` bytes lies, whose header would begin at or after
// `from`, within its segment.
struct RecordPlace {
  std::uint64_t offset = 0;
  std::uint64_t payload = 0;
  std::uint64_t end = 0;
  // Header and payload in pages of their own: device reads may go straight into
  // a slot (rule C5). Only where that costs at most a 64th.
  bool padded = false;
  friend bool operator==(const RecordPlace&, const RecordPlace&) = default;
};
RecordPlace PlaceRecord(std::uint64_t from, std::uint64_t length);
// Of a record that is known to begin at `offset`.
RecordPlace PlaceRecordAt(std::uint64_t offset, std::uint64_t length,
                          bool padded);

std::uint64_t RecordHeaderBytes(std::uint64_t length);

struct RecordHeader {
  FlashLap lap = FlashLap::kNone;
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  bool padded = false;
  // Of encryption at rest; zero: none, the only one yet.
  std::uint32_t key_id = 0;
  SlotHeader header;
  friend bool operator==(const RecordHeader&, const RecordHeader&) = default;
};
std::string EncodeRecordHeader(const RecordHeader& record);
// From the front of `bytes`; nullopt if it is torn, insane or of a newer
// version. Says nothing of the payload.
std::optional<RecordHeader> DecodeRecordHeader(std::string_view bytes);

// --- A table of contents.

struct ContentsEntry {
  std::uint64_t offset = 0;
  bool padded = false;
  BlockId block;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  ChainPlace place;
  std::uint64_t length = 0;
  friend bool operator==(const ContentsEntry&, const ContentsEntry&) = default;
};
struct SegmentContents {
  SegmentName name;
  // In the order of their offsets.
  std::vector<ContentsEntry> entries;
  friend bool operator==(const SegmentContents&,
                         const SegmentContents&) = default;
};
std::string EncodeContents(const SegmentContents& contents);
// nullopt if torn, insane, or with entries that overlap or are out of order.
std::optional<SegmentContents> DecodeContents(std::string_view bytes);

// Bytes of a table with as many entries, of as many (namespace, epoch) pairs.
constexpr std::uint64_t ContentsBytes(std::uint64_t entries,
                                      std::uint64_t pairs) {
  return 64 + 24 * pairs + 124 * entries + 4;
}

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_FORMAT_H_
