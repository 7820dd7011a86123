#include "server/tier/flash_format.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

constexpr std::string_view kSuperblockMagic("FirnKVfl", 8);
constexpr std::uint32_t kHeaderMagic = 0x68536e46;    // "FnSh"
constexpr std::uint32_t kSealMagic = 0x6c536e46;      // "FnSl"
constexpr std::uint32_t kRecordMagic = 0x63526e46;    // "FnRc"
constexpr std::uint32_t kContentsMagic = 0x63546e46;  // "FnTc"

constexpr std::uint16_t kPadded = 1;
// Ahead of the slot header: magic 4, version 2, flags 2, lap 8, segment 4,
// offset 4, key id 4.
constexpr std::uint64_t kRecordLeadBytes = 28;
constexpr std::uint64_t kSlotHeaderBytes = 208;
// A record is padded where that costs at most this share of it.
constexpr std::uint64_t kPaddingShare = 64;

absl::Span<const std::byte> BytesOf(std::string_view bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

void AppendCrc(std::string* out) { WireWriter(out).U32(Crc32c(BytesOf(*out))); }

bool CrcMatches(std::string_view bytes) {
  if (bytes.size() < 4) return false;
  WireReader tail(bytes.substr(bytes.size() - 4));
  return tail.U32() == Crc32c(BytesOf(bytes.substr(0, bytes.size() - 4)));
}

// A page: content, its CRC in the page's last 4 bytes, zeros between.
std::string SealPage(std::string content) {
  CHECK(content.size() <= kFlashPage - 4);
  content.resize(kFlashPage - 4);
  AppendCrc(&content);
  return content;
}

// Its content; empty where the checksum differs or the tail is not zero.
std::string_view OpenPage(std::string_view page, std::size_t content_bytes) {
  if (page.size() != kFlashPage || !CrcMatches(page)) return {};
  const std::string_view rest =
      page.substr(content_bytes, kFlashPage - 4 - content_bytes);
  if (rest.find_first_not_of('\0') != std::string_view::npos) return {};
  return page.substr(0, content_bytes);
}

void PutName(const SegmentName& name, WireWriter* out) {
  out->Id(name.device);
  out->Id(name.tenant);
  out->U64(static_cast<std::uint64_t>(name.lap));
  out->U32(name.segment);
}
constexpr std::size_t kNameBytes = 16 + 16 + 8 + 4;

SegmentName TakeName(WireReader* in) {
  SegmentName name;
  name.device = in->TakeId<FlashDeviceId>();
  name.tenant = in->TakeId<TenantId>();
  name.lap = FlashLap{in->U64()};
  name.segment = in->U32();
  return name;
}

bool IsSane(const SegmentName& name) {
  return !name.device.IsZero() && !name.tenant.IsZero() &&
         name.lap != FlashLap::kNone;
}

// magic, version, zero.
void PutLead(std::uint32_t magic, WireWriter* out) {
  out->U32(magic);
  out->U16(kFlashFormatVersion);
  out->U16(0);
}
bool TakeLead(std::uint32_t magic, WireReader* in) {
  return in->U32() == magic && in->U16() == kFlashFormatVersion &&
         in->U16() == 0;
}

std::uint32_t ToUnits(std::uint64_t offset) {
  CHECK(offset % kRecordAlignment == 0 && offset < kLargestSegmentBytes);
  return static_cast<std::uint32_t>(offset / kRecordAlignment);
}

constexpr std::size_t kSuperblockBytes = 8 + 4 + 3 * 16 + 4 * 8 + 8 + 4 + 4;

bool IsSane(const FlashSuperblock& block) {
  return !block.device.IsZero() && !block.cluster.IsZero() &&
         !block.node.IsZero() && block.segments > 0 &&
         block.segment_bytes % kFlashPage == 0 &&
         block.segment_bytes >= 4 * kFlashPage &&
         block.segment_bytes <= kLargestSegmentBytes &&
         block.largest_block_bytes > 0 &&
         block.largest_block_bytes <= kLargestBlockBytes;
}

}  // namespace

// --- The device.

std::string EncodeSuperblock(const FlashSuperblock& superblock) {
  CHECK(IsSane(superblock));
  std::string page;
  WireWriter out(&page);
  out.Bytes(kSuperblockMagic);
  out.U16(kFlashFormatVersion);
  out.U16(0);
  out.Id(superblock.cluster);
  out.Id(superblock.device);
  out.Id(superblock.node);
  out.U64(superblock.sequence);
  out.U64(superblock.segment_bytes);
  out.U64(superblock.largest_block_bytes);
  out.U64(static_cast<std::uint64_t>(superblock.formatted_nanos));
  out.U64(kFlashDataOffset);
  out.U32(superblock.segments);
  out.U32(0);
  CHECK(page.size() == kSuperblockBytes);
  return SealPage(std::move(page));
}

