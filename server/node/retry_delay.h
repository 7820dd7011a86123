// How long to wait before the next try of something that failed: doubling from
// `first` to `longest`, each with a random half taken off, so that a cluster's
// nodes do not come back in step.
//
// A plain value; its owner's mutex protects it.

#ifndef FIRNKV_SERVER_NODE_RETRY_DELAY_H_
#define FIRNKV_SERVER_NODE_RETRY_DELAY_H_

#include <algorithm>

#include "absl/time/time.h"
#include "proto/base/random.h"

namespace firnkv {

class RetryDelay {
 public:
  RetryDelay(absl::Duration first, absl::Duration longest, Random* random)
      : first_(first), longest_(longest), random_(random), next_(first) {}

  // Between half of it and all of it.
  absl::Duration Next() {
    const absl::Duration whole = next_;
    next_ = std::min(longest_, next_ * 2);
    return whole / 2 +
           whole / 2 * (static_cast<double>(random_->Below(1024)) / 1024.0);
  }
  // It worked.
  void Reset() { next_ = first_; }

 private:
  const absl::Duration first_;
  const absl::Duration longest_;
  Random* const random_;
  absl::Duration next_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_RETRY_DELAY_H_
