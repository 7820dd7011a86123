// The node's own checks of copies that readers found corrupt (rule P12): a copy
// is isolated only where the node sees for itself that it is.
//
// A report costs its sender a message and the node a pass over a block, so what
// it may cost is bounded: checks run one at a time, in turn by tenant, at no
// more than bytes_a_second; of one tenant and of all together only so many
// wait, and one more is kCongested. A sound copy stays where it is whatever is
// said of it.
//
// Does not know: who may see the block; the caller has checked that.
//
// Threading. Thread-safe, one mutex, never held during a check or a completion.
//
// Ownership. Owned by Node; everything in Parts outlives it. Close first.

#ifndef FIRNKV_SERVER_NODE_COPY_CHECKS_H_
#define FIRNKV_SERVER_NODE_COPY_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class CopyChecks {
 public:
  struct Options {
    // Copies that wait. Two tenants cannot fill the queue for a third unless
    // both are hostile.
    std::size_t max_waiting = 256;
    std::size_t max_waiting_a_tenant = 96;
    // About 3 % of what one core checksums in a second.
    std::uint64_t bytes_a_second = 256 * kMiB;
  };
  struct Parts {
    Executor* executor = nullptr;
    DramPool* pool = nullptr;
  };
  struct Copy {
    BlockId block;
    Generation generation = Generation::kNone;
  };
  // One outcome a copy: kCorrupt: isolated; kHit: sound; kMiss: no such copy
  // here; kCongested: all of them, nothing is checked; kCancelled.
  using Done = absl::AnyInvocable<void(std::vector<Outcome>) &&>;

  CopyChecks(const Options& options, const Parts& parts)
      : options_(options), parts_(parts) {}
  CopyChecks(const CopyChecks&) = delete;
  CopyChecks& operator=(const CopyChecks&) = delete;
  // Close().
  ~CopyChecks() { Close(); }

  // Runs `done` exactly once, maybe inside the call.
  void Start(TenantId tenant, std::vector<Copy> copies, Done done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // No check runs after this returns; those that wait are kCancelled.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Counters {
    Counter checked;
    Counter refused;
  };
  const Counters& counters() const { return counters_; }

 private:
  // Copies of one call, and how far it has come.
  struct Report {
    TenantId tenant;
    std::vector<Copy> copies;
    std::vector<Outcome> outcomes;
    Done done;
  };
  struct Queue {
    std::deque<std::unique_ptr<Report>> reports;
    // Copies of the tenant, also of a report that is being checked.
    std::size_t waiting = 0;
  };

  void PostNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckNext() ABSL_LOCKS_EXCLUDED(mutex_);
  void PutLast(std::unique_ptr<Report> report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Parts parts_;
  Counters counters_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // A CheckNext is posted or runs.
  bool checking_ ABSL_GUARDED_BY(mutex_) = false;
  BootTime next_at_ ABSL_GUARDED_BY(mutex_);
  std::size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<TenantId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  // Tenants with reports in their queue.
  std::deque<TenantId> turns_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_COPY_CHECKS_H_
