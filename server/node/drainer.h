// How far this node's end is, and the part of it that moves blocks: the hottest
// chains go to other nodes, within a number of bytes and until a deadline.
//
//     serving --StartMoving--> moving --all tried, time over, End--> ending
//        '------------------------End------------------------------>'
//
// The catalog says which nodes there are, server/policy/drain_order.h what goes
// where, and each peer fetches for itself what it is told of (FetchCopies),
// over the stream, as any reader: so nothing of this waits for a peer but its
// own call, and readers are served all the while. Rule P13 is the peer's to
// keep: each copy is named with its clear epoch.
//
// A peer is asked for one batch at a time, parents before their children. One
// that is slow, full or dead costs the share that it was to get, not the time
// of the others; what it does not take in a few tries stays here, and is lost
// with this node. That is a loss of hits, never of more.
//
// Bounds. Batches in flight: one a peer, of at most batch_blocks and
// batch_bytes, to at most max_peers at a time. Memory: 16 bytes for each block
// that is to move, 60 for each resident one while they are put in order.
// Callers that wait for a report: max_reports; one more is answered at once.
//
// Does not know: how a node ends (node.h), who may ask (node_service.h).
//
// Threading. Thread-safe. One mutex, never held over a call, the pool or a
// callback.
//
// Ownership. Owned by Node; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_DRAINER_H_
#define FIRNKV_SERVER_NODE_DRAINER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/control_channel.h"
#include "proto/base/bytes.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "proto/base/limits.h"
#include "proto/base/mutex.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"
#include "server/base/log.h"
#include "server/node/node_catalog_client.h"
#include "server/node/node_credentials.h"
#include "server/node/node_peer_client.h"
#include "server/policy/drain_order.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

// What an administrator asks for.
struct DrainPlan {
  // Until the node's end; zero: the node's own.
  absl::Duration deadline;
  // Zero: nothing moves.
  std::uint64_t move_bytes = 0;
};

enum class DrainState : std::uint8_t { kServing, kMoving, kEnding };
// "serving", "moving", "ending".
std::string_view DrainStateName(DrainState state);

struct DrainReport {
  DrainState state = DrainState::kServing;
  // Zero until it is known what moves.
  std::uint64_t planned_blocks = 0;
  std::uint64_t planned_bytes = 0;
  // Another node has them.
  std::uint64_t moved_blocks = 0;
  std::uint64_t moved_bytes = 0;
  // Tried and not taken, or not tried any more.
  std::uint64_t left_blocks = 0;
  // Moved and left ones by their last outcome.
  std::array<std::uint64_t, kLastOutcome + 1> outcomes = {};
  // Until the node's end.
  absl::Duration time_left;
  // What kept blocks from being moved, in words; empty: nothing did.
  std::string trouble;
};

class Drainer {
 public:
  struct Options {
    std::size_t batch_blocks = kMaxBatchKeys;
    // Half a second on a network of 1 Gbit/s, a fiftieth on one of 25: what a
    // lost answer costs, and far more than a round trip.
    std::uint64_t batch_bytes = 64 * kMiB;
    std::size_t max_peers = 8;
    // Of a batch. A peer that needs longer is too slow to be worth its share.
    absl::Duration call_timeout = absl::Seconds(5);
    absl::Duration list_timeout = absl::Seconds(2);
    // Of a batch that a peer has no room for now, and of the list of peers.
    int tries = 3;
    absl::Duration least_pause = absl::Milliseconds(20);
    absl::Duration longest_pause = absl::Seconds(1);
    // Looked at in one step.
    std::size_t scan_blocks = 4096;
    std::size_t max_reports = 16;
  };
  struct Parts {
    Executor* executor = nullptr;
    ControlConnector* control = nullptr;
    Logger* log = nullptr;
    NodeCatalogClient* catalog = nullptr;
    const NodeCredentials* credentials = nullptr;
    const DramPool* pool = nullptr;
    // This run's; complete before anything moves.
    const NodeAddress* address = nullptr;
  };
  struct Counters {
    Counter moved_blocks;
    Counter moved_bytes;
    Counter left_blocks;
    Counter calls;
    Counter failed_calls;
  };

  Drainer(const Options& options, const Parts& parts);
  ~Drainer();  // Close().

