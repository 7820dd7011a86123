#include "proto/base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace firnkv {

struct TaskScope::State {
  Mutex mutex;
  CondVar ended;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  // The threads that are inside a wrapped task now, once a task: one thread can
  // be inside several, if a task runs an executor.
  absl::InlinedVector<pthread_t, 4> running ABSL_GUARDED_BY(mutex);

  bool Enter() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    if (closed) return false;
    running.push_back(pthread_self());
    return true;
  }

  void Leave() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    const auto mine = std::find_if(
        running.begin(), running.end(),
        [](pthread_t one) { return pthread_equal(one, pthread_self()) != 0; });
    running.erase(mine);
    if (closed) ended.SignalAll();
  }

  bool OthersRun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return std::any_of(running.begin(), running.end(), [](pthread_t one) {
      return pthread_equal(one, pthread_self()) == 0;
    });
  }
};

// Shared: wrapped tasks outlive the scope inside an executor's queue.
TaskScope::TaskScope() : state_(std::make_shared<State>()) {}

TaskScope::~TaskScope() { Close(); }

Task TaskScope::Wrap(Task task) {
  return [state = state_, task = std::move(task)]() mutable {
    if (!state->Enter()) return;
    {
      // Destroyed while the scope still counts it, since its captures may refer
      // to the owner.
      Task mine = std::move(task);
      std::move(mine)();
    }
    state->Leave();
  };
}

void TaskScope::Close() {
  MutexLock lock(&state_->mutex);
  state_->closed = true;
  while (state_->OthersRun()) state_->ended.Wait(&state_->mutex);
}

}  // namespace firnkv
