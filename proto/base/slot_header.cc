#include "proto/base/slot_header.h"

#include <new>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/wire.h"

// Proof of the sequence lock (rule P5).
//
// The rule states it with fences around relaxed accesses. Here each word is
// stored with release and loaded with acquire, which is stronger, costs nothing
// on x86 and is understood by ThreadSanitizer, which knows no fences.
//
// A write w stores an odd sequence, then the words, then an even one; sequences
// only grow, and no number is used twice in a table. A read loads an even
// sequence s1, then words, then the sequence again, s2, and counts only if
// s1 == s2.
//   1. Not older: s1 was stored with release after the words of its write, and
//      loaded with acquire, so each word read is of that write or a later one.
//   2. Not newer: if a word read is of a later write w, its release store
//      synchronizes with our acquire load. The odd sequence of w is sequenced
//      before that store, so it happens before our load of s2, which therefore
//      sees that one or a later one: s2 != s1.
// Hence all words are of the one write. Pieces are words of the same kind.
//
// Proof of the second look (rule P4). ReadGeneration needs no sequence: a
// generation is one word. The node lets no byte of a slot change before Bump
// has returned, and Bump ends in a release fence: whoever sees a byte written
// after it, and then passes an acquire fence, sees the bumped generation. The
// reader's uses of the bytes come before the acquire fence at the head of
// ReadGeneration. So an unchanged generation says that no byte used was of the
// slot's next life. The same fences bind Read to the bytes copied before it.

