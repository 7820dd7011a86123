// Counts the callbacks of one object that are running, and on which threads,
// so that its destructor can wait for those of other threads without waiting
// for the one that it is called from.
//
// Threading. Not thread-safe by itself: every method is called with the owner's
// mutex held, which is passed in where it is needed. The owner stays alive
// until Leave (it is shared with whoever runs the callback).

#ifndef FIRNKV_CLIENT_TRANSPORT_CALLBACK_GATE_H_
#define FIRNKV_CLIENT_TRANSPORT_CALLBACK_GATE_H_

#include <pthread.h>

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "proto/base/mutex.h"

namespace firnkv {

class CallbackGate {
 public:
  // This thread begins a callback; it drops the lock before it runs it.
  void Enter() { threads_.push_back(pthread_self()); }

  // This thread has ended one.
  void Leave() {
    const auto self =
        std::find(threads_.begin(), threads_.end(), pthread_self());
    if (self != threads_.end()) threads_.erase(self);
    changed_.SignalAll();
  }

  bool AnyRuns() const { return !threads_.empty(); }

  bool OthersRun() const {
    return std::any_of(threads_.begin(), threads_.end(), [](pthread_t thread) {
      return pthread_equal(thread, pthread_self()) == 0;
    });
  }

  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    changed_.Wait(mutex);
  }

 private:
  // At most one a direction, and what they start from inside.
  absl::InlinedVector<pthread_t, 4> threads_;
  CondVar changed_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_CALLBACK_GATE_H_