absl::StatusOr<FlashSuperblock> DecodeSuperblock(std::string_view page) {
  if (page.size() == kFlashPage &&
      page.find_first_not_of('\0') == std::string_view::npos) {
    return absl::NotFoundError("no superblock");
  }
  if (page.size() != kFlashPage || !CrcMatches(page) ||
      page.substr(0, kSuperblockMagic.size()) != kSuperblockMagic) {
    return absl::DataLossError("not a superblock, or a damaged one");
  }
  WireReader in(page.substr(kSuperblockMagic.size()));
  const std::uint16_t version = in.U16();
  if (version > kFlashFormatVersion) {
    return absl::FailedPreconditionError(
        StrCat("flash format version ", int{version},
               "; this build knows up to ", int{kFlashFormatVersion}));
  }
  FlashSuperblock block;
  const std::uint16_t zero = in.U16();
  block.cluster = in.TakeId<ClusterId>();
  block.device = in.TakeId<FlashDeviceId>();
  block.node = in.TakeId<NodeId>();
  block.sequence = in.U64();
  block.segment_bytes = in.U64();
  block.largest_block_bytes = in.U64();
  block.formatted_nanos = static_cast<std::int64_t>(in.U64());
  const std::uint64_t data_offset = in.U64();
  block.segments = in.U32();
  if (version == 0 || zero != 0 || in.U32() != 0 ||
      data_offset != kFlashDataOffset || !IsSane(block) ||
      OpenPage(page, kSuperblockBytes).empty()) {
    return absl::DataLossError("a superblock that cannot be");
  }
  return block;
}

absl::StatusOr<FlashSuperblock> PlanSegments(
    std::uint64_t device_bytes, std::uint64_t largest_block_bytes,
    std::uint64_t least_segment_bytes) {
  if (largest_block_bytes == 0 || largest_block_bytes > kLargestBlockBytes) {
    return absl::InvalidArgumentError(
        StrCat("largest block of ", largest_block_bytes, " bytes; 1 to ",
               kLargestBlockBytes, " are possible"));
  }
  // From the middle of a page on, it is as long as it can be.
  const RecordPlace largest =
      PlaceRecord(kRecordAlignment, largest_block_bytes);
  FlashSuperblock plan;
  plan.largest_block_bytes = largest_block_bytes;
  plan.segment_bytes = AlignUp(
      std::max(kRecordsASegment * AlignUp(largest.end, kFlashPage) +
                   2 * kFlashPage +
                   AlignUp(ContentsBytes(kRecordsASegment, kRecordsASegment),
                           kFlashPage),
               least_segment_bytes),
      kFlashPage);
  const std::uint64_t room =
      device_bytes > kFlashDataOffset ? device_bytes - kFlashDataOffset : 0;
  const std::uint64_t segments = room / plan.segment_bytes;
  if (plan.segment_bytes > kLargestSegmentBytes || segments < 4 ||
      segments >= UINT32_MAX) {
    return absl::InvalidArgumentError(
        StrCat(device_bytes, " bytes have room for ", segments, " segments of ",
               plan.segment_bytes, " bytes, which blocks of up to ",
               largest_block_bytes,
               " need; at least 4 are needed: more bytes, or smaller blocks"));
  }
  plan.segments = static_cast<std::uint32_t>(segments);
  return plan;
}

// --- A segment.

std::string EncodeSegmentHeader(const SegmentName& name) {
  CHECK(IsSane(name));
  std::string page;
  WireWriter out(&page);
  PutLead(kHeaderMagic, &out);
  PutName(name, &out);
  return SealPage(std::move(page));
}

std::optional<SegmentName> DecodeSegmentHeader(std::string_view page) {
  WireReader in(OpenPage(page, 8 + kNameBytes));
  if (!TakeLead(kHeaderMagic, &in)) return std::nullopt;
  const SegmentName name = TakeName(&in);
  if (!in.AtEnd() || !IsSane(name)) return std::nullopt;
  return name;
}

std::string EncodeSeal(const SegmentSeal& seal) {
  CHECK(IsSane(seal.name));
  std::string page;
  WireWriter out(&page);
  PutLead(kSealMagic, &out);
  PutName(seal.name, &out);
  out.U32(seal.records);
  out.U64(seal.contents_bytes);
  out.U64(seal.data_end);
  return SealPage(std::move(page));
}