namespace firnkv {
namespace {

// Words of a mapped header. Those after kChecksum are zero.
enum Word : std::size_t {
  kGeneration = 0,
  kNamespace = 1,  // 2 words.
  kClearEpoch = 3,
  kKey = 4,  // 4 words, as each that follows.
  kDigest = 8,
  kParent = 12,
  kAnchor = 16,
  kPosition = 20,  // Position low, first token high.
  kTokens = 21,    // Tokens low, then shard count, shard index.
  kLength = 22,
  kCommitTime = 23,
  kChecksum = 24,  // CRC32C of words 0 to 23 and of the pieces.
  kWordsUsed = 25,
};
static_assert(kWordsUsed <= kMappedHeaderWords);

using Words = std::array<std::uint64_t, kWordsUsed>;
using Piece = std::atomic<std::uint32_t>;
static_assert(sizeof(Piece) == 4 && Piece::is_always_lock_free);

template <typename Id>
void PutId(const Id& id, std::size_t word, Words* words) {
  std::memcpy(words->data() + word, id.bytes.data(), Id::kBytes);
}
template <typename Id>
Id TakeId(const Words& words, std::size_t word) {
  Id id;
  std::memcpy(id.bytes.data(), words.data() + word, Id::kBytes);
  return id;
}

absl::Span<const std::byte> BytesOf(const void* first, std::size_t size) {
  return {static_cast<const std::byte*>(first), size};
}
absl::Span<const std::byte> BytesOf(std::string_view bytes) {
  return BytesOf(bytes.data(), bytes.size());
}

std::uint32_t ChecksumOf(const Words& words,
                         const std::vector<std::uint32_t>& pieces) {
  const std::uint32_t fixed = Crc32c(BytesOf(words.data(), kChecksum * 8));
  return Crc32c(BytesOf(pieces.data(), pieces.size() * 4), fixed);
}

Words ToWords(const SlotHeader& header) {
  Words words{};
  words[kGeneration] = static_cast<std::uint64_t>(header.generation);
  PutId(header.block.name_space, kNamespace, &words);
  words[kClearEpoch] = static_cast<std::uint64_t>(header.clear_epoch);
  PutId(header.block.key, kKey, &words);
  PutId(header.digest, kDigest, &words);
  PutId(header.place.parent, kParent, &words);
  PutId(header.place.anchor, kAnchor, &words);
  const ChainPlace& place = header.place;
  words[kPosition] = place.position | std::uint64_t{place.first_token} << 32;
  words[kTokens] = place.tokens | std::uint64_t{place.shard.count} << 32 |
                   std::uint64_t{place.shard.index} << 48;
  words[kLength] = header.length;
  words[kCommitTime] = static_cast<std::uint64_t>(header.commit_time_nanos);
  words[kChecksum] = ChecksumOf(words, header.pieces);
  return words;
}

SlotHeader FromWords(const Words& words, std::vector<std::uint32_t> pieces) {
  SlotHeader header;
  header.generation = Generation{words[kGeneration]};
  header.block.name_space = TakeId<NamespaceId>(words, kNamespace);
  header.clear_epoch = ClearEpoch{words[kClearEpoch]};
  header.block.key = TakeId<BlockKey>(words, kKey);
  header.digest = TakeId<IdentityDigest>(words, kDigest);
  header.place.parent = TakeId<BlockKey>(words, kParent);
  header.place.anchor = TakeId<BlockKey>(words, kAnchor);
  header.place.position = static_cast<std::uint32_t>(words[kPosition]);
  header.place.first_token = static_cast<std::uint32_t>(words[kPosition] >> 32);
  header.place.tokens = static_cast<std::uint32_t>(words[kTokens]);
  header.place.shard.count = static_cast<std::uint16_t>(words[kTokens] >> 32);
  header.place.shard.index = static_cast<std::uint16_t>(words[kTokens] >> 48);
  header.length = words[kLength];
  header.commit_time_nanos = static_cast<std::int64_t>(words[kCommitTime]);
  header.pieces = std::move(pieces);
  return header;
}

// Where a table's parts lie. Pages are below the table's count.
std::size_t OffsetOfHeader(std::uint32_t page) {
  return kPageBytes + std::size_t{page} * sizeof(MappedHeader);
}
std::size_t OffsetOfPiece(std::uint32_t pages, std::uint64_t piece) {
  return kPageBytes + std::size_t{pages} * sizeof(MappedHeader) + piece * 4;
}

// Whether a block of `length` at `page` ends within a region of `pages`.
bool Fits(std::uint32_t page, std::uint64_t length, std::uint32_t pages) {
  return page < pages && length <= kLargestBlockBytes &&
         DivideUp(length, kPageBytes) <= pages - page;
}

}  // namespace

bool IsSane(const SlotHeader& header) {
  const Shard shard = header.place.shard;
  return !header.block.name_space.IsZero() && !header.block.key.IsZero() &&
         header.clear_epoch != ClearEpoch::kUnknown &&
         header.generation != Generation::kNone && shard.index < shard.count &&
         header.length > 0 && header.length <= kLargestBlockBytes &&
         header.pieces.size() == DivideUp(header.length, kPieceBytes);
}

HeaderTableWriter::HeaderTableWriter(absl::Span<std::byte> table,
                                     RegionId region,
                                     std::uint64_t region_bytes)
    : table_(table),
      pages_(static_cast<std::uint32_t>(region_bytes / kPageBytes)) {
  CHECK(region_bytes % kPageBytes == 0);
  CHECK(region_bytes / kPageBytes <= UINT32_MAX);
  CHECK(table.size() >= HeaderTableBytes(region_bytes));
  CHECK(reinterpret_cast<std::uintptr_t>(table.data()) % 8 == 0);
  HeaderTableLead lead;
  lead.pages = pages_;
  lead.region_epoch = static_cast<std::uint64_t>(region.epoch);
  lead.region_serial = region.serial;
  std::memcpy(table_.data(), &lead, sizeof(lead));
}

MappedHeader& HeaderTableWriter::At(std::uint32_t page) {
  CHECK(page < pages_);
  return *std::launder(
      reinterpret_cast<MappedHeader*>(table_.data() + OffsetOfHeader(page)));
}

std::uint64_t HeaderTableWriter::BeginWrite(MappedHeader* slot) {
  const std::uint64_t odd = last_sequence_ + 1;
  last_sequence_ += 2;
  slot->sequence.store(odd, std::memory_order_release);
  return odd;
}

void HeaderTableWriter::Write(std::uint32_t page, const SlotHeader& header) {
  CHECK(IsSane(header));
  CHECK(Fits(page, header.length, pages_));
  const Words words = ToWords(header);
  MappedHeader& slot = At(page);
  auto* const pieces = std::launder(
      reinterpret_cast<Piece*>(table_.data() + OffsetOfPiece(pages_, page)));

  const std::uint64_t odd = BeginWrite(&slot);
  for (std::size_t i = 0; i < kWordsUsed; ++i) {
    slot.words[i].store(words[i], std::memory_order_release);
  }
  for (std::size_t i = 0; i < header.pieces.size(); ++i) {
    pieces[i].store(header.pieces[i], std::memory_order_release);
  }
  slot.sequence.store(odd + 1, std::memory_order_release);
}

void HeaderTableWriter::Bump(std::uint32_t page, Generation next) {
  CHECK(next != Generation::kNone);
  MappedHeader& slot = At(page);

  const std::uint64_t odd = BeginWrite(&slot);
  slot.words[kGeneration].store(static_cast<std::uint64_t>(next),
                                std::memory_order_release);
  for (std::size_t i = kGeneration + 1; i < kWordsUsed; ++i) {
    slot.words[i].store(0, std::memory_order_release);
  }
  slot.sequence.store(odd + 1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
}

std::optional<HeaderTableReader> HeaderTableReader::Open(
    absl::Span<const std::byte> table, RegionId region) {
  HeaderTableLead lead;
  if (table.size() < kPageBytes ||
      reinterpret_cast<std::uintptr_t>(table.data()) % 8 != 0) {
    return std::nullopt;
  }
  std::memcpy(&lead, table.data(), sizeof(lead));
  // Pages are 32 bits: the product has no overflow.
  if (lead.magic != HeaderTableLead::kMagic ||
      lead.layout_version != kMappedLayoutVersion ||
      lead.region_epoch != static_cast<std::uint64_t>(region.epoch) ||
      lead.region_serial != region.serial ||
      HeaderTableBytes(lead.pages * kPageBytes) > table.size()) {
    return std::nullopt;
  }
  return HeaderTableReader(table, lead.pages);
}

std::optional<SlotHeader> HeaderTableReader::Read(std::uint32_t page) const {
  if (page >= pages_) return std::nullopt;
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto& slot = *std::launder(reinterpret_cast<const MappedHeader*>(
      table_.data() + OffsetOfHeader(page)));
  const auto* const mapped_pieces = std::launder(reinterpret_cast<const Piece*>(
      table_.data() + OffsetOfPiece(pages_, page)));
  for (int i = 0; i < kSequenceRetries; ++i) {
    const std::uint64_t before = slot.sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) continue;
    Words words;
    for (std::size_t w = 0; w < kWordsUsed; ++w) {
      words[w] = slot.words[w].load(std::memory_order_acquire);
    }
    // A torn length is bounded too, and refused by the sequence afterwards.
    std::vector<std::uint32_t> pieces;
    if (Fits(page, words[kLength], pages_)) {
      pieces.resize(DivideUp(words[kLength], kPieceBytes));
    }
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      pieces[p] = mapped_pieces[p].load(std::memory_order_acquire);
    }
    if (slot.sequence.load(std::memory_order_relaxed) != before) continue;

    if (words[kChecksum] != ChecksumOf(words, pieces)) return std::nullopt;
    SlotHeader header = FromWords(words, std::move(pieces));
    if (!IsSane(header)) return std::nullopt;
    return header;
  }
  return std::nullopt;
}

