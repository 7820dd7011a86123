#include "tests/support/sim_executor.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::int64_t kMillion = 1'000'000;
// 2025-01-01, at true time zero.
constexpr std::int64_t kWallStartNanos = 1'735'689'600'000'000'000;
// Far more than a schedule has in one instant.
constexpr std::uint64_t kMostAtOneInstant = 2'000'000;

std::uint64_t Scramble(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccd;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

}  // namespace

BootTime SimClock::Now() const {
  const std::int64_t passed = world_->true_nanos() - base_true_;
  // No overflow: a drift of 10 % for 25 hours is 9e18.
  return BootTime::FromNanos(base_local_ + passed + passed / kMillion * drift_ +
                             passed % kMillion * drift_ / kMillion);
}

absl::Time SimClock::WallNow() const {
  return absl::FromUnixNanos(kWallStartNanos + world_->true_nanos()) +
         wall_offset_;
}

void SimClock::SetDrift(std::int64_t parts_per_million) {
  base_local_ = Now().nanos();
  base_true_ = world_->true_nanos();
  drift_ = parts_per_million;
}

void SimClock::SetOffset(absl::Duration offset) {
  base_local_ += absl::ToInt64Nanoseconds(offset);
}

std::int64_t SimClock::TrueNanos(BootTime when) const {
  if (when == BootTime::Infinite()) return INT64_MAX;
  const std::int64_t local = when.nanos() - Now().nanos();
  if (local <= 0) return world_->true_nanos();
  const double rate = 1.0 + static_cast<double>(drift_) / kMillion;
  // A little late is allowed, early is not.
  const std::int64_t wait =
      static_cast<std::int64_t>(static_cast<double>(local) / rate);
  std::int64_t at = 0;
  if (__builtin_add_overflow(world_->true_nanos(),
                             drift_ == 0 ? local : wait + 1000, &at)) {
    return INT64_MAX;
  }
  return at;
}

SimProcess::SimProcess(SimExecutor* world, std::uint32_t number,
                       std::string_view name, std::string_view host,
                       std::uint64_t seed)
    : world_(world),
      number_(number),
      name_(name),
      host_(host),
      clock_(world),
      random_(seed) {}

void SimProcess::Post(Task task) {
  if (!alive_) return;
  world_->ready_.push_back(SimExecutor::Ready{this, 0, std::move(task)});
}

TimerId SimProcess::PostAt(BootTime when, Task task) {
  return world_->AddTimer(this, clock_.TrueNanos(when), std::move(task));
}

TimerId SimProcess::PostAfter(absl::Duration delay, Task task) {
  return world_->AddTimer(
      this, world_->true_nanos() + absl::ToInt64Nanoseconds(delay),
      std::move(task));
}

bool SimProcess::Cancel(TimerId timer) { return world_->CancelTimer(timer); }

void SimProcess::Pause() {
  CHECK(this != world_->root());
  pause_after_ = 0;
  paused_ = true;
}

void SimProcess::Resume() {
  pause_after_ = 0;
  if (!paused_) return;
  paused_ = false;
  world_->Unpark(this);
}

void SimProcess::Kill() {
  CHECK(this != world_->root());
  CHECK(world_->running_ != this);
  if (!alive_) return;
  alive_ = false;
  paused_ = false;
  std::vector<std::function<void()>> watchers = std::move(watchers_);
  watchers_.clear();
  for (const std::function<void()>& watcher : watchers) watcher();
  world_->DropTasksOf(this);
}

SimExecutor::SimExecutor(std::uint64_t seed)
    : seed_(seed), random_(Scramble(seed + 0x9e3779b97f4a7c15)) {
  root_ = NewProcess("root");
}

SimExecutor::~SimExecutor() {
  // A task's captures may post or cancel while they are destroyed.
  for (const std::unique_ptr<SimProcess>& process : processes_) {
    process->alive_ = false;
    process->watchers_.clear();
  }
  for (const std::unique_ptr<SimProcess>& process : processes_) {
    DropTasksOf(process.get());
  }
}

void SimExecutor::Post(Task task) { root_->Post(std::move(task)); }
TimerId SimExecutor::PostAt(BootTime when, Task task) {
  return root_->PostAt(when, std::move(task));
}
bool SimExecutor::Cancel(TimerId timer) { return CancelTimer(timer); }

SimProcess* SimExecutor::NewProcess(std::string_view name,
                                    std::string_view host) {
  const std::uint32_t number = static_cast<std::uint32_t>(processes_.size());
  processes_.push_back(std::unique_ptr<SimProcess>(new SimProcess(
      this, number, name, host, Scramble(seed_ * 1'000'003 + number + 1))));
  return processes_.back().get();
}

TimerId SimExecutor::AddTimer(SimProcess* process, std::int64_t when,
                              Task task) {
  const std::uint64_t timer = next_timer_++;
  if (!process->alive_) return static_cast<TimerId>(timer);
  timers_[timer] = Timer{process, std::move(task)};
  due_.push(Due{when, timer});
  return static_cast<TimerId>(timer);
}

bool SimExecutor::CancelTimer(TimerId timer) {
  auto it = timers_.find(static_cast<std::uint64_t>(timer));
  if (it == timers_.end()) return false;
  // Destroyed outside the table: captures may post or cancel.
  const Timer dropped = std::move(it->second);
  timers_.erase(it);
  return true;
}

