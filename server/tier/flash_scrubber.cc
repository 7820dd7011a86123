#include "server/tier/flash_scrubber.h"

#include <utility>

namespace firnkv {

FlashScrubber::FlashScrubber(const Options& options, FlashSpace* space,
                             FlashReader* reader, Executor* executor,
                             FlashLedger* ledger)
    : options_(options),
      space_(space),
      reader_(reader),
      executor_(executor),
      ledger_(ledger),
      budget_(options.budget) {}

FlashScrubber::~FlashScrubber() { scope_.Close(); }

void FlashScrubber::Start() {
  MutexLock lock(&mutex_);
  if (options_.budget.bytes_a_day > 0 && !stopping_) {
    StepIn(absl::ZeroDuration());
  }
}

void FlashScrubber::StepIn(absl::Duration delay) {
  timer_ = executor_->PostAt(executor_->clock()->Now() + delay,
                             scope_.Wrap([this] { Step(); }));
}

void FlashScrubber::WalkNow() {
  TimerId timer = TimerId::kNone;
  {
    MutexLock lock(&mutex_);
    // In the middle of a walk there is nothing to begin.
    if (stopping_ || reading_ || next_ != RecordNumber{}) return;
    timer = std::exchange(timer_, TimerId::kNone);
  }
  // False: the step runs just now, and begins the walk.
  const bool waited = timer == TimerId::kNone || executor_->Cancel(timer);
  MutexLock lock(&mutex_);
  if (waited && !stopping_) StepIn(absl::ZeroDuration());
}

bool FlashScrubber::Find(std::optional<HeldRecord>* record) {
  while (next_.segment < space_->layout().segments) {
    const std::optional<std::uint32_t> ordinal =
        space_->NextRecord(next_.segment, next_.ordinal);
    if (ordinal) {
      next_.ordinal = *ordinal;
      *record = space_->Get(next_);
      if (*record) return true;
    } else {
      next_ = {.segment = next_.segment + 1, .ordinal = 0};
    }
  }
  return false;
}

void FlashScrubber::Step() {
  std::optional<HeldRecord> record;
  {
    MutexLock lock(&mutex_);
    timer_ = TimerId::kNone;
    if (stopping_) return;
    if (!Find(&record)) {
      ++passes_;
      next_ = RecordNumber{};
      // Only asked for.
      if (options_.budget.bytes_a_day == 0) return;
      StepIn(options_.pause);
      return;
    }
    const BootTime now = executor_->clock()->Now();
    if (!budget_.Take(record->length, now)) {
      StepIn(budget_.WaitFor(record->length, now) + absl::Milliseconds(1));
      return;
    }
    ++next_.ordinal;
    reading_ = true;
  }
  reader_->ReadWhole(*std::move(record),
                     [this](WholeRecord whole) { OnRecord(whole); });
}

void FlashScrubber::OnRecord(const WholeRecord& record) {
  ledger_->scrubbed_bytes.Add(record.record.length);
  Task stopped;
  {
    MutexLock lock(&mutex_);
    reading_ = false;
    if (stopping_) {
      stopped = std::exchange(stopped_, nullptr);
    } else {
      StepIn(absl::ZeroDuration());
    }
  }
  if (stopped) std::move(stopped)();
}

void FlashScrubber::Stop(Task done) {
  TimerId timer = TimerId::kNone;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    timer = std::exchange(timer_, TimerId::kNone);
    if (reading_) {
      stopped_ = std::move(done);
      return;
    }
  }
  if (timer != TimerId::kNone) executor_->Cancel(timer);
  std::move(done)();
}

ScrubProgress FlashScrubber::progress() const {
  MutexLock lock(&mutex_);
  return {.passes = passes_,
          .segment = next_.segment,
          .segments = space_->layout().segments};
}

}  // namespace firnkv
