// The soak: a cluster of real processes under load for a long time, while each
// of them is killed, stopped and ended at random moments and namespaces are
// cleared, all from a seed. At the end everything must be quiet, and empty once
// it is cleared.
//
// The same seed gives the same faults in the same order; the machine decides
// when.
//
// Threading. One thread. It needs root, as ProcessCluster does.

#ifndef FIRNKV_TESTS_PROCESS_PROCESS_SOAK_H_
#define FIRNKV_TESTS_PROCESS_PROCESS_SOAK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/random.h"
#include "tests/process/process_cluster.h"
#include "tests/process/soak_page.h"
#include "tests/process/worker.h"

namespace firnkv {

struct SoakTotals {
  // Blocks that were kHit and compared byte by byte; those that came over the
  // stream.
  std::uint64_t reads = 0;
  std::uint64_t remote_reads = 0;
  std::uint64_t view_reads = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stored = 0;
  std::uint64_t operations = 0;
  // Slots that were given back, by eviction or clear, to be used again.
  std::uint64_t reuses = 0;
  // Calls that went as frames over a session's socket, bytes that writers
  // without a local node sent, and blocks that nodes copied from each other
  // because they were read there again: all of it is the SDK's usual way.
  std::uint64_t frame_calls = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t promoted = 0;
  // Moments at which one process, or all of them, got SIGKILL; SIGSTOPs, ends
  // by SIGTERM and clears.
  std::uint64_t kills = 0;
  std::uint64_t other_faults = 0;
  // By how much an operation was too late, at worst.
  absl::Duration longest_over;

  // Blocks with a wrong byte, and copies that failed their checksum.
  std::uint64_t wrong = 0;
  // Leases, reservations, holds and blocks that nobody has.
  std::uint64_t leaked = 0;
  // Operations that did not end when they must, processes that ended by
  // themselves or did not come back, keys that cannot be written.
  std::uint64_t stuck = 0;
};

class ProcessSoak {
 public:
  struct Options {
    // It ends with the first of both that is reached.
    std::uint64_t reads = UINT64_MAX;
    absl::Duration time = absl::InfiniteDuration();
    std::uint64_t seed = 0;
    int nodes = 3;
    std::uint64_t dram_bytes = 512 * kMiB;
    // A fault comes after so many reads or so much time, whichever is first;
    // between nothing and twice that, in fact.
    std::uint64_t reads_a_fault = 40'000;
    absl::Duration time_a_fault = absl::Seconds(6);
    // A line now and then to standard error.
    bool progress = false;
  };

  explicit ProcessSoak(const Options& options);

  SoakTotals Run();

 private:
  // Where a worker sits: at a node, as a user; or at none, with a token: then
  // the chains of `node` are those that it writes.
  struct Seat {
    int node;
    std::uint32_t uid;
    SoakPageFile page;
    std::unique_ptr<Worker> worker;
    bool away = false;
    // In hex.
    std::string token = {};
  };

  void AddSeat(int node, std::uint32_t uid, bool away);

  bool StartWorker(Seat* seat);
  void RunFaults();
  // Looks at everything that runs; false once something is so wrong that going
  // on would show nothing.
  bool Look();
  bool LookForLateOperation(const Seat& seat);
  void NoteCounters(int node);
  void ReportProgress();

  void InjectFault();
  void KillNode(int node);
  void KillCatalog();
  void KillWorker(Seat* seat);
  void KillAll();
  void EndNode(int node);
  void StopNode(int node);
  void StopCatalog();
  void StopWorker(Seat* seat);
  void Clear(const char* tenant);
  // Up to `most`, which is often nothing.
  void PauseUpTo(absl::Duration most);
  void StartDaemon(Daemon* daemon);
  int AnyNode() { return 1 + static_cast<int>(random_.Below(options_.nodes)); }
  Seat* AnySeat() { return &seats_[random_.Below(seats_.size())]; }

  void EndWorkers();
  void LookForLeaks();
  void AddUp();
  std::uint64_t ReadsSoFar() const;
  // Says what is wrong, and counts it.
  void Stuck(const std::string& what);

  const Options options_;
  SystemClock clock_;
  SeededRandom random_;
  ProcessCluster cluster_;
  std::vector<Seat> seats_;
  // By node and name: what its counters said when they were last read.
  std::map<std::pair<int, std::string>, double> counters_;
  // What this process has seen, and that with what stands in the pages.
  SoakTotals seen_;
  SoakTotals totals_;
  BootTime began_;
  // When something was last read, and how much had been.
  BootTime progress_at_;
  std::uint64_t progress_reads_ = 0;
  BootTime reported_at_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_PROCESS_SOAK_H_