std::optional<Generation> HeaderTableReader::ReadGeneration(
    std::uint32_t page) const {
  if (page >= pages_) return std::nullopt;
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto& slot = *std::launder(reinterpret_cast<const MappedHeader*>(
      table_.data() + OffsetOfHeader(page)));
  return Generation{slot.words[kGeneration].load(std::memory_order_acquire)};
}

namespace {

// The encoding: u32 size of all of it, u16 version, u16 zero, the fixed fields,
// u32 count of pieces, the pieces, u32 CRC32C of everything before.
constexpr std::uint16_t kEncodingVersion = 1;
constexpr std::size_t kEncodedFixedBytes =
    8 + 16 + 8 + 4 * 32 + 3 * 4 + 2 * 2 + 3 * 8 + 4 + 4;

// What precedes the last 4 bytes has them as its checksum.
bool ChecksumMatches(std::string_view bytes) {
  WireReader reader(bytes.substr(bytes.size() - 4));
  return Crc32c(BytesOf(bytes.substr(0, bytes.size() - 4))) == reader.U32();
}

}  // namespace

void AppendSlotHeader(const SlotHeader& header, std::string* out) {
  const std::size_t begin = out->size();
  WireWriter writer(out);
  writer.U32(static_cast<std::uint32_t>(kEncodedFixedBytes +
                                        4 * header.pieces.size()));
  writer.U16(kEncodingVersion);
  writer.U16(0);
  writer.Id(header.block.name_space);
  writer.U64(static_cast<std::uint64_t>(header.clear_epoch));
  writer.Id(header.block.key);
  writer.Id(header.digest);
  writer.Id(header.place.parent);
  writer.Id(header.place.anchor);
  writer.U32(header.place.position);
  writer.U32(header.place.first_token);
  writer.U32(header.place.tokens);
  writer.U16(header.place.shard.count);
  writer.U16(header.place.shard.index);
  writer.U64(header.length);
  writer.U64(static_cast<std::uint64_t>(header.generation));
  writer.U64(static_cast<std::uint64_t>(header.commit_time_nanos));
  writer.U32(static_cast<std::uint32_t>(header.pieces.size()));
  for (const std::uint32_t piece : header.pieces) writer.U32(piece);
  writer.U32(Crc32c(BytesOf(std::string_view(*out).substr(begin))));
}

