// Copies committed bytes from staging into slots, checksumming what lands in
// the same pass (rules P1, S8).
//
// Work is a queue of jobs, one a commit, served in turn by tenant, a step of at
// most 1 MiB at a time, each step a task of the executor: one writer of 64 MiB
// blocks cannot starve another's 4 KiB. Blocks of a job are copied and answered
// in its order, the chain's. A block that is not begun by the job's deadline is
// kTimedOut, and still reserved; one that was begun is finished, since its
// reservation has a deadline of its own.
//
// Foreground stream work goes first: while `foreground_busy` says so, a step is
// put off, but never more than max_put_off in all before each step.
//
// The queue is bounded by what may be reserved: each reserved byte is queued at
// most once at a time. It is shared out evenly: a tenant that has queued its
// part of max_queued_bytes, one of as many as have something queued, is Full,
// and its Reserve answers kCongested; so no tenant can fill it for the others.
// A commit is always taken.
//
// A block costs a step at least a page, so that a step is at most 256 blocks
// however small they are.
//
// Bytes that fail the writer's checksum are kCorrupt: never resident, the slot
// is dead.
//
// Threading. Thread-safe, one mutex, never held while bytes are copied or the
// pool or a completion is called. At most max_parallel steps run at a time, and
// at most one of a job.
//
// Ownership. Pool and executor outlive it. Owned by Node.

#ifndef FIRNKV_SERVER_NODE_COPIER_H_
#define FIRNKV_SERVER_NODE_COPIER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "server/node/staging.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class Copier {
 public:
  struct Options {
    std::uint64_t max_queued_bytes = 512 * kMiB;
    std::uint64_t step_bytes = kMiB;
    int max_parallel = 2;
    // Between two looks at `foreground_busy`, and in all before a step.
    absl::Duration put_off = absl::Microseconds(200);
    absl::Duration max_put_off = absl::Milliseconds(5);
  };
  struct Parts {
    DramPool* pool = nullptr;
    Executor* executor = nullptr;
    // Null: never. Called on tasks, under no lock.
    absl::AnyInvocable<bool() const> foreground_busy;
  };

  struct Block {
    SlotCopy reserved;
    // In order; they add up to the block's length.
    std::vector<StagingRange> source;
    // The writer's, one a piece.
    std::vector<std::uint32_t> pieces;
  };
  // `index` counts the job's blocks. Runs once for each, in order, under no
  // lock. kStored, kAlreadyThere, kReservationOver, kCleared, kCorrupt,
  // kTimedOut, kCancelled (Drain).
  using BlockDone = absl::AnyInvocable<void(std::size_t index, CommitResult)>;
  struct Job {
    TenantId tenant;
    TrafficClass traffic = TrafficClass::kBackgroundWrite;
    BootTime deadline;
    std::vector<Block> blocks;
    BlockDone done;
  };

  Copier(const Options& options, Parts parts);
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  // Drain().
  ~Copier();

  void Start(Job job) ABSL_LOCKS_EXCLUDED(mutex_);

  // Answers what is queued with kCancelled and waits for running steps.
  // Everything later is kCancelled at once. Idempotent.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

  bool Full(TenantId tenant) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::uint64_t queued_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A job and how far it has come.
  struct Running;
  using Queue = std::deque<std::unique_ptr<Running>>;

  // Posts as many steps as there are jobs for.
  void PostSteps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `put_off_until` is zero in a step's first run.
  void Step(BootTime put_off_until) ABSL_LOCKS_EXCLUDED(mutex_);
  // The next tenant's next job; null if there is none.
  std::unique_ptr<Running> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutBack(std::unique_ptr<Running> running)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- One step of one job, under no lock.

  // Copies at most step_bytes, answering blocks on the way; true once the job
  // is over.
  bool Advance(Running* running);
  // False: the block was answered instead.
  bool Begin(Running* running);
  struct Copied {
    std::uint64_t bytes = 0;
    // What landed is what the writer wrote.
    bool sound = true;
  };
  // Copies at most `most` bytes of the current block.
  Copied CopySome(Running* running, std::uint64_t most);
  void Answer(Running* running, CommitResult result);
  // Answers every block that is left.
  void AnswerRest(Running* running, Outcome outcome);

  const Options options_;
  const Parts parts_;

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  int steps_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the tenants that have some.
  absl::flat_hash_map<TenantId, std::uint64_t> queued_by_tenant_
      ABSL_GUARDED_BY(mutex_);
  // Jobs of no step now, by tenant, and the tenants that have some, in turn.
  absl::flat_hash_map<TenantId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  std::deque<TenantId> turns_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_COPIER_H_
