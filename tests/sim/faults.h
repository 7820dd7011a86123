// What goes wrong in a schedule, decided by its seed: one fault after the
// other, each of which ends by itself some time later.
//
// Threading. One thread only. Everything it is given outlives it.

#ifndef FIRNKV_TESTS_SIM_FAULTS_H_
#define FIRNKV_TESTS_SIM_FAULTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "tests/sim/answer_check.h"
#include "tests/sim/operations.h"
#include "tests/sim/operator.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"

namespace firnkv {

class Faults {
 public:
  struct Parts {
    SimCluster* cluster = nullptr;
    Oracle* oracle = nullptr;
    Operations* operations = nullptr;
    Operator* admin = nullptr;
    AnswerCheck* answers = nullptr;
    // Pauses between faults are so many times as long.
    int pace = 1;
  };
  explicit Faults(const Parts& parts);

  // From now on, until Stop.
  void Start() {
    parts_.cluster->world()->links()->quality() = FairWeather();
    Next();
  }
  // No new faults; those that last end by HealEverything.
  void Stop();

  std::uint64_t injected() const { return injected_; }

 private:
  // Between faults: memory is read as late as it may be.
  static SimLinks::Quality FairWeather() {
    SimLinks::Quality quality;
    quality.slow_send_chance = 150;
    return quality;
  }

  void Next();
  void Inject();

  // --- Processes.
  void CrashNode();
  void PauseNode();
  void DrainNode();
  void StartLater(SimNode* node, absl::Duration least, absl::Duration most);
  void CrashWorker();
  void CrashWorkersOfAHost();
  void PauseWorker();
  void RestartWorker();
  void BreakSessions();
  // Somebody stops in the middle of a commit, an open, a transfer.
  void Ambush();

  // --- The catalog.
  void CrashCatalog();
  void PauseCatalog();
  // A write to its disk fails, some time from now, and it ends.
  void FailCatalogWrite();
  void AwaitFailedWrite(int life);
  void LoseCatalog();
  // An older state of it comes up in its place.
  void ReplaceCatalog();
  // A copy of its directory serves for a while, then the original again.
  void DoubleCatalog();
  void StartCatalog();

  // --- Between hosts.
  void CutLink();
  void BadWeather();
  void ResetConnections();

  // --- In them.
  void ClearNamespace();
  void FailAllocations();
  void LimitMemory();
  void ShrinkPool();
  void SetWallClock();
  void FlipBit();

  // Rule S3, soon after every worker of the host has died.
  void CheckSessionsAreOver(int node);
  void ResumeLater(SimNode* node);
  void ResumeLater(SimWorker* worker);

  // Runs after a while, unless the schedule has come to its end.
  void Later(absl::Duration least, absl::Duration most,
             std::function<void()> undo);
  void Note(std::string_view what);
  std::uint64_t Below(std::uint64_t bound) {
    return parts_.cluster->executor()->random()->Below(bound);
  }
  int SomeNodeNumber() {
    return 1 + static_cast<int>(Below(parts_.cluster->nodes()));
  }
  SimNode& SomeNode() { return parts_.cluster->Node(SomeNodeNumber()); }
  SimWorker& SomeWorker() {
    return *parts_.cluster->workers()[Below(parts_.cluster->workers().size())];
  }
  std::string SomeHost();

  // The next call of `method` stops whoever is to be stopped, some tasks later.
  struct Trap {
    // Empty: the next large send on a stream.
    std::string method;
    SimNode* node = nullptr;
    SimWorker* worker = nullptr;
    // Who is in the method: this process's number.
    std::uint32_t process = 0;
  };
  void Spring();
  void OnCall(const SimControl::Seen& seen);
  void OnSend(const SimProcess* sender, std::size_t bytes);

  const Parts parts_;
  bool stopped_ = false;
  std::uint64_t injected_ = 0;
  std::optional<Trap> trap_;
  // The catalog's directory of some time ago.
  SimStore::Families old_catalog_;
  bool has_old_catalog_ = false;
  // While a copy serves: the original.
  std::optional<SimStore::Families> original_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_FAULTS_H_
