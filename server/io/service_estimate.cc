#include "server/io/service_estimate.h"

#include <algorithm>

#include "proto/base/check.h"

namespace firnkv {

void ServiceEstimate::Busy(BootTime now) {
  if (transfers_ > 0) {
    busy_nanos_ += static_cast<double>(now.nanos() - counted_.nanos());
  }
  counted_ = now;
  if (busy_nanos_ > 2.0 * kWindowNanos) {
    const double keep = kWindowNanos / busy_nanos_;
    moved_ *= keep;
    busy_nanos_ *= keep;
  }
}

void ServiceEstimate::Started(std::uint64_t bytes, BootTime now) {
  Busy(now);
  if (transfers_ == 0) last_end_ = now;
  ++transfers_;
  bytes_ += bytes;
}

void ServiceEstimate::Ended(std::uint64_t bytes, BootTime now) {
  CHECK(transfers_ > 0 && bytes_ >= bytes);
  moved_ += static_cast<double>(bytes + kOverheadBytes);
  Busy(now);
  --transfers_;
  bytes_ -= bytes;
  last_end_ = now;
}

absl::Duration ServiceEstimate::PredictWait(BootTime now) const {
  if (transfers_ == 0) return absl::ZeroDuration();
  const auto waiting =
      static_cast<double>(bytes_ + transfers_ * kOverheadBytes);
  const double nanos = moved_ > 0 ? waiting / moved_ * busy_nanos_ : 0;
  const auto stalled = static_cast<double>(now.nanos() - last_end_.nanos());
  return absl::Nanoseconds(std::max(nanos, stalled));
}

}  // namespace firnkv
