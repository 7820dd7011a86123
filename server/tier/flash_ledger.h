// What a flash device was asked to keep, what that cost, and what is left of
// its life. Counters since the start of this run.
//
// Threading. Thread-safe.

#ifndef FIRNKV_SERVER_TIER_FLASH_LEDGER_H_
#define FIRNKV_SERVER_TIER_FLASH_LEDGER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/base/counter.h"

namespace firnkv {

struct FlashLedger {
  // Of blocks, without headers: stored for the first time, and once more when
  // their segment went.
  Counter admitted_bytes;
  Counter reappended_bytes;
  // To and from the device, everything.
  Counter written_bytes;
  Counter read_bytes;
  Counter flushes;

  Counter stored_records;
  Counter loaded_records;
  // Loads that found another's read under way.
  Counter shared_reads;
  // Isolated copies (rule P12), and those of older clear epochs or other
  // owners.
  Counter corrupt_records;
  Counter cleared_records;
  Counter collisions;
  // Read back after writing, and what did not verify.
  Counter checked_records;
  Counter failed_checks;
  Counter scrubbed_bytes;
  Counter reclaimed_segments;
  Counter reclaimed_bytes;
  Counter over_budget_records;
  Counter device_failures;

  // Written bytes for each admitted or re-appended one; 0 before any was.
  double WriteAmplification() const {
    const double asked =
        static_cast<double>(admitted_bytes.value() + reappended_bytes.value());
    if (asked == 0) return 0;
    return static_cast<double>(written_bytes.value()) / asked;
  }

  // How long a device that is rated for `rated_bytes` of writing in all, of
  // which `used_bytes` were written before this run, lasts at this run's pace.
  // Infinite before anything was written.
  absl::Duration ProjectedLife(std::uint64_t rated_bytes,
                               std::uint64_t used_bytes,
                               absl::Duration run) const {
    const std::uint64_t written = written_bytes.value();
    if (written == 0) return absl::InfiniteDuration();
    const std::uint64_t used = used_bytes + written;
    if (used >= rated_bytes) return absl::ZeroDuration();
    return run * (static_cast<double>(rated_bytes - used) /
                  static_cast<double>(written));
  }
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_LEDGER_H_
