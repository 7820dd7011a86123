// How many descriptors this node may have in flight to its sessions (rule S4):
// the kernel charges them to the node's uid, so all clients together share a
// bound well below nofile.
//
// Threading. Thread-safe.

#ifndef FIRNKV_SERVER_NODE_DESCRIPTOR_BUDGET_H_
#define FIRNKV_SERVER_NODE_DESCRIPTOR_BUDGET_H_

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "proto/base/check.h"
#include "proto/base/mutex.h"

namespace firnkv {

class DescriptorBudget {
 public:
  explicit DescriptorBudget(std::size_t most) : most_(most) {}

  // False at the bound. Who took one gives it back.
  bool Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (in_flight_ >= most_) return false;
    ++in_flight_;
    return true;
  }
  void GiveBack() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    CHECK(in_flight_ > 0);
    --in_flight_;
  }
  std::size_t in_flight() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return in_flight_;
  }

 private:
  const std::size_t most_;
  mutable Mutex mutex_;
  std::size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_DESCRIPTOR_BUDGET_H_
