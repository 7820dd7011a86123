// What goes wrong in a schedule, decided by its seed: one fault after the
// other, each of which ends by itself some time later.
//
// Threading. One thread only. Everything it is given outlives it.

#ifndef FIRNKV_TESTS_SIM_FAULTS_H_
#define FIRNKV_TESTS_SIM_FAULTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "tests/sim/operations.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"

namespace firnkv {

class Faults {
 public:
  Faults(SimCluster* cluster, Oracle* oracle, Operations* operations)
      : cluster_(cluster), oracle_(oracle), operations_(operations) {}

  // From now on, until Stop.
  void Start() {
    cluster_->world()->links()->quality() = FairWeather();
    Next();
  }
  // No new faults; those that last end by HealEverything.
  void Stop() { stopped_ = true; }

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
  void CrashNode();
  void PauseNode();
  void CrashWorker();
  void PauseWorker();
  void RestartWorker();
  void CrashCatalog();
  void PauseCatalog();
  void CutLink();
  void BadWeather();
  void ResetConnections();
  void ClearNamespace();
  void FailAllocations();
  void SetWallClock();
  void FlipBit();

  // Runs after a while, unless the schedule has come to its end.
  void Later(absl::Duration least, absl::Duration most,
             std::function<void()> undo);
  void Note(std::string_view what);
  std::uint64_t Below(std::uint64_t bound) {
    return cluster_->executor()->random()->Below(bound);
  }
  SimNode& SomeNode() { return cluster_->Node(1 + Below(cluster_->nodes())); }
  SimWorker& SomeWorker() {
    return *cluster_->workers()[Below(cluster_->workers().size())];
  }
  std::string SomeHost();

  SimCluster* const cluster_;
  Oracle* const oracle_;
  Operations* const operations_;
  bool stopped_ = false;
  std::uint64_t injected_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_FAULTS_H_
