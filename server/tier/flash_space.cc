#include "server/tier/flash_space.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "proto/base/check.h"

namespace firnkv {
namespace {

// No record is shorter than its header.
constexpr std::uint64_t kLeastRecordBytes = 240;

}  // namespace

void SegmentHold::End() {
  if (FlashSpace* space = std::exchange(space_, nullptr)) {
    space->EndHold(segment_);
  }
}

FlashSpace::FlashSpace(const Options& options, const FlashSuperblock& layout,
                       Random* random, TakeGenerations take_generations,
                       PoolEvents* events)
    : options_(options),
      layout_(layout),
      random_(random),
      take_generations_(std::move(take_generations)),
      events_(events),
      secret_(random->Next64()),
      segments_(layout.segments),
      index_(layout.segments),
      free_(layout.segments) {
  CHECK(options_.fingerprint_bits >= 1 && options_.fingerprint_bits <= 64);
}

FlashSpace::~FlashSpace() {
  MutexLock lock(&mutex_);
  CHECK(holds_ == 0);
}

std::uint64_t FlashSpace::FingerprintOf(const BlockId& block) const {
  const std::uint64_t all = absl::HashOf(secret_, block);
  return options_.fingerprint_bits == 64
             ? all
             : all & ((std::uint64_t{1} << options_.fingerprint_bits) - 1);
}

// --- Writing.

void FlashSpace::TakeGenerationsFor(Segment* segment) {
  // More than it can ever have: numbers are plenty.
  segment->first_generation =
      take_generations_(layout_.segment_bytes / kLeastRecordBytes + 1);
}

std::optional<SegmentName> FlashSpace::Open(const TenantId& tenant) {
  MutexLock lock(&mutex_);
  if (free_ == 0) return std::nullopt;
  while (segments_[next_].state != SegmentState::kFree) {
    next_ = (next_ + 1) % layout_.segments;
  }
  Segment& segment = segments_[next_];
  segment = Segment{};
  segment.state = SegmentState::kOpen;
  segment.name.device = layout_.device;
  segment.name.segment = next_;
  segment.name.lap = FlashLap{std::uint64_t{++lap_count_} << 32 |
                              (random_->Next64() & 0xffffffff)};
  segment.name.tenant = tenant;
  TakeGenerationsFor(&segment);
  --free_;
  next_ = (next_ + 1) % layout_.segments;
  return segment.name;
}

void FlashSpace::SawLap(FlashLap lap) {
  MutexLock lock(&mutex_);
  const auto count =
      static_cast<std::uint32_t>(static_cast<std::uint64_t>(lap) >> 32);
  lap_count_ = std::max(lap_count_, count);
}

void FlashSpace::Recover(const SegmentName& name) {
  MutexLock lock(&mutex_);
  Segment& segment = segments_[name.segment];
  CHECK(segment.state == SegmentState::kFree);
  segment = Segment{};
  segment.state = SegmentState::kOpen;
  segment.name = name;
  TakeGenerationsFor(&segment);
  --free_;
}

Generation FlashSpace::Publish(std::uint32_t number,
                               absl::Span<const ContentsEntry> records,
                               Telling telling) {
  std::vector<std::uint64_t> fingerprints;
  fingerprints.reserve(records.size());
  for (const ContentsEntry& record : records) {
    fingerprints.push_back(FingerprintOf(record.block));
  }
  MutexLock lock(&mutex_);
  Segment& segment = segments_[number];
  CHECK(segment.state == SegmentState::kOpen);
  const Generation first{static_cast<std::uint64_t>(segment.first_generation) +
                         index_.RecordsOf(number)};
  constexpr std::size_t kAhead = 8;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const ContentsEntry& record = records[i];
    if (i + kAhead < records.size()) index_.Prefetch(fingerprints[i + kAhead]);
    const RecordNumber added =
        index_.Add(number, fingerprints[i],
                   PlaceRecordAt(record.offset, record.length, record.padded),
                   record.length);
    if (tells() && telling == Telling::kNow) {
      // The catalog knows one copy of a block here: the older one goes first.
      if (const auto older = FindTold(fingerprints[i])) {
        Untell(*older, record.block);
      }
      Tell(added, record);
    }
    segment.live_bytes += record.length;
    ++segment.live_records;
  }
  return first;
}

