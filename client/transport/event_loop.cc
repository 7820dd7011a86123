#include "client/transport/event_loop.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Events taken from the kernel at a time: enough to spread the cost of the
// call, few enough that posted tasks do not wait long.
constexpr int kEventsATime = 64;

// The watch of the loop's own eventfd.
constexpr std::uint64_t kWakeWatch = 0;

}  // namespace

EventLoop::EventLoop(const Clock* clock, Descriptor epoll, Descriptor wake)
    : clock_(clock), epoll_(std::move(epoll)), wake_(std::move(wake)) {}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Start(
    std::string_view thread_name, const Clock* clock) {
  Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  // Edge-triggered: each write is one event, and nobody need read it.
  epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {}};
  event.data.u64 = kWakeWatch;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "epoll_ctl");
  }
  // The constructor is private. NOLINTNEXTLINE
  std::unique_ptr<EventLoop> loop(
      new EventLoop(clock, std::move(epoll), std::move(wake)));
  RETURN_IF_ERROR(
      loop->thread_.Start(thread_name, [self = loop.get()] { self->Run(); }));
  return loop;
}

EventLoop::~EventLoop() {
  {
    MutexLock lock(&mutex_);
    state_ = State::kStopping;
  }
  Wake();
  thread_.Join();
}

absl::StatusOr<WatchId> EventLoop::Watch(
    int fd, std::uint32_t events, std::shared_ptr<EventWatcher> watcher) {
  std::uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kRunning) {
      return absl::CancelledError("the network is closed");
    }
    id = ++last_watch_;
    watchers_.emplace(id, std::move(watcher));
  }
  epoll_event event = {.events = events, .data = {}};
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    MutexLock lock(&mutex_);
    watchers_.erase(id);
    return absl::ErrnoToStatus(error, "epoll_ctl");
  }
  return WatchId{id};
}

void EventLoop::Change(WatchId watch, int fd, std::uint32_t events) {
  epoll_event event = {.events = events, .data = {}};
  event.data.u64 = static_cast<std::uint64_t>(watch);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::Unwatch(WatchId watch, int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  // Let go of after the lock: its destructor may call back.
  std::shared_ptr<EventWatcher> watcher;
  MutexLock lock(&mutex_);
  const auto it = watchers_.find(static_cast<std::uint64_t>(watch));
  if (it == watchers_.end()) return;
  watcher = std::move(it->second);
  watchers_.erase(it);
}

void EventLoop::Post(Task task) {
  bool wake = false;
  bool stopped = false;
  {
    MutexLock lock(&mutex_);
    stopped = state_ == State::kStopped;
    if (!stopped) {
      posted_.push_back(std::move(task));
      wake = std::exchange(sleeping_, false);
    }
  }
  if (stopped) std::move(task)();
  if (wake) Wake();
}

TimerId EventLoop::PostAt(BootTime when, Task task) {
  TimerId id = TimerId::kNone;
  bool wake = false;
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kRunning) return TimerId::kNone;
    const bool first = when < timers_.NextDue();
    id = timers_.Add(when, std::move(task));
    wake = first && std::exchange(sleeping_, false);
  }
  if (wake) Wake();
  return id;
}

void EventLoop::Cancel(TimerId timer) {
  // Destroyed after the lock, since its destructor may call back.
  std::optional<Task> task;
  MutexLock lock(&mutex_);
  task = timers_.Cancel(timer);
}

void EventLoop::Wake() {
  const std::uint64_t one = 1;
  // Fails only when 2^64 - 2 wakings have gone unread; then it is awake.
  [[maybe_unused]] const ssize_t written =
      write(wake_.get(), &one, sizeof(one));
}

void EventLoop::Run() {
  std::array<epoll_event, kEventsATime> events;
  while (RunTasks()) {
    const int timeout = PrepareToSleep();
    const int count =
        epoll_wait(epoll_.get(), events.data(), kEventsATime, timeout);
    if (count > 0) {
      Dispatch(
          absl::MakeConstSpan(events.data(), static_cast<std::size_t>(count)));
    }
  }
  RunDown();
}

// One round: what was posted before it began, and the timers due by then, so
// that tasks which post again let events have their turn. False: the loop ends.
bool EventLoop::RunTasks() {
  std::vector<Task> tasks;
  {
    MutexLock lock(&mutex_);
    sleeping_ = false;
    if (state_ != State::kRunning) return false;
    tasks.swap(posted_);
    if (!timers_.empty()) {
      const BootTime now = clock_->Now();
      while (std::optional<Task> due = timers_.TakeDue(now)) {
        tasks.push_back(*std::move(due));
      }
    }
  }
  for (Task& task : tasks) {
    std::move(task)();
    task = nullptr;
  }
  return true;
}

// How long epoll_wait may wait, in its milliseconds, rounded up so that a timer
// never finds itself early and goes round once more.
int EventLoop::PrepareToSleep() {
  MutexLock lock(&mutex_);
  if (!posted_.empty() || state_ != State::kRunning) return 0;
  sleeping_ = true;
  if (timers_.empty()) return -1;
  const absl::Duration wait = timers_.NextDue() - clock_->Now();
  const std::int64_t millis =
      absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1)));
  constexpr std::int64_t kDayMillis = 24 * 3600 * 1000;
  return static_cast<int>(std::clamp<std::int64_t>(millis, 0, kDayMillis));
}

void EventLoop::Dispatch(absl::Span<const epoll_event> events) {
  // Shared with watchers_: one may be unwatched by the call of another.
  std::array<std::shared_ptr<EventWatcher>, kEventsATime> watchers;
  {
    MutexLock lock(&mutex_);
    sleeping_ = false;
    for (std::size_t i = 0; i < events.size(); ++i) {
      // Copied out: the kernel's struct is packed.
      const std::uint64_t watch = events[i].data.u64;
      const auto it = watchers_.find(watch);
      if (it != watchers_.end()) watchers[i] = it->second;
    }
  }
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (watchers[i] == nullptr) continue;
    watchers[i]->OnEvents(events[i].events);
    watchers[i] = nullptr;
  }
}

void EventLoop::RunDown() {
  std::vector<Task> timers;
  for (;;) {
    std::vector<Task> tasks;
    absl::flat_hash_map<std::uint64_t, std::shared_ptr<EventWatcher>> watchers;
    {
      MutexLock lock(&mutex_);
      tasks.swap(posted_);
      watchers.swap(watchers_);
      for (Task& timer : timers_.TakeAll()) timers.push_back(std::move(timer));
      if (tasks.empty() && watchers.empty()) {
        state_ = State::kStopped;
        break;
      }
    }
    for (Task& task : tasks) std::move(task)();
    for (auto& [id, watcher] : watchers) watcher->OnLoopStopped();
  }
}

}  // namespace firnkv
