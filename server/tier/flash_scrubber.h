// Reads sealed segments again, record by record, within a byte budget, so that
// damage is found before somebody wants the bytes. What does not verify is
// isolated by the read itself (FlashReader::ReadWhole).
//
// Threading. Thread-safe; its steps run on the executor.
//
// Ownership. Everything given to the constructor outlives it. Owned by
// FlashTier. Stopped before it is destroyed, unless device and executor have
// dropped their completions (a crash).

#ifndef FIRNKV_SERVER_TIER_FLASH_SCRUBBER_H_
#define FIRNKV_SERVER_TIER_FLASH_SCRUBBER_H_

#include <cstdint>
#include <optional>

#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/policy/byte_budget.h"
#include "server/tier/flash_reader.h"

namespace firnkv {

struct ScrubProgress {
  // Whole walks over the device.
  std::uint64_t passes = 0;
  // Of this walk, segments looked at, of `segments`.
  std::uint32_t segment = 0;
  std::uint32_t segments = 0;
};

class FlashScrubber {
 public:
  struct Options {
    // 0 bytes a day: no scrubbing. 100 GiB a day is 1.2 MiB a second; the burst
    // is two of the largest blocks.
    ByteBudget::Options budget = {.bytes_a_day = 100 * kGiB,
                                  .burst_bytes = 128 * kMiB};
    // Between two walks, at least: a device that is nearly empty is not read
    // round and round.
    absl::Duration pause = absl::Hours(1);
  };

  FlashScrubber(const Options& options, FlashSpace* space, FlashReader* reader,
                Executor* executor, FlashLedger* ledger);
  ~FlashScrubber();

  void Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins a walk now, from the first segment, unless one is under way.
  void WalkNow() ABSL_LOCKS_EXCLUDED(mutex_);
  // `done` once no read is under way.
  void Stop(Task done) ABSL_LOCKS_EXCLUDED(mutex_);
  ScrubProgress progress() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Step() ABSL_LOCKS_EXCLUDED(mutex_);
  // Moves to the next record there is; false: the walk is at its end.
  bool Find(std::optional<HeldRecord>* record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnRecord(const WholeRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);
  void StepIn(absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  FlashSpace* const space_;
  FlashReader* const reader_;
  Executor* const executor_;
  FlashLedger* const ledger_;
  TaskScope scope_;

  mutable Mutex mutex_;
  ByteBudget budget_ ABSL_GUARDED_BY(mutex_);
  RecordNumber next_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t passes_ ABSL_GUARDED_BY(mutex_) = 0;
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Task stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_SCRUBBER_H_