void FlashSpace::Seal(std::uint32_t number, BootTime now) {
  MutexLock lock(&mutex_);
  Segment& segment = segments_[number];
  CHECK(segment.state == SegmentState::kOpen);
  segment.state = SegmentState::kSealed;
  segment.sealed_at = now;
  index_.Shrink(number);
}

// --- Reading.

HeldRecord FlashSpace::MakeHeld(const SegmentIndex::Record& record) {
  Segment& segment = segments_[record.number.segment];
  CHECK(segment.state == SegmentState::kOpen ||
        segment.state == SegmentState::kSealed);
  ++segment.holds;
  ++holds_;
  HeldRecord held;
  held.hold = SegmentHold(this, record.number.segment);
  held.name = segment.name;
  held.number = record.number;
  held.place = record.place;
  held.length = record.length;
  held.reads = record.reads;
  held.generation =
      Generation{static_cast<std::uint64_t>(segment.first_generation) +
                 record.number.ordinal};
  return held;
}

std::vector<HeldRecord> FlashSpace::Find(const BlockId& block) {
  const std::uint64_t fingerprint = FingerprintOf(block);
  std::vector<SegmentIndex::Record> records;
  std::vector<HeldRecord> found;
  {
    MutexLock lock(&mutex_);
    index_.Find(fingerprint, &records);
    for (const SegmentIndex::Record& record : records) {
      found.push_back(MakeHeld(record));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const HeldRecord& a, const HeldRecord& b) {
              return a.generation > b.generation;
            });
  return found;
}

bool FlashSpace::MayHold(const BlockId& block) const {
  const std::uint64_t fingerprint = FingerprintOf(block);
  MutexLock lock(&mutex_);
  return index_.Has(fingerprint);
}

std::optional<std::uint64_t> FlashSpace::LengthOf(const BlockId& block) const {
  const std::uint64_t fingerprint = FingerprintOf(block);
  std::vector<SegmentIndex::Record> records;
  MutexLock lock(&mutex_);
  index_.Find(fingerprint, &records);
  std::optional<std::uint64_t> length;
  Generation youngest = Generation::kNone;
  for (const SegmentIndex::Record& record : records) {
    const Generation generation = GenerationOf(record.number);
    if (generation < youngest) continue;
    youngest = generation;
    length = record.length;
  }
  return length;
}

std::optional<HeldRecord> FlashSpace::Get(RecordNumber number) {
  MutexLock lock(&mutex_);
  SegmentIndex::Record record;
  if (!index_.Get(number, &record)) return std::nullopt;
  return MakeHeld(record);
}

std::optional<std::uint32_t> FlashSpace::NextRecord(std::uint32_t segment,
                                                    std::uint32_t from) const {
  MutexLock lock(&mutex_);
  SegmentIndex::Record record;
  for (std::uint32_t i = from; i < index_.RecordsOf(segment); ++i) {
    if (index_.Get({.segment = segment, .ordinal = i}, &record)) return i;
  }
  return std::nullopt;
}

void FlashSpace::CountRead(const HeldRecord& record, BootTime now) {
  MutexLock lock(&mutex_);
  Segment& segment = segments_[record.number.segment];
  ++segment.reads;
  segment.last_read = std::max(segment.last_read, now);
  SegmentIndex::Record there;
  if (index_.Get(record.number, &there)) index_.CountRead(record.number);
}

// --- Leaving.

bool FlashSpace::DropLocked(RecordNumber number, const BlockId* block) {
  SegmentIndex::Record record;
  if (!index_.Get(number, &record)) return false;
  index_.Remove(number);
  Segment& segment = segments_[number.segment];
  segment.live_bytes -= record.length;
  --segment.live_records;
  if (!IsTold(number)) return true;
  if (block != nullptr) {
    Untell(number, *block);
  } else {
    ++lagging_;
  }
  return true;
}

