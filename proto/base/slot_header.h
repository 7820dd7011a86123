// What stands beside every copy of a block: who it is, where it belongs, and
// how to tell that its bytes are right. Also the mapped header table in which
// the node publishes it, and the sequence lock by which readers in other
// processes read it (rule P5).
//
// One header table a region, a memfd of its own that clients map read-only:
//
//     offset 0           HeaderTableLead, one page
//     kPageBytes         MappedHeader[pages]: slot at page p has header p
//     ... + 256 * pages  u32[pages]: CRC of piece i of the slot at page p
//                        stands at [p + i] (a slot of n pages has at most n
//                        pieces, since a page is smaller than a piece)
//
// The layout has a version of its own, kMappedLayoutVersion, said in the local
// session's handshake: an SDK that does not know it uses the stream instead.
//
// The node never reads a header table back: what it knows of a slot stands in
// its own memory (rule P10).

#ifndef FIRNKV_PROTO_BASE_SLOT_HEADER_H_
#define FIRNKV_PROTO_BASE_SLOT_HEADER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "proto/base/bytes.h"
#include "proto/base/id.h"
#include "proto/base/limits.h"

namespace firnkv {

inline constexpr std::uint32_t kMappedLayoutVersion = 1;

// Identity, place and checksums of one copy (DESIGN's field table). A plain
// value: what the node keeps, announces from and sends ahead of payload.
struct SlotHeader {
  BlockId block;
  IdentityDigest digest;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  ChainPlace place;
  std::uint64_t length = 0;
  Generation generation = Generation::kNone;
  // Wall clock, nanoseconds since 1970; retention and display only.
  std::int64_t commit_time_nanos = 0;
  // One CRC32C a piece of kPieceBytes.
  std::vector<std::uint32_t> pieces;

  friend bool operator==(const SlotHeader&, const SlotHeader&) = default;
};

// Whether `header` can be that of a block: identities, generation and clear
// epoch are there, the shard is one of its count, the length is 1 to
// kLargestBlockBytes and has as many pieces as it must. Says nothing of whether
// it is true.
bool IsSane(const SlotHeader& header);

// Unique for ever in a cluster: contains the node epoch (rule P3).
struct RegionId {
  NodeEpoch epoch = NodeEpoch::kNone;
  std::uint64_t serial = 0;
  friend auto operator<=>(const RegionId&, const RegionId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const RegionId& id) {
    return H::combine(std::move(h), id.epoch, id.serial);
  }
};

// First page of a header table.
struct HeaderTableLead {
  static constexpr std::uint64_t kMagic = 0x6b766e7269660001;  // "\1\0firnvk"
  std::uint64_t magic = kMagic;
  std::uint32_t layout_version = kMappedLayoutVersion;
  std::uint32_t pages = 0;  // Of the region: its bytes / kPageBytes.
  std::uint64_t region_epoch = 0;
  std::uint64_t region_serial = 0;
};
static_assert(sizeof(HeaderTableLead) == 32);

// Words of a header as they lie in the table, all under the sequence lock;
// which field is where stands in docs/PROTOCOL.md and slot_header.cc.
inline constexpr std::size_t kMappedHeaderWords = 31;
struct MappedHeader {
  // Odd while the node writes.
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> words[kMappedHeaderWords];
};
static_assert(sizeof(MappedHeader) == 256);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::uint64_t HeaderTableBytes(std::uint64_t region_bytes) {
  const std::uint64_t pages = region_bytes / kPageBytes;
  return AlignUp(kPageBytes + pages * (sizeof(MappedHeader) + 4), kPageBytes);
}

// The node's side of one region's table. Not thread-safe: the pool writes under
// its mutex. Breaking what is asked of the arguments is a bug of ours (CHECK).
class HeaderTableWriter {
 public:
  // `table` outlives the writer, has HeaderTableBytes(region_bytes), is aligned
  // to a page, all zeros, and given to nobody yet.
  HeaderTableWriter(absl::Span<std::byte> table, RegionId region,
                    std::uint64_t region_bytes);

  // Publishes what is in the slot that starts at `page`. `header` must be sane,
  // and its bytes must end within the region.
  void Write(std::uint32_t page, const SlotHeader& header);

  // Publishes that nothing valid is in the slot: generation `next`, key zero.
  // What the reuse and the retirement of a slot begin with (rules P6, P7): on
  // return, no store to the slot's bytes that follows can be seen before it.
  void Bump(std::uint32_t page, Generation next);

 private:
  MappedHeader& At(std::uint32_t page);
  // Odd; the next even number ends the write.
  std::uint64_t BeginWrite(MappedHeader* slot);

  absl::Span<std::byte> table_;
  std::uint32_t pages_;
  // Of any slot of the table: the node never reads a sequence back (rule P10).
  std::uint64_t last_sequence_ = 0;
};

// A reader's side, over a read-only mapping. Thread-safe; bounds every index it
// is given, since pages come off the wire.
class HeaderTableReader {
 public:
  // nullopt unless the lead has our magic, layout, exactly `region` and a size
  // that `table` has room for.
  static std::optional<HeaderTableReader> Open(
      absl::Span<const std::byte> table, RegionId region);

  // What stands in the slot at `page` now; nullopt if the page is out of
  // bounds, if the words are no sane header, or if a writer was in the way
  // kSequenceRetries times: a stopped node must not spin its readers (the
  // caller answers kUnavailable).
  static constexpr int kSequenceRetries = 64;
  std::optional<SlotHeader> Read(std::uint32_t page) const;

  // Only the generation: the second look of a reader (rule P4), after its last
  // use of the slot's bytes. One load, which a stopped node cannot delay;
  // nullopt only if the page is out of bounds.
  std::optional<Generation> ReadGeneration(std::uint32_t page) const;

 private:
  HeaderTableReader(absl::Span<const std::byte> table, std::uint32_t pages)
      : table_(table), pages_(pages) {}
  absl::Span<const std::byte> table_;
  std::uint32_t pages_;
};

// The header's fixed part and pieces as bytes, with a checksum of its own at
// the end: ahead of payload in a frame, and one day in a flash record. The
// decoder bounds everything. Documented in docs/PROTOCOL.md.
void AppendSlotHeader(const SlotHeader& header, std::string* out);
// Takes one header off the front of `bytes`, moving it past; nullopt if it is
// torn, insane or fails its checksum.
std::optional<SlotHeader> TakeSlotHeader(std::string_view* bytes);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_SLOT_HEADER_H_
