#include "tools/replay/replayer.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "proto/base/status.h"

namespace firnkv {
namespace {

// Between two looks at whether the replay was stopped.
constexpr absl::Duration kLook = absl::Milliseconds(100);

}  // namespace

// One worker: its queue, its thread, its player.
class Replayer::Worker {
 public:
  Worker(const Options& options, PoolAccess* pool, const Trace* trace,
         const Clock* clock, Counter* played)
      : player_(options.player, pool, clock),
        trace_(*trace),
        clock_(*clock),
        most_queued_(std::max<std::size_t>(options.queue, 1)),
        played_(*played) {}

  ~Worker() {
    Close();
    Join();
  }

  absl::Status Prepare() { return player_.Prepare(); }
  void Start() {
    thread_ = std::thread([this] { Play(); });
  }

  struct Turn {
    RequestPlayer::Turn play;
    // When it was due; Infinite for "as soon as possible".
    BootTime due;
  };

  // False: there was no room within kLook.
  bool Push(const Turn& turn) {
    MutexLock lock(&mutex_);
    if (queue_.size() >= most_queued_) changed_.WaitFor(&mutex_, kLook);
    if (queue_.size() >= most_queued_) return false;
    queue_.push_back(turn);
    changed_.SignalAll();
    return true;
  }

  // No more turns come.
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    changed_.SignalAll();
  }

  // True once every turn that was pushed has been played, within kLook.
  bool WaitFree() {
    MutexLock lock(&mutex_);
    if (playing_ || !queue_.empty()) changed_.WaitFor(&mutex_, kLook);
    return !playing_ && queue_.empty();
  }

  // True once the thread is about to end, within kLook.
  bool WaitIdle() {
    MutexLock lock(&mutex_);
    if (!idle_) changed_.WaitFor(&mutex_, kLook);
    return idle_;
  }

  // After Close.
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  // After Join.
  const ReplayTally& tally() const { return player_.tally(); }

 private:
  std::optional<Turn> Pop() {
    MutexLock lock(&mutex_);
    playing_ = false;
    changed_.SignalAll();
    while (queue_.empty() && !closed_) changed_.Wait(&mutex_);
    if (queue_.empty()) {
      idle_ = true;
      changed_.SignalAll();
      return std::nullopt;
    }
    const Turn turn = queue_.front();
    queue_.pop_front();
    playing_ = true;
    changed_.SignalAll();
    return turn;
  }

  void Play() {
    while (const std::optional<Turn> turn = Pop()) {
      if (turn->due != BootTime::Infinite()) {
        player_.tally().late.Add(
            std::max(clock_.Now() - turn->due, absl::ZeroDuration()));
      }
      player_.Play(turn->play, trace_.requests[turn->play.number]);
      played_.Add();
    }
  }

  RequestPlayer player_;
  const Trace& trace_;
  const Clock& clock_;
  const std::size_t most_queued_;
  Counter& played_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Turn> queue_ ABSL_GUARDED_BY(mutex_);
  bool playing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool idle_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

Replayer::Replayer(Options options, const Trace* trace,
                   std::vector<PoolAccess*> workers, const Clock* clock)
    : options_(std::move(options)),
      trace_(*trace),
      clock_(*clock),
      router_(options_.routing, workers.size()) {
  for (PoolAccess* pool : workers) {
    workers_.push_back(
        std::make_unique<Worker>(options_, pool, trace, clock, &played_));
  }
}

Replayer::~Replayer() = default;

absl::StatusOr<Replayer::Result> Replayer::Run() {
  for (const auto& worker : workers_) RETURN_IF_ERROR(worker->Prepare());
  for (const auto& worker : workers_) worker->Start();
  const BootTime began = clock_.Now();
  HandOut(began);
  return Finish(began);
}

void Replayer::ShowProgress() const {
  if (options_.progress) options_.progress(played_.value());
}

void Replayer::HandOut(BootTime began) {
  for (std::size_t i = 0; i < trace_.requests.size(); ++i) {
    if (!WaitUntilDue(trace_.requests[i], began)) return;
    if (!Push(i, began)) return;
    ShowProgress();
  }
}

bool Replayer::Push(std::size_t request, BootTime began) {
  const TraceRequest& next = trace_.requests[request];
  Worker& worker = *workers_[router_.Assign(next)];
  Worker::Turn turn;
  turn.play.number = request;
  turn.play.wait_for = request == 0 ? WriteWait::kPublished : options_.wait_for;
  turn.due = options_.speed > 0 ? began + next.at / options_.speed
                                : BootTime::Infinite();
  while (!worker.Push(turn)) {
    if (stopped_.load(std::memory_order_relaxed)) return false;
    ShowProgress();
  }
  return request > 0 || WaitUntilPlayed(&worker);
}

bool Replayer::WaitUntilPlayed(Worker* worker) {
  while (!worker->WaitFree()) {
    if (stopped_.load(std::memory_order_relaxed)) return false;
    ShowProgress();
  }
  return true;
}

bool Replayer::WaitUntilDue(const TraceRequest& request, BootTime began) {
  while (!stopped_.load(std::memory_order_relaxed)) {
    if (options_.speed <= 0) return true;
    const absl::Duration left =
        began + request.at / options_.speed - clock_.Now();
    if (left <= absl::ZeroDuration()) return true;
    ShowProgress();
    options_.pause(std::min(left, kLook));
  }
  return false;
}

Replayer::Result Replayer::Finish(BootTime began) {
  Result result;
  for (const auto& worker : workers_) worker->Close();
  for (const auto& worker : workers_) {
    while (!worker->WaitIdle()) ShowProgress();
    worker->Join();
    result.tally.Add(worker->tally());
  }
  result.took = clock_.Now() - began;
  result.played = played_.value();
  ShowProgress();
  return result;
}

}  // namespace firnkv