bool FlashSpace::Drop(const HeldRecord& record, const BlockId* block) {
  MutexLock lock(&mutex_);
  CHECK(record.hold.held());
  return DropLocked(record.number, block);
}

std::size_t FlashSpace::Erase(const BlockId& block) {
  const std::uint64_t fingerprint = FingerprintOf(block);
  MutexLock lock(&mutex_);
  std::vector<SegmentIndex::Record> records;
  index_.Find(fingerprint, &records);
  for (const SegmentIndex::Record& record : records) {
    DropLocked(record.number, &block);
  }
  return records.size();
}

Task FlashSpace::BecomeFree(Segment* segment) {
  CHECK(segment->state == SegmentState::kRetiring && segment->holds == 0);
  segment->state = SegmentState::kFree;
  ++free_;
  return std::exchange(segment->free, nullptr);
}

bool FlashSpace::Retire(std::uint32_t number, FlashLap lap,
                        absl::Span<const ContentsEntry> entries, Task free) {
  Task run;
  {
    MutexLock lock(&mutex_);
    Segment& segment = segments_[number];
    if (segment.name.lap != lap || (segment.state != SegmentState::kOpen &&
                                    segment.state != SegmentState::kSealed)) {
      return false;
    }
    for (std::uint32_t i = 0; i < segment.told.size(); ++i) {
      if (!segment.told[i]) continue;
      CHECK(i < entries.size());
      SegmentIndex::Record record;
      if (!index_.Get({number, i}, &record)) --lagging_;
      Untell({number, i}, entries[i].block);
    }
    index_.RemoveSegment(number);
    segment.live_bytes = 0;
    segment.live_records = 0;
    segment.state = SegmentState::kRetiring;
    segment.free = std::move(free);
    if (segment.holds == 0) run = BecomeFree(&segment);
  }
  if (run) std::move(run)();
  return true;
}

void FlashSpace::EndHold(std::uint32_t number) {
  Task run;
  {
    MutexLock lock(&mutex_);
    Segment& segment = segments_[number];
    CHECK(segment.holds > 0 && holds_ > 0);
    --segment.holds;
    --holds_;
    if (segment.holds == 0 && segment.state == SegmentState::kRetiring) {
      run = BecomeFree(&segment);
    }
  }
  if (run) std::move(run)();
}

void FlashSpace::DropWaiting() {
  std::vector<Task> dropped;
  MutexLock lock(&mutex_);
  for (Segment& segment : segments_) {
    if (!segment.free) continue;
    dropped.push_back(std::move(segment.free));
    segment.free = nullptr;
  }
}

std::vector<SegmentFacts> FlashSpace::Sealed() const {
  MutexLock lock(&mutex_);
  std::vector<SegmentFacts> sealed;
  for (const Segment& segment : segments_) {
    if (segment.state != SegmentState::kSealed) continue;
    SegmentFacts facts;
    facts.segment = segment.name.segment;
    facts.lap = static_cast<std::uint64_t>(segment.name.lap);
    facts.tenant = segment.name.tenant;
    facts.live_bytes = segment.live_bytes;
    facts.live_records = segment.live_records;
    facts.reads = segment.reads;
    facts.sealed_at = segment.sealed_at;
    facts.last_read = segment.last_read;
    sealed.push_back(facts);
  }
  return sealed;
}

std::uint32_t FlashSpace::free_segments() const {
  MutexLock lock(&mutex_);
  return free_;
}

FlashSpaceSnapshot FlashSpace::Look() const {
  MutexLock lock(&mutex_);
  FlashSpaceSnapshot look;
  look.segments = layout_.segments;
  look.free = free_;
  for (const Segment& segment : segments_) {
    look.open += segment.state == SegmentState::kOpen ? 1 : 0;
    look.sealed += segment.state == SegmentState::kSealed ? 1 : 0;
    look.retiring += segment.state == SegmentState::kRetiring ? 1 : 0;
    look.live_bytes += segment.live_bytes;
  }
  look.records = index_.records();
  look.holds = holds_;
  look.index_bytes = index_.memory_bytes();
  look.told = told_;
  look.lagging = lagging_;
  return look;
}

}  // namespace firnkv