std::optional<SegmentSeal> DecodeSeal(std::string_view page) {
  WireReader in(OpenPage(page, 8 + kNameBytes + 4 + 8 + 8));
  if (!TakeLead(kSealMagic, &in)) return std::nullopt;
  SegmentSeal seal;
  seal.name = TakeName(&in);
  seal.records = in.U32();
  seal.contents_bytes = in.U64();
  seal.data_end = in.U64();
  if (!in.AtEnd() || !IsSane(seal.name) || seal.data_end < kFlashPage ||
      seal.data_end > kLargestSegmentBytes ||
      seal.contents_bytes < ContentsBytes(seal.records, 0) ||
      seal.contents_bytes > ContentsBytes(seal.records, seal.records)) {
    return std::nullopt;
  }
  return seal;
}

// --- A record.

std::uint64_t RecordHeaderBytes(std::uint64_t length) {
  return kRecordLeadBytes + kSlotHeaderBytes +
         4 * DivideUp(length, kPieceBytes) + 4;
}

RecordPlace PlaceRecordAt(std::uint64_t offset, std::uint64_t length,
                          bool padded) {
  RecordPlace place;
  place.offset = offset;
  place.padded = padded;
  place.payload = offset + RecordHeaderBytes(length);
  if (padded) place.payload = AlignUp(place.payload, kFlashPage);
  place.end =
      AlignUp(place.payload + length, padded ? kFlashPage : kRecordAlignment);
  return place;
}

RecordPlace PlaceRecord(std::uint64_t from, std::uint64_t length) {
  const RecordPlace padded =
      PlaceRecordAt(AlignUp(from, kFlashPage), length, true);
  if ((padded.end - padded.offset - length) * kPaddingShare <= length) {
    return padded;
  }
  return PlaceRecordAt(AlignUp(from, kRecordAlignment), length, false);
}

std::string EncodeRecordHeader(const RecordHeader& record) {
  CHECK(IsSane(record.header) && record.lap != FlashLap::kNone);
  std::string bytes;
  WireWriter out(&bytes);
  out.U32(kRecordMagic);
  out.U16(kFlashFormatVersion);
  out.U16(record.padded ? kPadded : 0);
  out.U64(static_cast<std::uint64_t>(record.lap));
  out.U32(record.segment);
  out.U32(ToUnits(record.offset));
  out.U32(record.key_id);
  AppendSlotHeader(record.header, &bytes);
  AppendCrc(&bytes);
  CHECK(bytes.size() == RecordHeaderBytes(record.header.length));
  return bytes;
}

std::optional<RecordHeader> DecodeRecordHeader(std::string_view bytes) {
  WireReader in(bytes);
  if (in.U32() != kRecordMagic || in.U16() != kFlashFormatVersion) {
    return std::nullopt;
  }
  const std::uint16_t flags = in.U16();
  RecordHeader record;
  record.padded = flags == kPadded;
  record.lap = FlashLap{in.U64()};
  record.segment = in.U32();
  record.offset = std::uint64_t{in.U32()} * kRecordAlignment;
  record.key_id = in.U32();
  if (!in.ok() || flags > kPadded || record.lap == FlashLap::kNone) {
    return std::nullopt;
  }
  std::string_view rest = bytes.substr(kRecordLeadBytes);
  std::optional<SlotHeader> header = TakeSlotHeader(&rest);
  if (!header || rest.size() < 4 ||
      !CrcMatches(bytes.substr(0, bytes.size() - rest.size() + 4))) {
    return std::nullopt;
  }
  record.header = *std::move(header);
  return record;
}

// --- A table of contents.

