#include "client/transport/thread_executor.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

ThreadExecutor::ThreadExecutor(const Clock* clock, Descriptor timer)
    : clock_(clock), timer_(std::move(timer)) {}

absl::StatusOr<std::unique_ptr<ThreadExecutor>> ThreadExecutor::Make(
    const Options& options, const Clock* clock) {
  Descriptor timer(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC));
  if (!timer.valid()) return absl::ErrnoToStatus(errno, "timerfd_create");
  // The constructor is private. NOLINTNEXTLINE
  std::unique_ptr<ThreadExecutor> made(
      new ThreadExecutor(clock, std::move(timer)));
  ThreadExecutor* const self = made.get();
  const auto start = [self](std::string_view name, Task body) {
    self->threads_.push_back(std::make_unique<NamedThread>());
    return self->threads_.back()->Start(name, std::move(body));
  };
  for (int i = 0; i < std::max(options.threads, 1); ++i) {
    RETURN_IF_ERROR(
        start(StrCat(options.name, "-", i), [self] { self->Work(); }));
  }
  RETURN_IF_ERROR(
      start(StrCat(options.name, "-timer"), [self] { self->WatchTimer(); }));
  return made;
}

ThreadExecutor::~ThreadExecutor() { Stop(); }

void ThreadExecutor::Post(Task task) {
  MutexLock lock(&mutex_);
  // Refused: destroyed by the caller's frame, after the lock.
  if (stopping_) return;
  queue_.push_back(std::move(task));
  if (idle_ > 0) work_.Signal();
}

TimerId ThreadExecutor::PostAt(BootTime when, Task task) {
  MutexLock lock(&mutex_);
  if (stopping_) return TimerId::kNone;
  const TimerId id = timers_.Add(when, std::move(task));
  if (when < armed_for_) ArmTimer(when);
  return id;
}

bool ThreadExecutor::Cancel(TimerId timer) {
  // Declared before the lock: destroyed after it, since a task's destructor may
  // call back.
  std::optional<Task> task;
  MutexLock lock(&mutex_);
  task = timers_.Cancel(timer);
  return task.has_value();
}

// Under the lock although it is a system call: it does not block, and two
// settings in the wrong order would lose the earlier timer.
void ThreadExecutor::ArmTimer(BootTime next) {
  armed_for_ = next;
  // Relative, so that only the clock's rate must be that of the timerfd. Zero
  // would disarm it.
  const absl::Duration delay =
      std::max(next - clock_->Now(), absl::Nanoseconds(1));
  const itimerspec setting = {.it_interval = {},
                              .it_value = absl::ToTimespec(delay)};
  timerfd_settime(timer_.get(), 0, &setting, nullptr);
}

// Nothing is set for timers that are due: whoever takes the first of them goes
// on until none is left, and comes here each time.
void ThreadExecutor::ArmForNext(BootTime now) {
  const BootTime next = timers_.NextDue();
  if (next > now && next < armed_for_) ArmTimer(next);
}

void ThreadExecutor::WatchTimer() {
  for (;;) {
    std::uint64_t expirations = 0;
    // Blocks until the next timer is due, or until Stop sets it off.
    if (read(timer_.get(), &expirations, sizeof(expirations)) < 0 &&
        errno != EINTR) {
      return;
    }
    MutexLock lock(&mutex_);
    if (stopping_) return;
    armed_for_ = BootTime::Infinite();
    ArmForNext(clock_->Now());
    // Threads that are awake look for due timers before they sleep.
    if (idle_ > 0 && WorkIsReady()) work_.Signal();
  }
}

void ThreadExecutor::Work() {
  Task task;
  while (WaitForTask(&task)) {
    std::move(task)();
    // What it holds goes before the next wait, not after it.
    task = nullptr;
  }
}

bool ThreadExecutor::WaitForTask(Task* task) {
  MutexLock lock(&mutex_);
  for (;;) {
    if (stopping_) return false;
    if (TakeTask(task)) {
      // One signal woke this thread; it passes the word on while there is more.
      if (idle_ > 0 && WorkIsReady()) work_.Signal();
      return true;
    }
    ++idle_;
    work_.Wait(&mutex_);
    --idle_;
  }
}

bool ThreadExecutor::WorkIsReady() const {
  return !queue_.empty() ||
         (!timers_.empty() && timers_.NextDue() <= clock_->Now());
}

bool ThreadExecutor::TakeTask(Task* task) {
  timer_turn_ = !timer_turn_;
  if (!timers_.empty() && (timer_turn_ || queue_.empty())) {
    const BootTime now = clock_->Now();
    std::optional<Task> due = timers_.TakeDue(now);
    ArmForNext(now);
    if (due.has_value()) {
      *task = *std::move(due);
      return true;
    }
  }
  if (queue_.empty()) return false;
  *task = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void ThreadExecutor::Stop() {
  std::deque<Task> queued;
  std::vector<Task> timed;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    queued.swap(queue_);
    timed = timers_.TakeAll();
    ArmTimer(BootTime{});
    work_.SignalAll();
  }
  for (const std::unique_ptr<NamedThread>& thread : threads_) thread->Join();
  // `queued` and `timed` end here, in that order reversed, under no lock; what
  // their destructors post is refused.
}

}  // namespace firnkv
