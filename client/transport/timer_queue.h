// Tasks ordered by when they are due. Pure bookkeeping: no thread, no clock;
// its owner (an executor, a loop) has both.
//
// Threading. Not thread-safe: the owner's mutex protects it. It never destroys
// a task itself while it is being called, since a task's destructor may call
// back into the owner: tasks are handed out instead.

#ifndef FIRNKV_CLIENT_TRANSPORT_TIMER_QUEUE_H_
#define FIRNKV_CLIENT_TRANSPORT_TIMER_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"

namespace firnkv {

class TimerQueue {
 public:
  // Timers due at one instant are due in the order in which they were added.
  TimerId Add(BootTime when, Task task) {
    const TimerId id{++last_id_};
    tasks_.emplace(std::pair(when, last_id_), std::move(task));
    due_.emplace(id, when);
    return id;
  }

  // The task of `id`, forgotten here; nullopt if it was taken before.
  std::optional<Task> Cancel(TimerId id) {
    const auto due = due_.find(id);
    if (due == due_.end()) return std::nullopt;
    const auto it =
        tasks_.find(std::pair(due->second, static_cast<std::uint64_t>(id)));
    due_.erase(due);
    return Take(it);
  }

  // The first task that is due at `now`; nullopt if none is.
  std::optional<Task> TakeDue(BootTime now) {
    if (tasks_.empty() || tasks_.begin()->first.first > now) {
      return std::nullopt;
    }
    due_.erase(TimerId{tasks_.begin()->first.second});
    return Take(tasks_.begin());
  }

  // When the next one is due; Infinite() if there is none.
  BootTime NextDue() const {
    return tasks_.empty() ? BootTime::Infinite() : tasks_.begin()->first.first;
  }

  bool empty() const { return tasks_.empty(); }

  // Everything, unrun, for the owner to destroy outside its lock.
  std::vector<Task> TakeAll() {
    std::vector<Task> all;
    all.reserve(tasks_.size());
    for (auto& [key, task] : tasks_) all.push_back(std::move(task));
    tasks_.clear();
    due_.clear();
    return all;
  }

 private:
  using Tasks = std::map<std::pair<BootTime, std::uint64_t>, Task>;

  Task Take(Tasks::iterator it) {
    Task task = std::move(it->second);
    tasks_.erase(it);
    return task;
  }

  std::uint64_t last_id_ = 0;
  Tasks tasks_;
  absl::flat_hash_map<TimerId, BootTime> due_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_TIMER_QUEUE_H_