  // At most `bytes` of the hottest chains go to other nodes, until `moves_end`;
  // the node means to end at `deadline`. `done` runs once, as a task, when
  // nothing more is moved, unless End or Close came first. FAILED_PRECONDITION
  // where it moves or ends already.
  absl::Status StartMoving(std::uint64_t bytes, BootTime moves_end,
                           BootTime deadline,
                           absl::AnyInvocable<void() &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Nothing moves any more: the node ends, at `deadline` at the latest.
  // Idempotent.
  void End(BootTime deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  DrainReport report() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `done` with a report once nothing is moved (any more), or at `until`;
  // at Close at the latest.
  void AwaitReport(BootTime until,
                   absl::AnyInvocable<void(DrainReport) &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Every call has ended and every report is given on return.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  const Counters& counters() const { return counters_; }

 private:
  // A block that is to move, as little of it as finds it again.
  struct Move {
    std::uint64_t id = 0;
    // In the pool (DramPool::EachWarm).
    std::uint32_t place = 0;
    std::uint32_t bytes = 0;
  };
  // The blocks that are here, and where each is.
  struct Scan {
    std::vector<DrainBlock> blocks;
    std::vector<std::uint32_t> places;
    std::uint32_t cursor = 0;
  };
  struct Peer {
    std::string control_address;
    std::unique_ptr<NodePeerClient> client;
    // What it is still to get, in order.
    std::deque<Move> queue;
    // Calls in a row that failed, and batches that it had no room for.
    int failures = 0;
    int congested = 0;
  };
  struct Waiter {
    BootTime until;
    absl::AnyInvocable<void(DrainReport) &&> done;
  };

  // In the order in which they run.
  void AskForPeers(int tries) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnPeers(int tries,
               const absl::StatusOr<std::vector<NodeCatalogClient::Peer>>& got)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ScanMore(std::unique_ptr<Scan> scan,
                std::vector<NodeCatalogClient::Peer> peers)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void PutInOrder(const Scan& scan,
                  const std::vector<NodeCatalogClient::Peer>& peers)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void BeginPeers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendNext(std::size_t peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // The items' copies as their headers say them, while they are of one
  // namespace and fit a batch; `items` keeps those, `rest` the ones behind.
  NodePeerClient::FetchCall BuildCall(std::vector<Move>* items,
                                      std::vector<Move>* gone,
                                      std::vector<Move>* rest) const;
  void OnFetched(std::size_t peer, const std::vector<Move>& items,
                 const absl::StatusOr<NodePeerClient::Fetched>& got)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The pause before the peer's next batch; it has been given up where none is
  // left in its queue.
  absl::Duration TakeFailure(Peer* peer, const std::vector<Move>& items,
                             const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration TakeOutcomes(Peer* peer, const std::vector<Move>& items,
                              const NodePeerClient::Fetched& got)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GoOn(std::size_t peer, absl::Duration pause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Settle(const Move& item, Outcome outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteTrouble(const std::string& trouble)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing more is moved; what is not settled has `outcome`.
  void Finish(Outcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishWith(const std::string& trouble) ABSL_LOCKS_EXCLUDED(mutex_);
  void AnswerWaiters(bool all) ABSL_LOCKS_EXCLUDED(mutex_);
  DrainReport ReportNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool moving() const ABSL_LOCKS_EXCLUDED(mutex_);
  BootTime Now() const { return parts_.executor->clock()->Now(); }
  void After(absl::Duration delay, absl::AnyInvocable<void() &&> step);

  const Options options_;
  const Parts parts_;
  Counters counters_;

  mutable Mutex mutex_;
  // All but state and time_left are kept up to date.
  DrainReport report_ ABSL_GUARDED_BY(mutex_);
  DrainState state_ ABSL_GUARDED_BY(mutex_) = DrainState::kServing;
  std::uint64_t move_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  BootTime moves_end_ ABSL_GUARDED_BY(mutex_);
  BootTime deadline_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void() &&> done_ ABSL_GUARDED_BY(mutex_);
  // Made once, and kept until Close: clients are used without the lock.
  std::vector<std::unique_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);
  // The first of peers_ that was not begun, and how many are under way.
  std::size_t next_peer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t active_peers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_DRAINER_H_
