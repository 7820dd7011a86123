// One operation of one worker, begun, followed to both its ends, and judged:
// every hit's bytes, every outcome's right to be there, deadlines, buffers that
// are touched after they were given back.
//
// Threading. One thread only.
//
// Ownership. An operation's buffers live until its worker's life is over and
// its ends have come: callbacks share the operation.

#ifndef FIRNKV_TESTS_SIM_OPERATIONS_H_
#define FIRNKV_TESTS_SIM_OPERATIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/read.h"
#include "client/view.h"
#include "client/write.h"
#include "proto/base/outcome.h"
#include "tests/sim/key_space.h"
#include "tests/sim/oracle.h"
#include "tests/support/sim_worker.h"

namespace firnkv {

// Of all operations together.
struct OperationCounts {
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;
  // Ended by the death of their worker.
  std::uint64_t died = 0;
  std::array<std::uint64_t, kLastOutcome + 1> reads{};
  std::array<std::uint64_t, kLastOutcome + 1> writes{};
  std::uint64_t bytes_mapped = 0;
  std::uint64_t bytes_remote = 0;
  // Commits of bytes that changed beneath them, and were refused.
  std::uint64_t scribbles_caught = 0;
  // Verdicts on views that were opened as hits.
  std::array<std::uint64_t, kLastOutcome + 1> views{};
  // Views whose bytes changed while they were held; none of them is a kHit.
  std::uint64_t views_changed = 0;
};

struct SimOperation;

class Operations {
 public:
  Operations(SimWorld* world, Oracle* oracle);

  // What became of each block, once both ends have come. Never runs if the
  // worker dies before.
  using Done = std::function<void(const std::vector<Outcome>&)>;

  struct ReadPlan {
    std::size_t name_space = 0;
    std::vector<PlannedBlock> blocks;
    absl::Duration deadline;
    ReadWant want = ReadWant::kLeadingRun;
    // Ranges of the blocks instead of whole ones.
    bool ranges = false;
    bool quiet = false;
  };
  void Read(SimWorker* worker, ReadPlan plan, Done done);

  struct WritePlan {
    std::size_t name_space = 0;
    std::vector<PlannedBlock> blocks;
    absl::Duration deadline;
    WriteWait wait_for = WriteWait::kLocal;
    // From AllocateShared.
    bool shared = false;
    // The writer's bytes change while its commit is under way (rules P1, S1):
    // nothing of that may ever be stored. Of one block, shared.
    bool scribble = false;
  };
  void Write(SimWorker* worker, WritePlan plan, Done done);

  struct ViewPlan {
    std::size_t name_space = 0;
    std::vector<PlannedBlock> blocks;
    absl::Duration deadline;
    ReadWant want = ReadWant::kLeadingRun;
    absl::Duration max_age;
    // Looked at so many times, over this long, then closed.
    int looks = 1;
    absl::Duration held;
  };
  void View(SimWorker* worker, ViewPlan plan, Done done);

  void Exists(SimWorker* worker, std::size_t name_space,
              std::vector<PlannedBlock> blocks, absl::Duration deadline,
              Done done);
  void Remove(SimWorker* worker, std::size_t name_space,
              std::vector<PlannedBlock> blocks, absl::Duration deadline,
              Done done);

  // The namespace was opened again by the worker, whose handle says which
  // clears it has seen.
  void NoteSeen(const SimWorker& worker, std::size_t name_space);

  // Somebody turned bits over in memory: kCorrupt is a fair answer from now on.
  void ExpectCorruption() { corruption_ = true; }
  bool corruption_expected() const { return corruption_; }
  // Another catalog answers, or one that has outdated all tokens (rule A9):
  // kDenied is a fair answer while `expected`.
  void ExpectDenials(bool expected) { denials_ = expected; }

  // The bytes of this commit changed beneath it.
  bool WasScribbled(std::uint32_t process, std::uint64_t reservation) const {
    return scribbled_.contains({process, reservation});
  }

  // Operations of living workers that have not ended.
  std::vector<std::string> NotEnded();
  const OperationCounts& counts() const { return counts_; }

 private:
  // Callbacks and this list share an operation until both ends have come.
  using Shared = std::shared_ptr<SimOperation>;

  Shared Begin(SimWorker* worker, std::string_view kind, std::size_t name_space,
               const std::vector<PlannedBlock>& blocks, absl::Duration deadline,
               Done done);
  void PlanBuffers(const Shared& op, const ReadPlan& plan);
  void OnReadOutcome(const Shared& op, const ReadReport& report);
  void OnReadFree(const Shared& op);
  void OnWriteOutcome(const Shared& op, const WriteReport& report);
  void OnWriteFree(const Shared& op);
  void OnCall(const SimControl::Seen& seen);
  void OnViews(const Shared& op, ViewBatch views);
  void LookAtViews(const Shared& op);
  void CloseViews(const Shared& op);
  void JudgeStatus(const Shared& op, const absl::Status& status);
  void JudgeRead(const Shared& op);
  // The outcome came, in time and once; false: the life is over, ignore it.
  bool OnOutcome(const Shared& op);
  bool OnFree(const Shared& op);
  void End(const Shared& op);
  // Nobody may touch a buffer that was given back.
  void WatchBuffers(const Shared& op);

  SimWorld* const world_;
  Oracle* const oracle_;
  std::vector<Shared> live_;
  OperationCounts counts_;
  bool IsFair(Outcome outcome) const {
    return (corruption_ && outcome == Outcome::kCorrupt) ||
           (denials_ && outcome == Outcome::kDenied);
  }

  bool corruption_ = false;
  bool denials_ = false;
  std::uint64_t next_ = 1;
  // Writes whose bytes shall change once their commit is under way, and the
  // commits for which they did, by process and reservation.
  std::vector<Shared> scribblers_;
  std::set<std::pair<std::uint32_t, std::uint64_t>> scribbled_;
  struct Seen {
    std::uint64_t life = 0;
    std::size_t clears = 0;
  };
  Seen* SeenBy(const SimWorker& worker, std::size_t name_space);
  // By worker and namespace.
  std::map<std::pair<const SimWorker*, std::size_t>, Seen> seen_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_OPERATIONS_H_
