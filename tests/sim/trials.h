// Scenes that chance plays too rarely, one in each schedule, on the quiet
// cluster that it leaves: what a rule forbids is about to happen, and must not.
// Nothing else goes on, so outcomes are known exactly.
//
// Threading. One thread only: runs the world.

#ifndef FIRNKV_TESTS_SIM_TRIALS_H_
#define FIRNKV_TESTS_SIM_TRIALS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/answer_check.h"
#include "tests/sim/key_space.h"
#include "tests/sim/operations.h"
#include "tests/sim/oracle.h"
#include "tests/sim/reckoning.h"
#include "tests/support/cluster.h"

namespace firnkv {

class Trials {
 public:
  struct Parts {
    SimCluster* cluster = nullptr;
    const KeySpace* keys = nullptr;
    Oracle* oracle = nullptr;
    Operations* operations = nullptr;
    Reckoning* reckoning = nullptr;
    AnswerCheck* answers = nullptr;
  };
  // All outlive it; it outlives all calls.
  explicit Trials(const Parts& parts);

  // The one that the seed says.
  void Run();

  // Of the catalog in the schedule of this seed; zero: its default. Some trials
  // wait until it is over.
  static absl::Duration GraceOf(std::uint64_t seed);

 private:
  // --- Of blocks (trials.cc).
  // Rule P14: a copy in another place or of another length gives way, at
  // Reserve and at Commit.
  void AnotherPlaceReplaces();
  void ReplaceOne(SimWorker* writer, std::size_t name_space,
                  const PlannedBlock& one, const PlannedBlock& other);
  void RaceOne(SimWorker* writer, std::size_t name_space,
               const PlannedBlock& one, const PlannedBlock& other);
  void ExpectResident(SimWorker* worker, std::size_t name_space,
                      const PlannedBlock& block);
  // Rule C2: from the clear's answer on nothing of before is found, served to
  // who knows of it, or stored.
  void AClearIsAtOnce();
  void ClearUnderAWrite(SimWorker* writer, SimWorker* other);
  bool Clear(int tenant, const NamespaceHandle& handle);
  // Of the chained namespace, by who has just heard of its clear.
  bool ReadAfterAClear(SimWorker* reader,
                       const std::vector<PlannedBlock>& blocks);
  // Rule C4: who looks under a lease is waited for.
  void AStrictClearUnderAView();
  // Rule C4: a node that is no member any more does not serve what was cleared
  // strictly behind its back (catalog_trials.cc).
  void AStrictClearBehindACut();
  // Until nobody is pending: members hear of it with their heartbeats.
  bool AwaitClear(int tenant, const NamespaceHandle& handle);
  // The part of a chain that is elsewhere is read to its last block.
  void AChainElsewhere();
  // Rules P2, P6, P7, A7: what is leased stays where it is for its time,
  // whatever is removed, written or taken away meanwhile.
  void ALeaseIsKept();
  // A view of blocks of the strict namespace, open for 4.5 s, within which it
  // looks so often; its verdicts go to `verdicts`.
  void Look(SimWorker* worker, const std::vector<PlannedBlock>& blocks,
            int looks, std::vector<Outcome>* verdicts);

  // --- Of the catalog and of members (catalog_trials.cc).
  // Rule A6.
  void ASecondRun();
  void ExpectNoService(int node);
  std::string RegisterMessage(int node, NodeEpoch epoch,
                              NodeEpoch predecessor) const;
  absl::Status RegisterAs(int node, NodeEpoch epoch, NodeEpoch predecessor);
  // Rule A9.
  void ADoubledCatalog();
  // Rules A1, A5.
  void APowerCut();
  // Rule A3.
  void ANodeComesBackAsItsGraceEnds();
  // The catalog hears the node and the end of its grace at once.
  void KnockAtADoorThatStandsStill(int node);
  absl::Status KeepAliveAs(int node, const std::string& registration);
  // Rule A3: what it had is forgotten at once, and what it moved is there.
  // Rule P13: unless it was cleared on its way.
  void ANodeLeaves();
  bool ClearBehindTheBackOf(int node, const std::vector<PlannedBlock>& blocks);
  void RestartCatalog(const SimStore::Families* state);
  void AwaitMembers();

  // Writes and expects each outcome to be kStored, or kAlreadyThere.
  bool Store(SimWorker* writer, std::size_t name_space,
             const std::vector<PlannedBlock>& blocks);
  bool Await(std::string_view what, const std::function<bool()>& condition);
  void Violation(std::string_view what, std::string_view how);
  void OnCall(const SimControl::Seen& seen);
  int Someone(std::uint64_t among) const {
    return static_cast<int>(parts_.cluster->executor()->seed() / 64 % among);
  }

  const Parts parts_;
  std::string scene_;
  // Stops as soon as it has asked for room, until it is resumed.
  SimWorker* to_pause_ = nullptr;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_TRIALS_H_