namespace {

using EpochOf = std::pair<NamespaceId, ClearEpoch>;

void PutEntry(const ContentsEntry& entry, std::uint16_t name_space,
              WireWriter* out) {
  CHECK(entry.length > 0 && entry.length <= kLargestBlockBytes);
  out->U32(ToUnits(entry.offset));
  out->U16(name_space);
  out->U16(entry.padded ? kPadded : 0);
  out->Id(entry.block.key);
  out->Id(entry.place.parent);
  out->Id(entry.place.anchor);
  out->U32(entry.place.position);
  out->U32(entry.place.first_token);
  out->U32(entry.place.tokens);
  out->U16(entry.place.shard.count);
  out->U16(entry.place.shard.index);
  out->U32(static_cast<std::uint32_t>(entry.length));
}

// False: what cannot be.
bool TakeEntry(const std::vector<EpochOf>& pairs, std::size_t* named,
               WireReader* in, ContentsEntry* entry) {
  entry->offset = std::uint64_t{in->U32()} * kRecordAlignment;
  const std::uint16_t pair = in->U16();
  const std::uint16_t flags = in->U16();
  if (pair >= pairs.size() || flags > kPadded || pair > *named) return false;
  // In the order in which they are first named, so that no table has two
  // encodings.
  if (pair == *named) ++*named;
  entry->padded = flags == kPadded;
  entry->block.name_space = pairs[pair].first;
  entry->clear_epoch = pairs[pair].second;
  entry->block.key = in->TakeId<BlockKey>();
  entry->place.parent = in->TakeId<BlockKey>();
  entry->place.anchor = in->TakeId<BlockKey>();
  entry->place.position = in->U32();
  entry->place.first_token = in->U32();
  entry->place.tokens = in->U32();
  entry->place.shard.count = in->U16();
  entry->place.shard.index = in->U16();
  entry->length = in->U32();
  return !entry->block.key.IsZero() &&
         entry->place.shard.index < entry->place.shard.count &&
         entry->length > 0 && entry->length <= kLargestBlockBytes;
}

// Pairs in the order in which entries first name them.
std::vector<EpochOf> PairsOf(const std::vector<ContentsEntry>& entries,
                             std::vector<std::uint16_t>* named) {
  std::vector<EpochOf> pairs;
  absl::flat_hash_map<EpochOf, std::uint16_t> numbers;
  for (const ContentsEntry& entry : entries) {
    const EpochOf pair{entry.block.name_space, entry.clear_epoch};
    const auto [it, added] =
        numbers.try_emplace(pair, static_cast<std::uint16_t>(pairs.size()));
    if (added) pairs.push_back(pair);
    named->push_back(it->second);
  }
  CHECK(pairs.size() <= kMaxSegmentNamespaces);
  return pairs;
}

}  // namespace

std::string EncodeContents(const SegmentContents& contents) {
  CHECK(IsSane(contents.name));
  std::vector<std::uint16_t> named;
  const std::vector<EpochOf> pairs = PairsOf(contents.entries, &named);
  std::string bytes;
  bytes.reserve(ContentsBytes(contents.entries.size(), pairs.size()));
  WireWriter out(&bytes);
  PutLead(kContentsMagic, &out);
  PutName(contents.name, &out);
  out.U32(static_cast<std::uint32_t>(contents.entries.size()));
  out.U32(static_cast<std::uint32_t>(pairs.size()));
  out.U32(0);
  for (const EpochOf& pair : pairs) {
    out.Id(pair.first);
    out.U64(static_cast<std::uint64_t>(pair.second));
  }
  for (std::size_t i = 0; i < contents.entries.size(); ++i) {
    PutEntry(contents.entries[i], named[i], &out);
  }
  AppendCrc(&bytes);
  CHECK(bytes.size() == ContentsBytes(contents.entries.size(), pairs.size()));
  return bytes;
}

std::optional<SegmentContents> DecodeContents(std::string_view bytes) {
  if (!CrcMatches(bytes)) return std::nullopt;
  WireReader in(bytes.substr(0, bytes.size() - 4));
  if (!TakeLead(kContentsMagic, &in)) return std::nullopt;
  SegmentContents contents;
  contents.name = TakeName(&in);
  const std::uint32_t entries = in.U32();
  const std::uint32_t count = in.U32();
  const std::uint32_t zero = in.U32();
  if (!IsSane(contents.name) || zero != 0 || count > kMaxSegmentNamespaces ||
      ContentsBytes(entries, count) != bytes.size()) {
    return std::nullopt;
  }
  std::vector<EpochOf> pairs;
  absl::flat_hash_set<EpochOf> distinct;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto name_space = in.TakeId<NamespaceId>();
    const ClearEpoch epoch{in.U64()};
    if (name_space.IsZero() || epoch == ClearEpoch::kUnknown ||
        !distinct.emplace(name_space, epoch).second) {
      return std::nullopt;
    }
    pairs.emplace_back(name_space, epoch);
  }
  contents.entries.resize(entries);
  std::uint64_t end = kFlashPage;
  std::size_t named = 0;
  for (ContentsEntry& entry : contents.entries) {
    if (!TakeEntry(pairs, &named, &in, &entry)) return std::nullopt;
    const RecordPlace place =
        PlaceRecordAt(entry.offset, entry.length, entry.padded);
    if (place.offset < end) return std::nullopt;
    if (entry.padded && entry.offset % kFlashPage != 0) return std::nullopt;
    end = place.end;
  }
  if (!in.AtEnd() || named != pairs.size()) return std::nullopt;
  return contents;
}

}  // namespace firnkv
