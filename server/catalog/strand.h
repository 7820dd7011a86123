// Runs the catalog's writes one after the other, in the order in which they
// were posted: the critical section of rules A1 and A3 without a lock held over
// the store.
//
// What changes registrations, namespaces, applied numbers or entries runs here
// and nowhere else; so a step that has checked something may rely on it until
// it returns, its store write included. Readers (Locate, KeepAlive) do not come
// here: they take the short mutex of the class that they ask.
//
// Threading. Post from any thread. Steps run on the executor's threads, never
// two at once, and each sees what the one before it did.
//
// Ownership. Owned by Catalog, closed before what its steps refer to.

#ifndef FIRNKV_SERVER_CATALOG_STRAND_H_
#define FIRNKV_SERVER_CATALOG_STRAND_H_

#include <cstddef>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"

namespace firnkv {

class Strand {
 public:
  // Runs exactly once. OK: it is its turn. Otherwise it may touch nothing of
  // the catalog and only tells its caller: RESOURCE_EXHAUSTED where the queue
  // was full, UNAVAILABLE where the catalog stops; then it runs inside Post or
  // Close.
  using Step = absl::AnyInvocable<void(absl::Status turn) &&>;

  // Each step waits for at most one store write, of a millisecond in the middle
  // and tens at the worst: a full queue is seconds of work, beyond which a
  // caller's deadline has passed anyway.
  static constexpr std::size_t kMaxQueued = 8192;

  // `executor` must outlive the strand.
  explicit Strand(Executor* executor);
  ~Strand();  // Close().

  void Post(Step step) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits for the running step, then ends the queued ones with UNAVAILABLE.
  // Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Steps that one task runs before it lets other tasks have the thread.
  static constexpr int kStepsATask = 16;

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void PostRun();

  Executor* const executor_;
  Mutex mutex_;
  std::deque<Step> queue_ ABSL_GUARDED_BY(mutex_);
  // A task that will look at the queue is posted or running.
  bool scheduled_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_STRAND_H_