void SimExecutor::DropTasksOf(SimProcess* process) {
  std::vector<Task> dropped;
  auto take = [&](auto* queue) {
    for (Ready& ready : *queue) {
      if (ready.process == process) dropped.push_back(std::move(ready.task));
    }
    queue->erase(std::remove_if(queue->begin(), queue->end(),
                                [&](const Ready& ready) {
                                  return ready.process == process;
                                }),
                 queue->end());
  };
  take(&ready_);
  take(&parked_);
  std::vector<std::uint64_t> numbers;
  for (const auto& entry : timers_) {
    if (entry.second.process == process) numbers.push_back(entry.first);
  }
  // In the order of their making, whatever that of the table is.
  std::sort(numbers.begin(), numbers.end());
  for (std::uint64_t number : numbers) {
    dropped.push_back(std::move(timers_[number].task));
    timers_.erase(number);
  }
}

void SimExecutor::Unpark(SimProcess* process) {
  std::vector<Ready> still;
  for (Ready& ready : parked_) {
    if (ready.process == process) {
      ready_.push_back(std::move(ready));
    } else {
      still.push_back(std::move(ready));
    }
  }
  parked_ = std::move(still);
}

bool SimExecutor::NextDue(std::int64_t* when) {
  while (!due_.empty() && !timers_.contains(due_.top().timer)) due_.pop();
  if (due_.empty() || due_.top().when == INT64_MAX) return false;
  *when = due_.top().when;
  return true;
}

void SimExecutor::TakeDue() {
  while (!due_.empty() && due_.top().when <= now_) {
    const std::uint64_t timer = due_.top().timer;
    due_.pop();
    auto it = timers_.find(timer);
    if (it == timers_.end()) continue;
    ready_.push_back(Ready{it->second.process, timer, nullptr});
  }
}

bool SimExecutor::RunOneReady() {
  while (!ready_.empty()) {
    if (seed_ != 0) {
      std::swap(ready_.front(), ready_[random_.Below(ready_.size())]);
    }
    Ready ready = std::move(ready_.front());
    ready_.pop_front();
    if (ready.process->paused_) {
      parked_.push_back(std::move(ready));
      continue;
    }
    if (ready.timer != 0) {
      auto it = timers_.find(ready.timer);
      if (it == timers_.end()) continue;  // Cancelled meanwhile.
      ready.task = std::move(it->second.task);
      timers_.erase(it);
    }
    ++events_;
    CHECK(++at_this_instant_ < kMostAtOneInstant);
    Mix(static_cast<std::uint64_t>(now_));
    Mix(ready.process->number_ * 2 + (ready.timer != 0 ? 1 : 0));
    running_ = ready.process;
    std::move(ready.task)();
    running_ = nullptr;
    SimProcess* const process = ready.process;
    if (process->pause_after_ > 0 && --process->pause_after_ == 0) {
      process->Pause();
    }
    return true;
  }
  return false;
}

bool SimExecutor::Step() {
  for (;;) {
    TakeDue();
    if (RunOneReady()) return true;
    std::int64_t when = 0;
    if (!NextDue(&when)) return false;
    if (when > now_) {
      now_ = when;
      at_this_instant_ = 0;
    }
  }
}

void SimExecutor::RunReady() {
  do {
    TakeDue();
  } while (RunOneReady());
}

void SimExecutor::RunFor(absl::Duration time) {
  const std::int64_t end = now_ + absl::ToInt64Nanoseconds(time);
  for (;;) {
    RunReady();
    std::int64_t when = 0;
    if (!NextDue(&when) || when > end) break;
    now_ = std::max(now_, when);
    at_this_instant_ = 0;
  }
  now_ = end;
  at_this_instant_ = 0;
}

void SimExecutor::AdvanceTo(BootTime when) {
  RunFor(std::max(when - Now(), absl::ZeroDuration()));
}

void SimExecutor::RunUntilIdle() {
  while (Step()) {
  }
}

bool SimExecutor::RunUntil(const std::function<bool()>& condition,
                           absl::Duration limit) {
  const std::int64_t end = now_ + absl::ToInt64Nanoseconds(limit);
  while (!condition()) {
    std::int64_t when = 0;
    TakeDue();
    if (ready_.empty() && NextDue(&when) && when > end) {
      now_ = end;
      return false;
    }
    if (!Step()) return condition();
    if (now_ > end) return condition();
  }
  return true;
}

bool SimExecutor::Chance(std::uint32_t per_mille) {
  return per_mille != 0 && random_.Below(1000) < per_mille;
}

absl::Duration SimExecutor::Between(absl::Duration low, absl::Duration high) {
  const std::int64_t span = absl::ToInt64Nanoseconds(high - low);
  if (span <= 0) return low;
  return low + absl::Nanoseconds(random_.Below(span));
}

void SimExecutor::Mix(std::uint64_t label) {
  hash_ = Scramble(hash_ ^ label) + 0x9e3779b97f4a7c15;
}

void SimExecutor::Mix(std::string_view label) {
  std::uint64_t folded = label.size();
  for (char c : label) {
    folded = (folded ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  Mix(folded);
}

void SimExecutor::Note(std::string_view text) const {
  if (!tracing_) return;
  const std::string line = StrCat("[", now_ / 1000 - 1'000'000'000, " us] ",
                                  running_ == nullptr ? "-" : running_->name(),
                                  ": ", std::string(text), "\n");
  std::fputs(line.c_str(), stderr);
}

}  // namespace firnkv
