// What others were told of a flash device's records (flash_space.h).

#include "proto/base/check.h"
#include "server/tier/flash_space.h"

namespace firnkv {
namespace {

// What an announcement says of a record.
SlotHeader HeaderOf(const ContentsEntry& entry, Generation generation) {
  SlotHeader header;
  header.block = entry.block;
  header.clear_epoch = entry.clear_epoch;
  header.place = entry.place;
  header.length = entry.length;
  header.generation = generation;
  return header;
}

}  // namespace

bool FlashSpace::IsTold(RecordNumber number) const {
  const std::vector<bool>& told = segments_[number.segment].told;
  return number.ordinal < told.size() && told[number.ordinal];
}

Generation FlashSpace::GenerationOf(RecordNumber number) const {
  return Generation{
      static_cast<std::uint64_t>(segments_[number.segment].first_generation) +
      number.ordinal};
}

std::optional<RecordNumber> FlashSpace::FindTold(
    std::uint64_t fingerprint) const {
  std::vector<SegmentIndex::Record> records;
  index_.Find(fingerprint, &records);
  for (const SegmentIndex::Record& record : records) {
    if (IsTold(record.number)) return record.number;
  }
  return std::nullopt;
}

void FlashSpace::Tell(RecordNumber number, const ContentsEntry& entry) {
  Segment& segment = segments_[number.segment];
  if (number.ordinal >= segment.told.size()) {
    segment.told.resize(number.ordinal + 1);
  }
  CHECK(!segment.told[number.ordinal]);
  segment.told[number.ordinal] = true;
  ++segment.told_records;
  ++told_;
  events_->OnPublished(HeaderOf(entry, GenerationOf(number)));
}

void FlashSpace::Untell(RecordNumber number, const BlockId& block) {
  Segment& segment = segments_[number.segment];
  segment.told[number.ordinal] = false;
  --segment.told_records;
  --told_;
  SlotHeader header;
  header.block = block;
  header.generation = GenerationOf(number);
  events_->OnWithdrawn(header);
}

bool FlashSpace::Told(const SegmentName& name) const {
  MutexLock lock(&mutex_);
  const Segment& segment = segments_[name.segment];
  return segment.name == name && segment.told_records > 0;
}

std::optional<SegmentName> FlashSpace::NextSegment(std::uint32_t from) const {
  MutexLock lock(&mutex_);
  for (std::uint32_t i = from; i < layout_.segments; ++i) {
    const Segment& segment = segments_[i];
    if ((segment.state == SegmentState::kOpen ||
         segment.state == SegmentState::kSealed) &&
        index_.RecordsOf(i) > 0) {
      return segment.name;
    }
  }
  return std::nullopt;
}

void FlashSpace::Align(const SegmentName& name,
                       absl::Span<const ContentsEntry> entries, Judge judge) {
  MutexLock lock(&mutex_);
  const Segment& segment = segments_[name.segment];
  if (!tells() || segment.name != name ||
      (segment.state != SegmentState::kOpen &&
       segment.state != SegmentState::kSealed)) {
    return;
  }
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    AlignOne({.segment = name.segment, .ordinal = i}, entries[i], judge);
  }
}

void FlashSpace::AlignOne(RecordNumber number, const ContentsEntry& entry,
                          Judge judge) {
  const bool told = IsTold(number);
  SegmentIndex::Record record;
  if (!index_.Get(number, &record)) {
    if (!told) return;
    Untell(number, entry.block);
    --lagging_;
    return;
  }
  switch (judge(entry)) {
    case Standing::kWait:
      return;
    case Standing::kTell:
      if (told) return;
      if (FindTold(FingerprintOf(entry.block))) {
        // A crash between writing it again and giving its old place up.
        DropLocked(number, &entry.block);
      } else {
        Tell(number, entry);
      }
      return;
    case Standing::kHide:
      if (told) Untell(number, entry.block);
      return;
    case Standing::kGone:
      DropLocked(number, &entry.block);
      return;
  }
}

void FlashSpace::CopyTold(const SegmentName& name,
                          absl::Span<const ContentsEntry> entries,
                          std::vector<SlotHeader>* copies) const {
  MutexLock lock(&mutex_);
  if (segments_[name.segment].name != name) return;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    const RecordNumber number{.segment = name.segment, .ordinal = i};
    if (IsTold(number)) {
      copies->push_back(HeaderOf(entries[i], GenerationOf(number)));
    }
  }
}

std::uint64_t FlashSpace::lagging() const {
  MutexLock lock(&mutex_);
  return lagging_;
}

}  // namespace firnkv
