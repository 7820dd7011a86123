// Where each record of one flash device lies: by the fingerprint of its block,
// and by its number within its segment.
//
// A fingerprint is 64 bits; equality is decided on the record's own header.
// Records with equal fingerprints are all found.
//
// Memory a record: 16 bytes in its segment's list and a cell of 8 in a hash
// table that is between 0.4 and 0.8 full: 26 to 36 bytes. The table is in 64
// parts, which grow one by one, so that growing doubles a 64th of it at a time.
//
// Does not know what state a segment is in, nor what holds it.
//
// Threading. None: the mutex of FlashSpace, its owner, protects it.

#ifndef FIRNKV_SERVER_TIER_SEGMENT_INDEX_H_
#define FIRNKV_SERVER_TIER_SEGMENT_INDEX_H_

#include <array>
#include <cstdint>
#include <vector>

#include "server/tier/flash_format.h"

namespace firnkv {

// A record by its place in the index.
struct RecordNumber {
  std::uint32_t segment = 0;
  // From 0, in the order of offsets.
  std::uint32_t ordinal = 0;
  friend auto operator<=>(const RecordNumber&, const RecordNumber&) = default;
};

class SegmentIndex {
 public:
  // Bounds of a cell's fields. At the least record of 4 KiB a segment of 32 GiB
  // has 8 million.
  static constexpr std::uint32_t kMaxSegments = (1U << 24) - 1;
  static constexpr std::uint32_t kMaxRecords = 1U << 24;
  // A record's reads are counted up to this.
  static constexpr unsigned kMostReads = 15;

  struct Record {
    RecordNumber number;
    RecordPlace place;
    std::uint64_t length = 0;
    unsigned reads = 0;
  };

  explicit SegmentIndex(std::uint32_t segments);

  // Appends to the segment's list; `place` is behind all before it.
  RecordNumber Add(std::uint32_t segment, std::uint64_t fingerprint,
                   const RecordPlace& place, std::uint64_t length);
  // Add or Find of it is soon to come: for a batch, so that what its look-ups
  // need comes from memory together.
  void Prefetch(std::uint64_t fingerprint) const {
    const Part& part = parts_[PartOf(fingerprint)];
    if (part.cells.empty()) return;
    __builtin_prefetch(&part.cells[fingerprint & (part.cells.size() - 1)]);
  }
  // The segment gets no more records.
  void Shrink(std::uint32_t segment);

  // Appends all that have the fingerprint.
  void Find(std::uint64_t fingerprint, std::vector<Record>* found) const;
  bool Has(std::uint64_t fingerprint) const;

  // False: it is not there (any more).
  bool Get(RecordNumber number, Record* record) const;
  // Its number stays taken. False as Get's.
  bool Remove(RecordNumber number);
  // Of a record that is there.
  void CountRead(RecordNumber number);
  // All of a segment, whose list is empty afterwards.
  void RemoveSegment(std::uint32_t segment);

  // Removed ones too.
  std::uint32_t RecordsOf(std::uint32_t segment) const;
  std::uint64_t records() const { return records_; }
  // All that the index has allocated.
  std::uint64_t memory_bytes() const;

 private:
  struct Entry {
    std::uint64_t fingerprint = 0;
    std::uint32_t units = 0;
    // Length in 27 bits (0: removed), padded, reads in 4.
    std::uint32_t packed = 0;
  };
  static_assert(sizeof(Entry) == 16);
  // Tag 16, segment + 1 in 24, ordinal 24; 0 is an empty cell.
  using Cell = std::uint64_t;
  struct Part {
    std::vector<Cell> cells;  // A power of two of them, or none.
    std::uint64_t used = 0;
  };
  static constexpr std::size_t kParts = 64;

  static Cell MakeCell(std::uint64_t fingerprint, RecordNumber number);
  static RecordNumber NumberOf(Cell cell);
  static std::size_t PartOf(std::uint64_t fingerprint) {
    return fingerprint >> 58;
  }
  const Entry& EntryOf(RecordNumber number) const {
    return lists_[number.segment][number.ordinal];
  }
  bool IsThere(RecordNumber number) const;
  Record ToRecord(RecordNumber number) const;
  void Insert(Part* part, std::uint64_t fingerprint, Cell cell);
  void Grow(Part* part);
  void Erase(std::uint64_t fingerprint, RecordNumber number);

  std::vector<std::vector<Entry>> lists_;
  std::array<Part, kParts> parts_;
  std::uint64_t records_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_SEGMENT_INDEX_H_
