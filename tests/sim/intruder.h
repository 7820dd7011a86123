// Calls at nodes that no well-behaved client makes, made of those that pass by,
// now and then:
//
//   - a Commit or Abort comes once more, at once or long after the operation is
//     over (rule S5; answer_check.h judges the answers);
//   - what one tenant asks is asked by another: nothing of it may be told or
//     touched (rule C1);
//   - a copy that was just read is reported as corrupt: the node looks for
//     itself, and it stays (rule P12).
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SIM_INTRUDER_H_
#define FIRNKV_TESTS_SIM_INTRUDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "client/transport/control_channel.h"
#include "tests/sim/operations.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"

namespace firnkv {

// What may be answered to somebody who has no right to ask.
bool TellsNothing(Outcome outcome);
// When something comes once more: at once, soon, or long after it is over.
absl::Duration EchoDelay(SeededRandom* random);

class Intruder {
 public:
  // All outlive it; it outlives all calls.
  Intruder(SimCluster* cluster, Oracle* oracle, const Operations* operations);

  void Start() { stopped_ = false; }
  // Nothing new; what was begun may come up to a minute later.
  void Stop() { stopped_ = true; }

  std::uint64_t calls() const { return calls_; }

 private:
  // What a worker speaks with, in one of its lives.
  struct Line {
    std::uint64_t life = 0;
    std::string session;
    std::unique_ptr<ControlChannel> channel;
  };

  void OnCall(const SimControl::Seen& seen);
  void OnAnswer(const SimControl::Seen& seen, const SimControl::Answer& answer);
  void Echo(SimWorker* worker, const SimControl::Seen& seen);
  void AskAsAnother(SimWorker* worker, const SimControl::Seen& seen);
  void Report(SimWorker* worker, const SimControl::Seen& seen,
              const std::string& answer);
  // `done` gets an answer that is OK.
  void Send(SimWorker* worker, std::string_view method, std::string request,
            absl::Duration delay, std::function<void(const std::string&)> done);

  // Null: no worker's.
  SimWorker* WorkerOf(const SimProcess* process) const;
  Line& LineOf(const SimWorker& worker);
  bool Now(std::uint32_t per_mille) {
    return !stopped_ && cluster_->executor()->Chance(per_mille);
  }

  SimCluster* const cluster_;
  Oracle* const oracle_;
  const Operations* const operations_;
  bool stopped_ = true;
  std::uint64_t calls_ = 0;
  std::map<const SimWorker*, Line> lines_;
  // Calls of one tenant under another's session, on their way.
  std::set<std::string> foreign_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_INTRUDER_H_
