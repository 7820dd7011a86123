// The highest clear epoch that this process has seen of each namespace. Every
// request carries it: a node that knows less asks the catalog before it serves
// (rule C2), and what is older is refused here.
//
// Learns from the catalog and from the local node only: any other peer could
// make this client refuse everything by naming a number too high.
//
// Threading. All methods may be called from any thread.

#ifndef FIRNKV_CLIENT_CLEAR_EPOCHS_H_
#define FIRNKV_CLIENT_CLEAR_EPOCHS_H_

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "client/namespace.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"

namespace firnkv {

class ClearEpochs {
 public:
  void Learn(NamespaceId name_space, ClearEpoch epoch)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    if (epoch == ClearEpoch::kUnknown) return;
    MutexLock lock(&mutex_);
    ClearEpoch& known = known_[name_space];
    known = std::max(known, epoch);
  }

  // At least what the handle says.
  ClearEpoch Highest(const NamespaceHandle& handle)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    const auto it = known_.find(handle.id);
    if (it == known_.end()) return handle.clear_epoch;
    return std::max(it->second, handle.clear_epoch);
  }

 private:
  Mutex mutex_;
  // One entry a namespace that this process uses.
  absl::flat_hash_map<NamespaceId, ClearEpoch> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_CLEAR_EPOCHS_H_
