// Virtual time and one thread for a whole cluster: every task and timer of all
// simulated processes runs here, in an order that the seed decides.
//
// SimExecutor is the world: it has the true time, the queue and the event hash.
// SimProcess is what one process of that world gets as its Executor: with a
// clock of its own (skewed, drifting), and with a life: it can be paused
// (nothing of it runs while time passes) and killed (nothing of it ever runs
// again). A unit test that needs no processes uses the SimExecutor itself as
// its Executor.
//
// Time stands still while tasks run, and moves to the next timer once no task
// is ready. Same seed, same calls: same order of events, same hash.
//
// Threading. One thread only.
//
// Ownership. The world owns its processes, dead ones too, until it ends; tasks
// left over are destroyed unrun.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_EXECUTOR_H_
#define FIRNKV_TESTS_SUPPORT_SIM_EXECUTOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/random.h"

namespace firnkv {

class SimExecutor;

// What one process believes the time to be.
class SimClock : public Clock {
 public:
  explicit SimClock(const SimExecutor* world) : world_(world) {}

  BootTime Now() const override;
  absl::Time WallNow() const override;

  // From now on boot time runs faster (or slower) than true time by
  // `parts_per_million`; it never jumps.
  void SetDrift(std::int64_t parts_per_million);
  // Boot time of a host that started earlier. Only before the first Now().
  void SetOffset(absl::Duration offset);
  // Wall clocks may be set, and may be wrong.
  void SetWallOffset(absl::Duration offset) { wall_offset_ = offset; }

  // True nanoseconds at which this clock will show at least `when`.
  std::int64_t TrueNanos(BootTime when) const;

 private:
  const SimExecutor* const world_;
  // Local nanoseconds were `base_local_` when true ones were `base_true_`.
  std::int64_t base_local_ = 0;
  std::int64_t base_true_ = 0;
  std::int64_t drift_ = 0;
  absl::Duration wall_offset_;
};

class SimProcess : public Executor {
 public:
  void Post(Task task) override;
  TimerId PostAt(BootTime when, Task task) override;
  bool Cancel(TimerId timer) override;
  const Clock* clock() const override { return &clock_; }

  // In true time, whatever this process's clock says: for what the world does
  // to a process (a message arrives).
  TimerId PostAfter(absl::Duration delay, Task task);

  // What is due meanwhile runs after Resume. The world sees a process that
  // answers nothing.
  void Pause();
  // As Pause, once `tasks` more of its tasks have run: in the middle of
  // something.
  void PauseAfter(std::uint64_t tasks) { pause_after_ = tasks; }
  void Resume();
  // Nothing of it runs any more: queued tasks are destroyed, later ones too, at
  // once. Then everyone who watches learns of it (sockets close). Not from
  // inside one of its own tasks.
  void Kill();
  void WatchDeath(std::function<void()> watcher) {
    watchers_.push_back(std::move(watcher));
  }

  bool alive() const { return alive_; }
  bool paused() const { return paused_; }
  std::uint32_t number() const { return number_; }
  const std::string& name() const { return name_; }
  // Where it runs: what partitions cut (sim_links.h).
  const std::string& host() const { return host_; }
  SimClock* sim_clock() { return &clock_; }
  SimExecutor* world() { return world_; }
  // The process's own, seeded from the world's.
  Random* random() { return &random_; }

 private:
  friend class SimExecutor;
  SimProcess(SimExecutor* world, std::uint32_t number, std::string_view name,
             std::string_view host, std::uint64_t seed);

  SimExecutor* const world_;
  const std::uint32_t number_;
  const std::string name_;
  const std::string host_;
  SimClock clock_;
  SeededRandom random_;
  bool alive_ = true;
  bool paused_ = false;
  // 0: no pause is planned.
  std::uint64_t pause_after_ = 0;
  std::vector<std::function<void()>> watchers_;
};

class SimExecutor : public Executor {
 public:
  // Seed 0: ready tasks run in the order in which they were posted, which is
  // what a unit test wants to read. Any other: in an order that it decides.
  explicit SimExecutor(std::uint64_t seed = 0);
  ~SimExecutor() override;

  // As an Executor it is the process "root", which is never paused or killed.
  void Post(Task task) override;
  TimerId PostAt(BootTime when, Task task) override;
  bool Cancel(TimerId timer) override;
  const Clock* clock() const override { return root_->clock(); }
  BootTime Now() const { return clock()->Now(); }

  // Lives as long as the world.
  SimProcess* NewProcess(std::string_view name, std::string_view host = "host");
  SimProcess* root() { return root_; }

  // Runs one task; moves time to the next timer first where none is ready.
  // False: there is nothing left to run.
  bool Step();
  // Runs what is ready now, and what that makes ready; time stands still.
  void RunReady();
  // Runs everything that is due until then, and is there afterwards.
  void RunFor(absl::Duration time);
  void AdvanceTo(BootTime when);
  // Until no task and no timer is left. Only for code without periodic timers.
  void RunUntilIdle();
  // Steps until `condition`; false if it did not come true within `limit`.
  bool RunUntil(const std::function<bool()>& condition,
                absl::Duration limit = absl::Minutes(10));

  // Everything that decides anything in the world draws from here.
  SeededRandom* random() { return &random_; }
  // True with `per_mille` of a thousand.
  bool Chance(std::uint32_t per_mille);
  absl::Duration Between(absl::Duration low, absl::Duration high);

  // The event hash: what happened, in which order. Tasks mix themselves in; a
  // fake mixes what it did.
  void Mix(std::uint64_t label);
  void Mix(std::string_view label);
  std::uint64_t event_hash() const { return hash_; }
  std::uint64_t events() const { return events_; }
  std::uint64_t seed() const { return seed_; }

  // With tracing on, a line on standard error: time and `text`.
  void set_tracing(bool on) { tracing_ = on; }
  bool tracing() const { return tracing_; }
  void Note(std::string_view text) const;

  std::int64_t true_nanos() const { return now_; }

 private:
  friend class SimProcess;
  struct Ready {
    SimProcess* process = nullptr;
    std::uint64_t timer = 0;  // 0: `task` is here; else among timers_.
    Task task;
  };
  struct Timer {
    SimProcess* process = nullptr;
    Task task;
  };
  struct Due {
    std::int64_t when;
    std::uint64_t timer;
    bool operator>(const Due& other) const {
      return when != other.when ? when > other.when : timer > other.timer;
    }
  };

  TimerId AddTimer(SimProcess* process, std::int64_t when, Task task);
  bool CancelTimer(TimerId timer);
  void DropTasksOf(SimProcess* process);
  void Unpark(SimProcess* process);
  // Moves timers due by now to the ready ones.
  void TakeDue();
  // When the next timer is due; false if there is none.
  bool NextDue(std::int64_t* when);
  bool RunOneReady();

  const std::uint64_t seed_;
  SeededRandom random_;
  std::int64_t now_ = 1'000'000'000'000;
  std::uint64_t next_timer_ = 1;
  std::deque<Ready> ready_;
  // Of paused processes.
  std::vector<Ready> parked_;
  absl::flat_hash_map<std::uint64_t, Timer> timers_;
  std::priority_queue<Due, std::vector<Due>, std::greater<Due>> due_;
  std::vector<std::unique_ptr<SimProcess>> processes_;
  SimProcess* root_ = nullptr;
  SimProcess* running_ = nullptr;
  std::uint64_t hash_ = 0xcbf29ce484222325;
  std::uint64_t events_ = 0;
  // Tasks run without time moving: a loop that would never end is found.
  std::uint64_t at_this_instant_ = 0;
  bool tracing_ = false;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_EXECUTOR_H_
