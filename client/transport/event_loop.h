// One thread that waits for descriptors (epoll), timers and posted tasks, and
// runs what they are for. What the real networks of this folder stand on.
//
// It knows nothing of sockets; it does not own the descriptors.
//
// Threading. All methods from any thread. Watchers, tasks and timers run on the
// loop's thread, one at a time, under no lock; they must not block.
//
// Ownership. Whoever uses a loop ends before it.

#ifndef FIRNKV_CLIENT_TRANSPORT_EVENT_LOOP_H_
#define FIRNKV_CLIENT_TRANSPORT_EVENT_LOOP_H_

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/transport/descriptor.h"
#include "client/transport/named_thread.h"
#include "client/transport/timer_queue.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"

namespace firnkv {

// What the events of one descriptor go to.
class EventWatcher {
 public:
  virtual ~EventWatcher() = default;

  // `events` as of epoll_wait(2). May still be called once, or be running, when
  // Unwatch has returned on another thread: the watcher keeps its own state.
  virtual void OnEvents(std::uint32_t events) = 0;

  // The loop ends; there will be no more events. Runs at most once.
  virtual void OnLoopStopped() = 0;
};

// Names one Watch. Never reused, unlike descriptors, so that a late event of a
// closed one finds nobody.
enum class WatchId : std::uint64_t { kNone = 0 };

class EventLoop {
 public:
  // RESOURCE_EXHAUSTED where the machine gives no descriptors or threads.
  // `clock` outlives the loop.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Start(
      std::string_view thread_name, const Clock* clock);

  // Runs what was posted, tells every watcher that is left, destroys timers
  // unrun, joins. Not from the loop's own thread.
  ~EventLoop();

  // `events` are EPOLLIN, EPOLLOUT, EPOLLET, ... The watcher is shared with
  // the loop's thread, which may be about to call it when its owner lets go.
  absl::StatusOr<WatchId> Watch(int fd, std::uint32_t events,
                                std::shared_ptr<EventWatcher> watcher)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Change(WatchId watch, int fd, std::uint32_t events);
  // Before `fd` is closed: a child of fork(2) may keep the file open, and epoll
  // watches files.
  void Unwatch(WatchId watch, int fd) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `task` soon; once the loop has ended, inside Post.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `task` at `when` or soon after, or never, if the loop ends before.
  TimerId PostAt(BootTime when, Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel(TimerId timer) ABSL_LOCKS_EXCLUDED(mutex_);

  bool InLoop() const { return thread_.IsCurrent(); }
  const Clock* clock() const { return clock_; }

 private:
  enum class State : std::uint8_t { kRunning, kStopping, kStopped };

  EventLoop(const Clock* clock, Descriptor epoll, Descriptor wake);

  void Run();
  bool RunTasks() ABSL_LOCKS_EXCLUDED(mutex_);
  int PrepareToSleep() ABSL_LOCKS_EXCLUDED(mutex_);
  void Dispatch(absl::Span<const epoll_event> events)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void RunDown() ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake();

  const Clock* const clock_;
  const Descriptor epoll_;
  const Descriptor wake_;
  NamedThread thread_;

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kRunning;
  // The thread is in epoll_wait, or about to be, and has not been woken.
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mutex_);
  TimerQueue timers_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_watch_ ABSL_GUARDED_BY(mutex_) = 0;
  // Shared with the watchers' owners; see Watch.
  absl::flat_hash_map<std::uint64_t, std::shared_ptr<EventWatcher>> watchers_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_EVENT_LOOP_H_
