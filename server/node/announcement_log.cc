#include "server/node/announcement_log.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"

namespace firnkv {

namespace {

// What an event does to the sums, or that undone.
void Apply(const AnnouncedEntry& entry, BucketSums* sums) {
  if (entry.operation == AnnouncedOperation::kPublish) {
    sums->Add(entry.block, kDramTier, entry.generation);
  } else {
    sums->Subtract(entry.block, kDramTier, entry.generation);
  }
}
void Undo(const AnnouncedEntry& entry, BucketSums* sums) {
  if (entry.operation == AnnouncedOperation::kPublish) {
    sums->Subtract(entry.block, kDramTier, entry.generation);
  } else {
    sums->Add(entry.block, kDramTier, entry.generation);
  }
}

}  // namespace

AnnouncedEntry PublishOf(const SlotHeader& header) {
  return AnnouncedEntry{.operation = AnnouncedOperation::kPublish,
                        .block = header.block,
                        .clear_epoch = header.clear_epoch,
                        .generation = header.generation,
                        .place = header.place,
                        .length = header.length};
}

AnnouncementLog::AnnouncementLog(const Options& options, Executor* executor)
    : options_(options), executor_(executor) {
  CHECK(options.max_entries >= options.batch && options.batch > 0);
}

AnnouncementLog::~AnnouncementLog() { Close(); }

void AnnouncementLog::SetWakeUp(absl::AnyInvocable<void()> on_pending) {
  on_pending_ = std::move(on_pending);
}

void AnnouncementLog::Close() { scope_.Close(); }

void AnnouncementLog::OnPublished(const SlotHeader& header) {
  Append(PublishOf(header));
}

void AnnouncementLog::OnWithdrawn(const SlotHeader& header) {
  Append(AnnouncedEntry{.operation = AnnouncedOperation::kWithdraw,
                        .block = header.block,
                        .clear_epoch = header.clear_epoch,
                        .generation = header.generation,
                        .place = {},
                        .length = 0});
}

void AnnouncementLog::Append(AnnouncedEntry entry) {
  MutexLock lock(&mutex_);
  ++end_;
  Apply(entry, &present_);
  if (state_ != State::kRecording) return;
  if (entries_.size() == options_.max_entries) {
    state_ = State::kOverflowed;
    std::deque<AnnouncedEntry>().swap(entries_);
    WakeUpAfter(absl::ZeroDuration());
    return;
  }
  entries_.push_back(std::move(entry));
  if (entries_.size() == options_.batch) {
    WakeUpAfter(absl::ZeroDuration());
  } else if (entries_.size() == 1) {
    WakeUpAfter(options_.delay);
  }
}

void AnnouncementLog::WakeUpAfter(absl::Duration delay) {
  Task wake_up = scope_.Wrap([this] {
    if (on_pending_) on_pending_();
  });
  if (delay <= absl::ZeroDuration()) {
    executor_->Post(std::move(wake_up));
  } else {
    executor_->PostAt(executor_->clock()->Now() + delay, std::move(wake_up));
  }
}

std::uint64_t AnnouncementLog::Restart() {
  MutexLock lock(&mutex_);
  entries_.clear();
  state_ = State::kRecording;
  return end_;
}

std::uint64_t AnnouncementLog::end() const {
  MutexLock lock(&mutex_);
  return end_;
}

std::size_t AnnouncementLog::pending() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

bool AnnouncementLog::overflowed() const {
  MutexLock lock(&mutex_);
  return state_ == State::kOverflowed;
}

std::optional<BucketSums> AnnouncementLog::Told() const {
  // Memory is taken before the lock: the pool waits for it.
  BucketSums told;
  MutexLock lock(&mutex_);
  if (state_ == State::kOverflowed) return std::nullopt;
  told = present_;
  for (const AnnouncedEntry& entry : entries_) Undo(entry, &told);
  return told;
}

AnnouncementLog::Oldest AnnouncementLog::Front(std::size_t most) const {
  MutexLock lock(&mutex_);
  const std::size_t count = std::min(most, entries_.size());
  Oldest oldest;
  oldest.first = end_ - entries_.size();
  oldest.entries.assign(entries_.begin(),
                        entries_.begin() + static_cast<std::ptrdiff_t>(count));
  return oldest;
}

void AnnouncementLog::DropUpTo(std::uint64_t position) {
  MutexLock lock(&mutex_);
  const std::uint64_t first = end_ - entries_.size();
  if (position <= first) return;
  const std::uint64_t count =
      std::min<std::uint64_t>(position - first, entries_.size());
  entries_.erase(entries_.begin(),
                 entries_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace firnkv
