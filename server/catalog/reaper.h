// Removes from index and store what does not count any more: copies of earlier
// runs and inventories, of nodes whose grace is over, of older clear epochs.
//
// None of that is ever served, whether reaped or not: the verdict is made when
// an entry is read (membership.h, locator.h). So reaping may take its time: one
// pass over all entries, in bounded steps on the strand with pauses between
// them, and another one if something was cleared or replaced meanwhile. Each
// step judges anew (rule A3): entries of a node that came back meanwhile stay.
//
// Each pass first drops the digests of runs that are stale.
//
// It is also who looks at the membership's clock: notices stalls and expiry,
// and ends the grace of nodes that stay away.
//
// Threading. Start, Wake, Stop: any thread; WakeForClear, owes_cleared: on the
// strand; the rest are its own tasks.

#ifndef FIRNKV_SERVER_CATALOG_REAPER_H_
#define FIRNKV_SERVER_CATALOG_REAPER_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/catalog/entries.h"
#include "server/catalog/membership.h"
#include "server/catalog/registry.h"
#include "server/catalog/run_digests.h"
#include "server/catalog/strand.h"

namespace firnkv {

class Reaper {
 public:
  struct Options {
    // Entries that one step looks at; about a millisecond of memory, several of
    // the store.
    std::uint64_t step_entries = 4096;
    // Between two steps, so that announcements and registrations come between.
    absl::Duration pause = absl::Milliseconds(2);
    // The same while the index is loaded: until then each key that is asked for
    // costs a look into the store, so that others' turns on the strand are all
    // that a step lets between.
    absl::Duration load_pause;
  };

  // All outlive it.
  struct Parts {
    Executor* executor;
    Strand* strand;
    Registry* registry;
    Membership* membership;
    Entries* entries;
    RunDigests* digests;
  };
  Reaper(const Options& options, const Parts& parts);
  ~Reaper();  // Stop().

  // Loads the index, then looks at the membership and reaps, until Stop.
  void Start();
  // Something ceased to count: a pass over everything follows.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // On the strand. As Wake, for a clear.
  void WakeForClear() ABSL_LOCKS_EXCLUDED(mutex_);
  // On the strand. There may be entries that were cleared: of this run of the
  // catalog or, until the first pass after the load is over, of an earlier one.
  bool owes_cleared() const { return reaped_clears_ != clears_; }
  void Stop();

  const Counter& reaped() const { return reaped_; }

 private:
  void TickLater();
  void Tick();
  void LoadLater();
  void LoadStep();
  void PassLater();
  void PassStep() ABSL_LOCKS_EXCLUDED(mutex_);
  // One step of a pass; false once the pass is over.
  absl::StatusOr<bool> Reap();
  void EndPass() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const Parts parts_;
  // Where the pass goes on. Touched on the strand only, as are the next three:
  // clears there were, when the present pass began, and when the last pass
  // that is over did.
  std::string cursor_;
  std::uint64_t clears_ = 1;
  std::uint64_t pass_clears_ = 0;
  std::uint64_t reaped_clears_ = 0;
  Counter reaped_;

  Mutex mutex_;
  bool passing_ ABSL_GUARDED_BY(mutex_) = false;
  bool again_ ABSL_GUARDED_BY(mutex_) = false;

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_REAPER_H_
