#include "client/completion_queue.h"

#include <algorithm>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

absl::StatusOr<int> CompletionQueue::Fd() {
  MutexLock lock(&mutex_);
  if (!signal_) {
    ASSIGN_OR_RETURN(signal_, EventSignal::Make());
    if (!done_.empty()) signal_->Set();
  }
  return signal_->fd();
}

absl::StatusOr<CompletionId> CompletionQueue::Begin() {
  MutexLock lock(&mutex_);
  if (undrained_ >= kMaxUndrained) {
    return absl::ResourceExhaustedError(
        StrCat(undrained_, " submitted operations have not been drained"));
  }
  ++undrained_;
  return CompletionId{++last_id_};
}

void CompletionQueue::Finish(Completion completion) {
  MutexLock lock(&mutex_);
  done_.push_back(std::move(completion));
  // The first one wakes the caller, for all that come before it drains.
  if (done_.size() == 1 && signal_) signal_->Set();
}

std::vector<Completion> CompletionQueue::Drain(std::size_t most) {
  std::vector<Completion> drained;
  MutexLock lock(&mutex_);
  const std::size_t count = std::min(most, done_.size());
  if (count == 0) return drained;
  const auto end = done_.begin() + static_cast<std::ptrdiff_t>(count);
  drained.assign(std::make_move_iterator(done_.begin()),
                 std::make_move_iterator(end));
  done_.erase(done_.begin(), end);
  undrained_ -= count;
  if (done_.empty() && signal_) signal_->Clear();
  return drained;
}

}  // namespace firnkv
