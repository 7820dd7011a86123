#include "server/tier/segment_index.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kLengthBits = 27;
constexpr std::uint32_t kLengthMask = (1U << kLengthBits) - 1;
constexpr std::uint32_t kPaddedBit = 1U << kLengthBits;
constexpr std::uint32_t kReadsShift = kLengthBits + 1;
constexpr std::uint32_t kReadsMask = 15U << kReadsShift;
static_assert(kLargestBlockBytes <= kLengthMask);
static_assert(kReadsShift + 4 == 32);

constexpr std::size_t kLeastCells = 16;

}  // namespace

SegmentIndex::SegmentIndex(std::uint32_t segments) : lists_(segments) {
  CHECK(segments <= kMaxSegments);
}

SegmentIndex::Cell SegmentIndex::MakeCell(std::uint64_t fingerprint,
                                          RecordNumber number) {
  // The tag is of bits that neither part nor place are taken from.
  const std::uint64_t tag = (fingerprint >> 40) & 0xffff;
  return tag << 48 | std::uint64_t{number.segment + 1} << 24 | number.ordinal;
}

RecordNumber SegmentIndex::NumberOf(Cell cell) {
  return {.segment = static_cast<std::uint32_t>((cell >> 24) & 0xffffff) - 1,
          .ordinal = static_cast<std::uint32_t>(cell & 0xffffff)};
}

bool SegmentIndex::IsThere(RecordNumber number) const {
  return number.segment < lists_.size() &&
         number.ordinal < lists_[number.segment].size() &&
         (EntryOf(number).packed & kLengthMask) != 0;
}

SegmentIndex::Record SegmentIndex::ToRecord(RecordNumber number) const {
  const Entry& entry = EntryOf(number);
  Record record;
  record.number = number;
  record.length = entry.packed & kLengthMask;
  record.reads = (entry.packed & kReadsMask) >> kReadsShift;
  record.place = PlaceRecordAt(std::uint64_t{entry.units} * kRecordAlignment,
                               record.length, (entry.packed & kPaddedBit) != 0);
  return record;
}

RecordNumber SegmentIndex::Add(std::uint32_t segment, std::uint64_t fingerprint,
                               const RecordPlace& place, std::uint64_t length) {
  std::vector<Entry>& list = lists_[segment];
  CHECK(list.size() < kMaxRecords);
  CHECK(length > 0 && length <= kLengthMask);
  const RecordNumber number{.segment = segment,
                            .ordinal = static_cast<std::uint32_t>(list.size())};
  Entry entry;
  entry.fingerprint = fingerprint;
  entry.units = static_cast<std::uint32_t>(place.offset / kRecordAlignment);
  entry.packed =
      static_cast<std::uint32_t>(length) | (place.padded ? kPaddedBit : 0);
  list.push_back(entry);
  Part& part = parts_[PartOf(fingerprint)];
  if (5 * (part.used + 1) > 4 * part.cells.size()) Grow(&part);
  Insert(&part, fingerprint, MakeCell(fingerprint, number));
  ++part.used;
  ++records_;
  return number;
}

void SegmentIndex::Insert(Part* part, std::uint64_t fingerprint, Cell cell) {
  const std::size_t mask = part->cells.size() - 1;
  std::size_t at = fingerprint & mask;
  while (part->cells[at] != 0) at = (at + 1) & mask;
  part->cells[at] = cell;
}

void SegmentIndex::Grow(Part* part) {
  std::vector<Cell> old = std::move(part->cells);
  part->cells.assign(std::max(kLeastCells, 2 * old.size()), 0);
  for (const Cell cell : old) {
    if (cell != 0) Insert(part, EntryOf(NumberOf(cell)).fingerprint, cell);
  }
}

void SegmentIndex::Shrink(std::uint32_t segment) {
  lists_[segment].shrink_to_fit();
}

void SegmentIndex::Find(std::uint64_t fingerprint,
                        std::vector<Record>* found) const {
  const Part& part = parts_[PartOf(fingerprint)];
  if (part.cells.empty()) return;
  const std::size_t mask = part.cells.size() - 1;
  const Cell tag = MakeCell(fingerprint, {}) >> 48;
  for (std::size_t at = fingerprint & mask; part.cells[at] != 0;
       at = (at + 1) & mask) {
    if (part.cells[at] >> 48 != tag) continue;
    const RecordNumber number = NumberOf(part.cells[at]);
    if (EntryOf(number).fingerprint != fingerprint) continue;
    found->push_back(ToRecord(number));
  }
}

bool SegmentIndex::Has(std::uint64_t fingerprint) const {
  std::vector<Record> found;
  Find(fingerprint, &found);
  return !found.empty();
}

bool SegmentIndex::Get(RecordNumber number, Record* record) const {
  if (!IsThere(number)) return false;
  *record = ToRecord(number);
  return true;
}

bool SegmentIndex::Remove(RecordNumber number) {
  if (!IsThere(number)) return false;
  Entry& entry = lists_[number.segment][number.ordinal];
  Erase(entry.fingerprint, number);
  entry.packed = 0;
  --records_;
  return true;
}

void SegmentIndex::Erase(std::uint64_t fingerprint, RecordNumber number) {
  Part& part = parts_[PartOf(fingerprint)];
  const std::size_t mask = part.cells.size() - 1;
  const Cell cell = MakeCell(fingerprint, number);
  std::size_t hole = fingerprint & mask;
  while (part.cells[hole] != cell) {
    CHECK(part.cells[hole] != 0);
    hole = (hole + 1) & mask;
  }
  // What follows without a gap moves up, unless it would stand before its home.
  for (std::size_t at = (hole + 1) & mask; part.cells[at] != 0;
       at = (at + 1) & mask) {
    const std::size_t home =
        EntryOf(NumberOf(part.cells[at])).fingerprint & mask;
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    part.cells[hole] = part.cells[at];
    hole = at;
  }
  part.cells[hole] = 0;
  --part.used;
}

void SegmentIndex::CountRead(RecordNumber number) {
  CHECK(IsThere(number));
  Entry& entry = lists_[number.segment][number.ordinal];
  if ((entry.packed & kReadsMask) != kReadsMask) {
    entry.packed += 1U << kReadsShift;
  }
}

void SegmentIndex::RemoveSegment(std::uint32_t segment) {
  for (std::uint32_t i = 0; i < RecordsOf(segment); ++i) {
    Remove({.segment = segment, .ordinal = i});
  }
  std::vector<Entry>().swap(lists_[segment]);
}

std::uint32_t SegmentIndex::RecordsOf(std::uint32_t segment) const {
  return static_cast<std::uint32_t>(lists_[segment].size());
}

std::uint64_t SegmentIndex::memory_bytes() const {
  std::uint64_t bytes = sizeof(*this) + lists_.capacity() * sizeof(lists_[0]);
  for (const std::vector<Entry>& list : lists_) {
    bytes += list.capacity() * sizeof(Entry);
  }
  for (const Part& part : parts_) bytes += part.cells.capacity() * sizeof(Cell);
  return bytes;
}

}  // namespace firnkv
