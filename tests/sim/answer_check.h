// What servers answer, looked at as it leaves them: where a client's own
// checks, or a repair that comes later, would hide what was wrong.
//
//   - a node that knows a lower clear epoch than its caller serves nothing
//     (rule C2);
//   - commits of one reservation agree, however often and late they come (S5);
//   - a commit is corrupt only if its writer changed the bytes beneath it (S1);
//   - a member is not turned away while its lease runs (A3, A6), and what it
//     was told of its registration outlives a power cut (A1), unless the
//     catalog has lost what it knew.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SIM_ANSWER_CHECK_H_
#define FIRNKV_TESTS_SIM_ANSWER_CHECK_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "tests/sim/operations.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"

namespace firnkv {

class AnswerCheck {
 public:
  // All outlive it; it outlives all calls.
  AnswerCheck(SimCluster* cluster, Oracle* oracle,
              const Operations* operations);

  // The catalog's power was just cut: every registration that it has answered
  // must be on its disk.
  void CheckRegistrationsAreDurable();

 private:
  // A block of a reservation of a session at a run of a node.
  using Commit =
      std::tuple<std::uint32_t, std::string, std::uint64_t, std::uint32_t>;
  struct Committed {
    std::uint64_t requests = 0;
    // The last answer that is for good; kUnset: none yet.
    Outcome outcome = Outcome::kUnset;
    // True nanoseconds.
    std::int64_t answered = 0;
  };
  struct Granted {
    RegistrationId registration;
    absl::Duration lease;
    // True nanoseconds of the last answer that gave it a full term.
    std::int64_t renewed = 0;
    std::uint64_t catalog_losses = 0;
  };

  void OnCall(const SimControl::Seen& seen);
  void OnAnswer(const SimControl::Seen& seen, const SimControl::Answer& answer);
  void OnOpenRead(const SimControl::Seen& seen, const std::string& answer);
  void OnCommit(const SimControl::Seen& seen, const std::string& answer);
  void JudgeCommit(const SimControl::Seen& seen, const Commit& commit,
                   Outcome outcome);
  void OnRegistered(const SimControl::Seen& seen, const std::string& answer);
  void OnUnregister(const SimControl::Seen& seen);
  bool HasSession(const SimProcess* process, const std::string& session) const;
  void OnKeepAlive(const SimControl::Seen& seen,
                   const SimControl::Answer& answer);
  std::int64_t Now() const { return cluster_->executor()->true_nanos(); }

  SimCluster* const cluster_;
  Oracle* const oracle_;
  const Operations* const operations_;
  std::map<Commit, Committed> commits_;
  // By node.
  std::map<NodeId, Granted> granted_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_ANSWER_CHECK_H_
