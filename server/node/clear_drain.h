// Up to which of the catalog's changes no read goes on that was granted before
// them (rule C4): what a node says with its heartbeats, so that
// `firnkv namespace clear --wait` knows when a strict clear is over here.
//
// A lease, a hold or a send keeps the slot of a cleared copy from being
// reclaimed, so a clear is over once the pool has no copy of an older epoch of
// the namespace (DramPool::ClearPending). A later clear of the same namespace
// keeps an earlier one waiting, which is too careful and never wrong.
//
// Threading. Thread-safe. One mutex, held over the pool's.
//
// Owned by CatalogLink. `pool` must outlive it.

#ifndef FIRNKV_SERVER_NODE_CLEAR_DRAIN_H_
#define FIRNKV_SERVER_NODE_CLEAR_DRAIN_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/namespace_facts.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class ClearDrain {
 public:
  explicit ClearDrain(const DramPool* pool) : pool_(pool) {}

  // A new registration: its cursors begin anew. What is waited for stays.
  void Restart() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    for (const Change& one : changes_) {
      noted_.insert(one.strict.begin(), one.strict.end());
    }
    changes_.clear();
    drained_ = 0;
  }

  // The pool has heard of these.
  void Note(const std::vector<NamespaceFacts>& facts)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    for (const NamespaceFacts& one : facts) {
      if (one.strict_clear && pool_->ClearPending(one.name_space) > 0) {
        noted_.insert(one.name_space);
      }
    }
  }
  // What was noted is everything up to `cursor`.
  void Close(std::uint64_t cursor) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (noted_.empty() && !changes_.empty() &&
        changes_.back().cursor == cursor) {
      return;
    }
    changes_.push_back({cursor, std::exchange(noted_, {})});
  }

  // The cursor up to which all is over; 0: none yet.
  std::uint64_t Drained() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (!changes_.empty() && IsOver(changes_.front())) {
      drained_ = std::max(drained_, changes_.front().cursor);
      changes_.pop_front();
    }
    return drained_;
  }
  // Something is waited for still.
  bool pending() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return !changes_.empty();
  }

 private:
  struct Change {
    std::uint64_t cursor = 0;
    absl::flat_hash_set<NamespaceId> strict;
  };
  bool IsOver(const Change& change) const {
    return std::all_of(change.strict.begin(), change.strict.end(),
                       [this](const NamespaceId& one) {
                         return pool_->ClearPending(one) == 0;
                       });
  }

  const DramPool* const pool_;
  mutable Mutex mutex_;
  // Not yet closed by a cursor.
  absl::flat_hash_set<NamespaceId> noted_ ABSL_GUARDED_BY(mutex_);
  // By cursor, one for each that brought news since what is waited for.
  std::deque<Change> changes_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t drained_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_CLEAR_DRAIN_H_
