#include "server/tier/flash_sweep.h"

#include <utility>

namespace firnkv {

void FlashSweep::Later(BootTime when, std::uint32_t from) {
  executor_->PostAt(when, scope_.Wrap([this, from] { Step(from); }));
}

void FlashSweep::Request() {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    again_ = true;
    if (running_) return;
    running_ = true;
  }
  Later(executor_->clock()->Now(), 0);
}

bool FlashSweep::settled() const {
  MutexLock lock(&mutex_);
  return !running_;
}

void FlashSweep::Step(std::uint32_t from) {
  const std::optional<SegmentName> next = space_->NextSegment(from);
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    // What is asked for from here on may concern segments behind.
    if (from == 0) again_ = false;
    reading_ = next.has_value();
  }
  if (!next) return EndRound();
  contents_->Read(
      *next, [this, name = *next](
                 const std::optional<std::vector<ContentsEntry>>& entries) {
        OnContents(name, entries);
      });
}

void FlashSweep::OnContents(
    const SegmentName& name,
    const std::optional<std::vector<ContentsEntry>>& entries) {
  if (entries) {
    const Standings standings = ask_(name.tenant);
    space_->Align(name, *entries, standings);
  }
  Task stopped;
  {
    MutexLock lock(&mutex_);
    reading_ = false;
    failed_ = failed_ || !entries;
    stopped = std::exchange(stopped_, nullptr);
  }
  if (stopped) return std::move(stopped)();
  Later(executor_->clock()->Now(), name.segment + 1);
}

void FlashSweep::EndRound() {
  absl::Duration pause;
  {
    MutexLock lock(&mutex_);
    if (failed_ && !again_) pause = kRetry;
    running_ = failed_ || again_;
    failed_ = false;
    if (!running_) return;
  }
  Later(executor_->clock()->Now() + pause, 0);
}

void FlashSweep::Stop(Task done) {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (reading_) {
      stopped_ = std::move(done);
      return;
    }
  }
  std::move(done)();
}

}  // namespace firnkv
