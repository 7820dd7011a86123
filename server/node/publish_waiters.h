// Commits that wait until the catalog knows their blocks (wait_for published).
//
// A waiter stands behind a position of the announcement log: once everything
// before it has been applied, every block of the waiter is known, unless its
// entry was refused. Where an inventory took the log's place, what it did not
// name is gone again: evicted before the awaited state (rule S9).
//
// Does not know: batches, calls.
//
// Threading. Thread-safe. `done` runs exactly once, under no lock: inside the
// call that decided it, or on a timer's task.
//
// Owned by Announcer. `executor` must outlive it.

#ifndef FIRNKV_SERVER_NODE_PUBLISH_WAITERS_H_
#define FIRNKV_SERVER_NODE_PUBLISH_WAITERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"

namespace firnkv {

class PublishWaiters {
 public:
  // One outcome a block: kStored where the catalog knows it; kCongested: gone
  // before it could be told, reserve again; kCleared and the like: refused;
  // kTimedOut; kCancelled.
  using Done = absl::AnyInvocable<void(std::vector<Outcome>) &&>;

  // At most `max_blocks` are waited for; beyond, a waiter is kCongested.
  PublishWaiters(std::size_t max_blocks, Executor* executor);
  // Close().
  ~PublishWaiters();

  // `blocks` are resident, their events stand before `position`.
  void Add(std::uint64_t position, std::vector<BlockId> blocks,
           BootTime deadline, Done done) ABSL_LOCKS_EXCLUDED(mutex_);

  // The catalog did not take this block's entry.
  void OnRefused(const BlockId& block, Outcome outcome)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // An inventory's part with this block was applied.
  void OnNamed(const BlockId& block) ABSL_LOCKS_EXCLUDED(mutex_);

  // Everything before `position` has been applied, event by event.
  void OnEventsApplied(std::uint64_t position) ABSL_LOCKS_EXCLUDED(mutex_);
  // An inventory that covers everything before `position` has been applied.
  void OnInventoryApplied(std::uint64_t position) ABSL_LOCKS_EXCLUDED(mutex_);
  // An inventory begins: of the waiters there are, it must name the blocks.
  void ForgetNamed() ABSL_LOCKS_EXCLUDED(mutex_);

  std::size_t waiting_blocks() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Every waiter is kCancelled, those to come too.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // By position and the order of their coming.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct Waiter {
    std::vector<BlockId> blocks;
    // kUnset: not refused. One a block.
    std::vector<Outcome> outcomes;
    std::vector<bool> named;
    TimerId timer = TimerId::kNone;
    Done done;
  };
  using Waiters = std::map<Key, Waiter>;
  struct Finished {
    Done done;
    std::vector<Outcome> outcomes;
  };

  // Takes the waiter out; blocks without an outcome get `otherwise`, or, where
  // they were not named, `unnamed`.
  Finished TakeOut(Waiters::iterator waiter, Outcome otherwise, Outcome unnamed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishUpTo(std::uint64_t position, Outcome unnamed)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDeadline(Key key) ABSL_LOCKS_EXCLUDED(mutex_);
  static void Run(std::vector<Finished> finished);

  const std::size_t max_blocks_;
  Executor* const executor_;

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t waiting_blocks_ ABSL_GUARDED_BY(mutex_) = 0;
  Waiters waiters_ ABSL_GUARDED_BY(mutex_);
  // Where a block is waited for: waiter and index in it.
  absl::flat_hash_map<BlockId, std::vector<std::pair<Key, std::size_t>>>
      by_block_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_PUBLISH_WAITERS_H_
