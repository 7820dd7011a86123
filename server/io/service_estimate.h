// How long a device's queue takes, learned from what it has done: the bytes
// that it moved while it had any to move, over that time, forgetting what is
// long ago.
//
// A transfer counts for its bytes and kOverheadBytes: small ones are not free.
//
// Does not know the device. Threading: none, its owner's mutex protects it.

#ifndef FIRNKV_SERVER_IO_SERVICE_ESTIMATE_H_
#define FIRNKV_SERVER_IO_SERVICE_ESTIMATE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace firnkv {

class ServiceEstimate {
 public:
  // About what a flash device moves in the time that one more command costs it
  // (a microsecond or two at gigabytes a second).
  static constexpr std::uint64_t kOverheadBytes = 4096;

  // In the order in which they happen; `now` never goes back.
  void Started(std::uint64_t bytes, BootTime now);
  void Ended(std::uint64_t bytes, BootTime now);

  std::uint64_t transfers() const { return transfers_; }
  std::uint64_t bytes() const { return bytes_; }

  // Until all that has started and not ended has ended. Where nothing has ended
  // for longer than that, a device that stalls, as long as that has lasted.
  absl::Duration PredictWait(BootTime now) const;

 private:
  // Windows of busy time; each new one halves what was known.
  static constexpr std::int64_t kWindowNanos = 50'000'000;

  void Busy(BootTime now);

  std::uint64_t transfers_ = 0;
  std::uint64_t bytes_ = 0;
  // Moved in busy_nanos_ of having something to move.
  double moved_ = 0;
  double busy_nanos_ = 0;
  // Up to when busy_nanos_ is counted.
  BootTime counted_;
  BootTime last_end_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_IO_SERVICE_ESTIMATE_H_
