#include "server/tier/flash_reclaimer.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"

namespace firnkv {

FlashReclaimer::FlashReclaimer(FlashSpace* space, FlashReader* reader,
                               FlashWriter* writer, FlashContents* contents,
                               const SegmentOrder* order, Executor* executor,
                               FlashLedger* ledger, MayAppend may_append)
    : space_(space),
      reader_(reader),
      writer_(writer),
      contents_(contents),
      order_(order),
      executor_(executor),
      ledger_(ledger),
      may_append_(std::move(may_append)) {}

FlashReclaimer::~FlashReclaimer() { scope_.Close(); }

void FlashReclaimer::Later(void (FlashReclaimer::*next)()) {
  executor_->Post(scope_.Wrap([this, next] { (this->*next)(); }));
}

void FlashReclaimer::Reclaim(std::uint64_t bytes, Freed freed) {
  {
    MutexLock lock(&mutex_);
    wishes_.push_back({bytes, 0, std::move(freed)});
  }
  Later(&FlashReclaimer::Pump);
}

void FlashReclaimer::KeepFree(std::uint32_t segments) {
  {
    MutexLock lock(&mutex_);
    keep_free_ = segments;
    if (busy_) return;
  }
  Later(&FlashReclaimer::Pump);
}

void FlashReclaimer::Stop(Task done) {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopped_ = std::move(done);
  }
  Later(&FlashReclaimer::Pump);
}

std::vector<SegmentFacts> FlashReclaimer::Candidates() {
  const std::vector<SegmentFacts> sealed = space_->Sealed();
  const BootTime now = executor_->clock()->Now();
  std::vector<SegmentFacts> readable;
  {
    MutexLock lock(&mutex_);
    for (const SegmentFacts& one : sealed) {
      const auto it = unreadable_.find(one.segment);
      if (it != unreadable_.end() && now < it->second) continue;
      readable.push_back(one);
    }
  }
  return order_->Order(std::move(readable));
}

void FlashReclaimer::Pump() {
  std::vector<Wish> ended;
  Task stopped;
  bool begin = false;
  // No lock of the policy's, and none of ours around the space's copy.
  const std::vector<SegmentFacts> sealed = Candidates();
  const std::uint32_t free = space_->free_segments();
  {
    MutexLock lock(&mutex_);
    if (busy_) return;
    while (!wishes_.empty() &&
           (stopping_ || sealed.empty() ||
            wishes_.front().freed_bytes >= wishes_.front().bytes)) {
      ended.push_back(std::move(wishes_.front()));
      wishes_.pop_front();
    }
    begin = !stopping_ && !sealed.empty() &&
            (!wishes_.empty() || free < keep_free_);
    busy_ = begin;
    if (stopping_) stopped = std::move(stopped_);
    if (stopping_) stopped_ = nullptr;
  }
  for (Wish& wish : ended) std::move(wish.freed)(wish.freed_bytes);
  if (stopped) std::move(stopped)();
  if (!begin) return;
  going_ = std::make_unique<Going>();
  going_->facts = sealed.front();
  NextRecord();
}

// Looks for the next record that is worth it.
void FlashReclaimer::NextRecord() {
  const std::uint32_t segment = going_->facts.segment;
  while (going_->facts.live_records > 0) {
    const std::optional<std::uint32_t> ordinal =
        space_->NextRecord(segment, going_->next);
    if (!ordinal) break;
    going_->next = *ordinal + 1;
    std::optional<HeldRecord> record =
        space_->Get({.segment = segment, .ordinal = *ordinal});
    if (!record || record->name.lap != FlashLap{going_->facts.lap} ||
        !order_->WorthKeeping(record->reads)) {
      continue;
    }
    reader_->ReadWhole(*std::move(record), [this](WholeRecord whole) {
      OnRecord(std::move(whole));
    });
    return;
  }
  Retire();
}

void FlashReclaimer::OnRecord(WholeRecord record) {
  if (record.outcome != LoadOutcome::kLoaded ||
      !may_append_(record.record.name.tenant, record.header.header)) {
    NextRecord();
    return;
  }
  going_->record = std::move(record);
  FlashAppend append;
  append.tenant = going_->record.record.name.tenant;
  append.header = &going_->record.header.header;
  append.bytes = going_->record.payload;
  append.again = true;
  append.done = [this](StoreOutcome /*outcome*/, Generation /*generation*/) {
    // Stored or not: its old copy goes.
    going_->record = WholeRecord{};
    NextRecord();
  };
  writer_->Append(absl::MakeSpan(&append, 1));
}

void FlashReclaimer::Retire() {
  SegmentName name;
  name.device = space_->layout().device;
  name.segment = going_->facts.segment;
  name.lap = FlashLap{going_->facts.lap};
  name.tenant = going_->facts.tenant;
  if (!space_->Told(name)) return OnContents(std::vector<ContentsEntry>());
  contents_->Read(
      name, [this](const std::optional<std::vector<ContentsEntry>>& entries) {
        OnContents(entries);
      });
}

void FlashReclaimer::OnContents(
    const std::optional<std::vector<ContentsEntry>>& entries) {
  const SegmentFacts facts = going_->facts;
  if (!entries) {
    going_.reset();
    {
      MutexLock lock(&mutex_);
      unreadable_[facts.segment] = executor_->clock()->Now() + kUnreadablePause;
      busy_ = false;
    }
    return Later(&FlashReclaimer::Pump);
  }
  if (!space_->Retire(facts.segment, FlashLap{facts.lap}, *entries,
                      [this] { Later(&FlashReclaimer::OnFree); })) {
    // Somebody else retired it.
    Later(&FlashReclaimer::OnFree);
  }
}

void FlashReclaimer::OnFree() {
  const std::uint64_t bytes = space_->layout().segment_bytes;
  ledger_->reclaimed_segments.Add();
  ledger_->reclaimed_bytes.Add(bytes);
  going_.reset();
  {
    MutexLock lock(&mutex_);
    busy_ = false;
    if (!wishes_.empty()) wishes_.front().freed_bytes += bytes;
  }
  Pump();
}

}  // namespace firnkv
