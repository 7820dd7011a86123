// Where tasks and timers run. A seam.
//
// Everything in client, node and catalog that is not a call from outside runs
// as a task of an Executor. Production gives it threads (thread_executor.h);
// the simulator runs every task of a whole cluster on one thread, in an order
// that its seed decides. So a task never blocks, never sleeps, and never
// assumes that two tasks run one after the other unless one posted the other:
// state is protected by its class's mutex.
//
// Threading. All methods may be called from any thread, also from tasks. No
// executor lock is held while a task runs.
//
// Lifetime. Whoever posts a task that refers to itself must end it before it is
// destroyed: TaskScope below does that.

#ifndef FIRNKV_PROTO_BASE_EXECUTOR_H_
#define FIRNKV_PROTO_BASE_EXECUTOR_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace firnkv {

using Task = absl::AnyInvocable<void() &&>;

// Names a timer until it has run or was cancelled. Zero names none.
enum class TimerId : std::uint64_t { kNone = 0 };

class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` soon, never inside Post.
  virtual void Post(Task task) = 0;

  // Runs `task` at `when` or as soon after it as there is a thread; never
  // before it, and never inside PostAt.
  virtual TimerId PostAt(BootTime when, Task task) = 0;

  // True: the task was destroyed and will not run. False: it ran, is running,
  // or was cancelled before.
  virtual bool Cancel(TimerId timer) = 0;

  // The clock that timers are counted by; outlives the executor.
  virtual const Clock* clock() const = 0;
};

// Ties tasks to the life of their owner: a task wrapped by a scope does nothing
// once Close() has begun, and Close() returns only when none of them is
// running. A member of the owner, closed first in its destructor.
//
// A wrapped task still queued after Close() is destroyed whenever its executor
// drops it: what it captured must not need the owner to be destroyed.
class TaskScope {
 public:
  TaskScope();
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;
  ~TaskScope();  // Close().

  // A task that runs `task` unless the scope is closed by then; `task` is
  // destroyed unrun in that case.
  Task Wrap(Task task);

  // Waits for running wrapped tasks of other threads. Called from inside a
  // wrapped task it does not wait for that one. Idempotent.
  void Close();

 private:
  struct State;
  // Shared with wrapped tasks still queued in an executor.
  const std::shared_ptr<State> state_;
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_EXECUTOR_H_
