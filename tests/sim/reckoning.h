// What must be true of a cluster once it is quiet: index and nodes agree,
// nothing is left over, every key can be written again.
//
// Threading. One thread only: runs the world where it must ask.

#ifndef FIRNKV_TESTS_SIM_RECKONING_H_
#define FIRNKV_TESTS_SIM_RECKONING_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/metrics.h"
#include "tests/sim/key_space.h"
#include "tests/sim/operations.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"

namespace firnkv {

namespace v1 {
class LocateResponse;
}  // namespace v1

class Reckoning {
 public:
  // All outlive it.
  Reckoning(SimCluster* cluster, const KeySpace* keys, Oracle* oracle,
            Operations* operations)
      : cluster_(cluster),
        keys_(keys),
        oracle_(oracle),
        operations_(operations) {}

  void CheckNothingIsLeftOver();
  // Rule A9: no node has taken what it has seen of the catalog back.
  void CheckNobodyFellBack();
  void CheckIndexAndNodesAgree();
  // Rule A3: a node that has left is nowhere in the index.
  void CheckIndexNamesNothingOf(int node);
  // What asks for a leading run is told of all of it and of nothing beyond.
  void CheckLeadingRuns();
  void CheckEveryKeyCanBeWritten();
  // Last: the workers close.
  void CheckWorkersGiveEverythingBack();

  // --- Operations in a quiet cluster, run to their ends; no outcomes: none
  // came.
  std::vector<Outcome> Write(SimWorker* writer, std::size_t name_space,
                             const std::vector<PlannedBlock>& blocks);
  std::vector<Outcome> Read(SimWorker* reader, std::size_t name_space,
                            const std::vector<PlannedBlock>& blocks,
                            ReadWant want);
  // nullopt: there was no answer, which is said.
  std::optional<v1::LocateResponse> Locate(
      SimWorker* worker, std::size_t name_space,
      const std::vector<PlannedBlock>& blocks, ReadWant want);
  // How many of the chain's first blocks are somewhere now.
  std::size_t LeadingRun(NamespaceId name_space,
                         const std::vector<PlannedBlock>& chain);
  // This worker's Locate and read end exactly behind them.
  void CheckLeadingRun(SimWorker* worker, std::size_t name_space,
                       const std::vector<PlannedBlock>& chain);
  // One of the node's metrics; `otherwise` begins the violation.
  void ExpectZero(int node, std::string_view name, std::string_view otherwise);

 private:
  // A copy, as both sides name it.
  struct Place {
    BlockId block;
    std::size_t node = 0;
    Generation generation = Generation::kNone;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // Sorted.
  using Places = std::vector<Place>;
  Places CopiesOnNodes();
  // What the catalog answers to Locate for every key of the key space; false
  // if it does not answer.
  bool CopiesInIndex(Places* places);
  bool AddPlaces(int tenant, std::size_t name_space, Places* places);
  void WriteAndReadBack(SimWorker* writer, SimWorker* reader,
                        std::size_t name_space,
                        const std::vector<PlannedBlock>& blocks);
  bool AnotherLengthIsThere(SimWorker* reader, std::size_t name_space,
                            const PlannedBlock& block);
  std::string WhoHas(const BlockKey& key);
  void WriteAndReadAlone(SimWorker* writer, SimWorker* reader,
                         std::size_t name_space, const PlannedBlock& block);
  std::string Name(const Place& place) const;
  double ValueOf(int node, std::string_view name);

  SimCluster* const cluster_;
  const KeySpace* const keys_;
  Oracle* const oracle_;
  Operations* const operations_;
  // Of each node's present life, which it must not outlive.
  struct Described {
    int life = 0;
    MetricList list;
  };
  std::map<int, Described> described_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_RECKONING_H_
