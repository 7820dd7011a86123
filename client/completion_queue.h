// What has finished of a Client's submitted operations (completion.h), and the
// signal that something has.
//
// Threading. All methods may be called from any thread. One mutex, held over
// the signal's system calls: they do not block, and in another order than the
// queue's changes they would leave it set over nothing, or not set over
// something.
//
// Ownership. Belongs to the Client.

#ifndef FIRNKV_CLIENT_COMPLETION_QUEUE_H_
#define FIRNKV_CLIENT_COMPLETION_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/completion.h"
#include "client/transport/event_signal.h"
#include "proto/base/mutex.h"

namespace firnkv {

class CompletionQueue {
 public:
  // Made at the first call, closed with the queue.
  absl::StatusOr<int> Fd() ABSL_LOCKS_EXCLUDED(mutex_);

  // The name of an operation that begins; Finish follows, once.
  absl::StatusOr<CompletionId> Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish(Completion completion) ABSL_LOCKS_EXCLUDED(mutex_);

  // The oldest, at most so many.
  std::vector<Completion> Drain(std::size_t most) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::optional<EventSignal> signal_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Begun and not drained; done_ are those of them that have finished.
  std::size_t undrained_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Completion> done_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_COMPLETION_QUEUE_H_
