// What the workers of a schedule do, decided by its seed: requests as engines
// make them (read the leading run, compute and write the rest), and everything
// else that the SDK offers, at random.
//
// Threading. One thread only. Everything it is given outlives it.

#ifndef FIRNKV_TESTS_SIM_WORKLOAD_H_
#define FIRNKV_TESTS_SIM_WORKLOAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/sim/key_space.h"
#include "tests/sim/operations.h"
#include "tests/support/sim_worker.h"

namespace firnkv {

class Workload {
 public:
  // `pace`: pauses between requests are so many times as long.
  Workload(SimWorld* world, const KeySpace* keys, Operations* operations,
           int pace)
      : world_(world), keys_(keys), operations_(operations), pace_(pace) {}

  // The worker goes on with requests, `streams` at a time, in this life and
  // all later ones, until Stop.
  void Drive(SimWorker* worker, int streams);
  // No new requests.
  void Stop() { stopped_ = true; }

 private:
  void Next(SimWorker* worker, std::uint64_t life);
  // `go_on` runs when the request is over.
  void Request(SimWorker* worker, std::function<void()> go_on);
  void EngineRequest(SimWorker* worker, std::function<void()> go_on);
  void RandomRead(SimWorker* worker, std::function<void()> go_on);
  void RandomViews(SimWorker* worker, std::function<void()> go_on);
  void RandomWrite(SimWorker* worker, std::function<void()> go_on);
  // Somebody on another host removes what is being read and writes something of
  // the same size at once, so that slots are reused under readers' hands.
  void RaceAgainst(SimWorker* reader, std::size_t name_space,
                   const std::vector<PlannedBlock>& blocks);
  void Reopen(SimWorker* worker, std::function<void()> go_on);

  std::size_t SomeNameSpace();
  std::vector<PlannedBlock> SomeBlocks(std::size_t name_space);
  std::vector<PlannedBlock> SomeSingles(
      const std::vector<PlannedBlock>& singles);
  std::vector<PlannedBlock> SomeOfAChain(
      const std::vector<std::vector<PlannedBlock>>& chains);
  absl::Duration SomeDeadline();
  std::uint64_t Below(std::uint64_t bound) {
    return world_->executor()->random()->Below(bound);
  }

  SimWorld* const world_;
  const KeySpace* const keys_;
  Operations* const operations_;
  const int pace_;
  bool stopped_ = false;
  std::vector<SimWorker*> workers_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_WORKLOAD_H_
