// How a blocking call waits for its asynchronous form. Not for code that runs
// on a Client's own threads.

#ifndef FIRNKV_CLIENT_BLOCKING_H_
#define FIRNKV_CLIENT_BLOCKING_H_

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"

namespace firnkv {

template <typename T>
class Blocking {
 public:
  void Set(T value) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    value_.emplace(std::move(value));
    // Under the lock: the waiter destroys this as soon as it has it.
    set_.Signal();
  }

  T Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (!value_) set_.Wait(&mutex_);
    return *std::move(value_);
  }

 private:
  Mutex mutex_;
  CondVar set_;
  std::optional<T> value_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_BLOCKING_H_
