// Copies of other nodes' blocks into this node's pool: for a node that drains
// (FetchCopies), and for what this node's sessions read elsewhere (promoter.h).
//
// Runs of blocks (copy_run.h) wait here for their turn: those of a drain before
// those of a promotion, in the order in which they came. Bounds: bytes in
// flight from one peer and in all, blocks and runs that wait or are under way;
// one more is kCongested. A run is over by its deadline, whatever it waits for.
//
// A peer that could not be reached, or said nothing by a deadline, is left
// alone for a while, longer each time: its runs are kUnavailable at once.
//
// Reads as a node: it may see every tenant's blocks, so an order says for whom
// it asks, and the namespace must be theirs.
//
// Does not know: what is worth copying.
//
// Threading. Thread-safe. One mutex, never held over the pool, the transport or
// a callback. `done` runs exactly once, under no lock, maybe inside Start.
//
// Ownership. Owned by Node; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_COPY_FETCHER_H_
#define FIRNKV_SERVER_NODE_COPY_FETCHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "client/transport/seams.h"
#include "client/transport/stream_transport.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"
#include "server/node/copy_run.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_credentials.h"
#include "server/node/retry_delay.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class CopyFetcher {
 public:
  struct Options {
    // Reserved and not yet here. A step is at least one block: the least bound
    // is a block.
    std::uint64_t max_bytes = 64 * kMiB;
    std::uint64_t max_bytes_a_peer = 32 * kMiB;
    // Waiting or under way, 160 B a block: 10 MiB.
    std::size_t max_runs = 1024;
    std::size_t max_blocks = 64 * 1024;
    absl::Duration connect_timeout = absl::Seconds(1);
    // How long a peer that failed is left alone.
    absl::Duration first_pause = absl::Milliseconds(500);
    absl::Duration longest_pause = absl::Seconds(30);
    // Said with kCongested.
    absl::Duration retry_after = absl::Milliseconds(100);
    CopyRun::Options run;
  };
  struct Parts {
    const Seams* seams = nullptr;
    NodeCredentials* credentials = nullptr;
    NamespaceCache* namespaces = nullptr;
    DramPool* pool = nullptr;
  };
  struct Counters {
    // Of blocks asked for, by outcome.
    std::array<Counter, kLastOutcome + 1> blocks;
    // Of those that are kStored.
    Counter bytes;
    // Runs that were kUnavailable because their peer had failed.
    Counter paused;
  };

  CopyFetcher(const Options& options, const Parts& parts);
  CopyFetcher(const CopyFetcher&) = delete;
  CopyFetcher& operator=(const CopyFetcher&) = delete;
  ~CopyFetcher();  // Close().

  // Keys are neither zero nor named twice, lengths not zero.
  void Start(CopyOrder order, CopyDone done) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs from now on are kUnavailable; what is under way goes on. For a drain.
  void StopTaking() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends everything with kUnavailable; every `done` has run on return, and
  // nothing lands any more. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // Bytes in flight.
  std::uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs that wait or are under way.
  std::size_t runs() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Duration retry_after() const { return options_.retry_after; }
  const Counters& counters() const { return counters_; }

 private:
  // One run of a peer's: its next one is another peer.
  using PeerId = std::pair<NodeId, NodeEpoch>;
  struct Peer {
    explicit Peer(RetryDelay delay) : pause(delay) {}
    std::uint64_t bytes = 0;
    RetryDelay pause;
    BootTime paused_until;
  };
  struct Entry {
    // Shared: see CopyRun.
    std::shared_ptr<CopyRun> run;
    TimerId timer = TimerId::kNone;
    bool over = false;
    // Its step is under way.
    bool stepping = false;
    // Of the next step, or the one under way.
    std::uint64_t step_bytes = 0;
  };

  // kStored: it may come in.
  Outcome Admit(const CopyOrder& order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Peer& PeerOf(const CopyOrder& order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsPaused(const CopyOrder& order) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnNamespace(std::uint64_t serial, const NamespaceCache::Answer& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Plans the run's next step and lets it wait for its turn.
  void Queue(CopyRun* run) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts what the budgets allow.
  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  // The next run that may begin a step; null: none. *paused: its peer has
  // failed since it came, and it does not begin.
  std::shared_ptr<CopyRun> TakeNext(bool* paused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PumpLater();
  void OnOver(CopyRun* run, const std::vector<Outcome>& outcomes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnStepEnd(CopyRun* run, CopyRun::StepEnd end)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // If nothing of it is under way any more. The run is returned: the last
  // reference to it must not go under the lock.
  std::shared_ptr<CopyRun> ForgetIfDone(std::uint64_t serial)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetPeers(BootTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StreamCredentials Credentials() ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(const CopyOrder& order, const std::vector<Outcome>& outcomes);

  const Options options_;
  const Parts parts_;
  Counters counters_;

  mutable Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  // By serial; ordered, so that a seeded run is the same each time.
  std::map<std::uint64_t, Entry> runs_ ABSL_GUARDED_BY(mutex_);
  std::size_t blocks_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Serials of runs that wait for their turn: of drains, and the others.
  std::deque<std::uint64_t> first_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::uint64_t> second_ ABSL_GUARDED_BY(mutex_);
  std::map<PeerId, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  // Kept for half its life: another token means another connection.
  StreamCredentials credentials_ ABSL_GUARDED_BY(mutex_);
  BootTime renew_at_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
  StreamTransport transport_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_COPY_FETCHER_H_
