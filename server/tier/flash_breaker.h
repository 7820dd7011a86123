// Whether a device is to be asked: not while it fails or stalls (rule F5).
//
// Pure: time is given. Threading: none, its owner's mutex protects it.

#ifndef FIRNKV_SERVER_TIER_FLASH_BREAKER_H_
#define FIRNKV_SERVER_TIER_FLASH_BREAKER_H_

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "server/io/block_device.h"

namespace firnkv {

class FlashBreaker {
 public:
  struct Options {
    // In a row, without a success between them.
    int failures = 4;
    // Nothing has ended for so long, or would within it.
    absl::Duration stall = absl::Seconds(60);
    // While it is open, one try each time that this has passed.
    absl::Duration retry_after = absl::Seconds(10);
  };

  explicit FlashBreaker(const Options& options) : options_(options) {}

  // Whether to ask now.
  bool Allows(const DeviceLoad& load, BootTime now) {
    if (load.predicted_wait >= options_.stall) return false;
    if (failures_ < options_.failures) return true;
    if (now < next_try_) return false;
    next_try_ = now + options_.retry_after;
    return true;
  }
  void OnSuccess() { failures_ = 0; }
  void OnFailure(BootTime now) {
    if (failures_ < options_.failures) ++failures_;
    if (failures_ == options_.failures) next_try_ = now + options_.retry_after;
  }
  bool open() const { return failures_ >= options_.failures; }

 private:
  const Options options_;
  int failures_ = 0;
  BootTime next_try_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_BREAKER_H_
