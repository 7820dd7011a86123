// The executor of production: named threads that run tasks, and one more that
// waits for the next timer. Used by the SDK and by the daemons.
//
// Tasks run in the order in which they were posted, several at a time. Due
// timers and posted tasks take turns, so that neither starves the other.
//
// Timers are counted in CLOCK_BOOTTIME by a timerfd, so that neither a
// suspended machine nor a changed wall clock moves them; `clock` must count
// the same (SystemClock).
//
// Threading. As executor.h says. Stop and the destructor wait for the threads,
// so they must not be called from inside a task.

#ifndef FIRNKV_CLIENT_TRANSPORT_THREAD_EXECUTOR_H_
#define FIRNKV_CLIENT_TRANSPORT_THREAD_EXECUTOR_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/transport/descriptor.h"
#include "client/transport/named_thread.h"
#include "client/transport/timer_queue.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"

namespace firnkv {

class ThreadExecutor : public Executor {
 public:
  struct Options {
    // At least 1. Two, so that one long copy does not hold up all the rest.
    int threads = 2;
    // Threads are called "<name>-0", ..., "<name>-timer".
    std::string name = "firnkv";
  };

  // `clock` outlives the executor. RESOURCE_EXHAUSTED where the machine gives
  // no threads or descriptors.
  static absl::StatusOr<std::unique_ptr<ThreadExecutor>> Make(
      const Options& options, const Clock* clock);
  ~ThreadExecutor() override;  // Stop().

  void Post(Task task) override ABSL_LOCKS_EXCLUDED(mutex_);
  TimerId PostAt(BootTime when, Task task) override ABSL_LOCKS_EXCLUDED(mutex_);
  bool Cancel(TimerId timer) override ABSL_LOCKS_EXCLUDED(mutex_);
  const Clock* clock() const override { return clock_; }

  // Lets running tasks end, destroys all others unrun, and joins the threads.
  // From its beginning on, posted tasks are destroyed at once. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  ThreadExecutor(const Clock* clock, Descriptor timer);

  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  void WatchTimer() ABSL_LOCKS_EXCLUDED(mutex_);
  // False: the executor stops.
  bool WaitForTask(Task* task) ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeTask(Task* task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WorkIsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArmForNext(BootTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArmTimer(BootTime next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const Descriptor timer_;

  Mutex mutex_;
  CondVar work_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mutex_);
  TimerQueue timers_ ABSL_GUARDED_BY(mutex_);
  // What timer_ is set to, Infinite() once that has gone off; timers due before
  // it need another setting.
  BootTime armed_for_ ABSL_GUARDED_BY(mutex_) = BootTime::Infinite();
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool timer_turn_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Touched by Make and Stop only.
  std::vector<std::unique_ptr<NamedThread>> threads_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_THREAD_EXECUTOR_H_
