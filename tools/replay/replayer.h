// Plays a trace with several workers: hands every request to one of them, at
// its recorded time or as fast as they can take it.
//
// A worker plays its requests one after the other. Each has a short queue of
// its own; where the next request's is full, everything waits for it, so that
// what is in flight stays bounded and the order near the trace's.
//
// The first request is played alone, until the whole cluster can read its
// blocks: so what all requests share, a system prompt, is computed once and not
// once a worker, as it would be in the order of the trace.
//
// Threading. Run is called once, by one thread, and starts one thread a worker;
// none is left when it returns. `stop` and `played` may be used by others
// meanwhile.

#ifndef FIRNKV_TOOLS_REPLAY_REPLAYER_H_
#define FIRNKV_TOOLS_REPLAY_REPLAYER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/counter.h"
#include "tools/replay/pause.h"
#include "tools/replay/pool_access.h"
#include "tools/replay/replay_tally.h"
#include "tools/replay/request_player.h"
#include "tools/replay/request_router.h"
#include "tools/replay/trace.h"

namespace firnkv {

class Replayer {
 public:
  struct Options {
    RequestPlayer::Options player;
    Routing routing = Routing::kInTurn;
    // 1: at the recorded times; 10: ten times as fast; 0: as fast as it goes.
    double speed = 1;
    // What writes wait for, but for the first request's.
    WriteWait wait_for = WriteWait::kLocal;
    // Requests that wait for one worker.
    std::size_t queue = 2;
    Pause pause = PauseFor;
    // Called by Run's thread now and then.
    std::function<void(std::size_t played)> progress;
  };
  struct Result {
    ReplayTally tally;
    absl::Duration took;
    std::size_t played = 0;
  };

  // `trace`, `workers` (at least one) and `clock` outlive it.
  Replayer(Options options, const Trace* trace,
           std::vector<PoolAccess*> workers, const Clock* clock);
  ~Replayer();

  // Until the trace has been played, or Stop. Fails where a worker cannot get
  // its memory; calls that fail during the replay are counted instead.
  absl::StatusOr<Result> Run();

  // Requests that are at work are played to their end, no others. From any
  // thread, also from a signal handler.
  void Stop() { stopped_.store(true, std::memory_order_relaxed); }

 private:
  class Worker;

  // Returns once `request` is due; false if the replay was stopped.
  bool WaitUntilDue(const TraceRequest& request, BootTime began);
  void HandOut(BootTime began);
  // To its worker. False if the replay was stopped.
  bool Push(std::size_t request, BootTime began);
  bool WaitUntilPlayed(Worker* worker);
  void ShowProgress() const;
  Result Finish(BootTime began);

  const Options options_;
  const Trace& trace_;
  const Clock& clock_;
  RequestRouter router_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Counter played_;
  // Relaxed: it orders nothing.
  std::atomic<bool> stopped_{false};
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_REPLAYER_H_