std::optional<SlotHeader> TakeSlotHeader(std::string_view* bytes) {
  const std::uint32_t size = WireReader(*bytes).U32();
  if (size < kEncodedFixedBytes || size > bytes->size() ||
      size > kEncodedFixedBytes + 4 * kMaxPieces) {
    return std::nullopt;
  }
  const std::string_view mine = bytes->substr(0, size);
  if (!ChecksumMatches(mine)) return std::nullopt;

  WireReader reader(mine.substr(4, size - 8));
  const std::uint16_t version = reader.U16();
  const std::uint16_t zero = reader.U16();
  if (version != kEncodingVersion || zero != 0) return std::nullopt;
  SlotHeader header;
  header.block.name_space = reader.TakeId<NamespaceId>();
  header.clear_epoch = ClearEpoch{reader.U64()};
  header.block.key = reader.TakeId<BlockKey>();
  header.digest = reader.TakeId<IdentityDigest>();
  header.place.parent = reader.TakeId<BlockKey>();
  header.place.anchor = reader.TakeId<BlockKey>();
  header.place.position = reader.U32();
  header.place.first_token = reader.U32();
  header.place.tokens = reader.U32();
  header.place.shard.count = reader.U16();
  header.place.shard.index = reader.U16();
  header.length = reader.U64();
  header.generation = Generation{reader.U64()};
  header.commit_time_nanos = static_cast<std::int64_t>(reader.U64());
  const std::uint32_t pieces = reader.U32();
  if (std::size_t{pieces} * 4 != reader.left()) return std::nullopt;
  header.pieces.reserve(pieces);
  for (std::uint32_t i = 0; i < pieces; ++i) {
    header.pieces.push_back(reader.U32());
  }
  if (!reader.AtEnd() || !IsSane(header)) return std::nullopt;
  bytes->remove_prefix(size);
  return header;
}

}  // namespace firnkv
