// Goes over a flash device's segments and brings what others were told of its
// records in line with what may be served: after a namespace was confirmed
// (rule C3), cleared, turned off or on, and after a damaged record left without
// its name being known.
//
// Asked for while it runs, it goes round once more. A segment whose contents
// cannot be read stays as it is, and is looked at again after `retry`.
//
// Does not know who may be served: it asks.
//
// Threading. Thread-safe; its steps run on the executor.
//
// Ownership. Everything given to the constructor outlives it. Owned by
// FlashTier. Stopped before it is destroyed, unless device and executor have
// dropped their completions (a crash).

#ifndef FIRNKV_SERVER_TIER_FLASH_SWEEP_H_
#define FIRNKV_SERVER_TIER_FLASH_SWEEP_H_

#include <functional>
#include <optional>
#include <vector>

#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/tier/flash_contents.h"
#include "server/tier/flash_space.h"

namespace firnkv {

class FlashSweep {
 public:
  // What is to be told of records of this tenant's segments, as things stand
  // now; called without locks, its answer under FlashSpace's.
  using Standings = std::function<FlashSpace::Standing(const ContentsEntry&)>;
  using Ask = std::function<Standings(const TenantId& tenant)>;

  FlashSweep(FlashSpace* space, FlashContents* contents, Executor* executor,
             Ask ask)
      : space_(space),
        contents_(contents),
        executor_(executor),
        ask_(std::move(ask)) {}
  ~FlashSweep() { scope_.Close(); }

  void Request() ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing is asked for.
  bool settled() const ABSL_LOCKS_EXCLUDED(mutex_);
  // `done` once no read is under way; nothing is begun any more.
  void Stop(Task done) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr absl::Duration kRetry = absl::Seconds(5);

  void Step(std::uint32_t from) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnContents(const SegmentName& name,
                  const std::optional<std::vector<ContentsEntry>>& entries)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void EndRound() ABSL_LOCKS_EXCLUDED(mutex_);
  void Later(BootTime when, std::uint32_t from);

  FlashSpace* const space_;
  FlashContents* const contents_;
  Executor* const executor_;
  const Ask ask_;
  TaskScope scope_;

  mutable Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  // Once more, from the beginning.
  bool again_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  // Of this round, a segment could not be read.
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Task stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_SWEEP_H_
