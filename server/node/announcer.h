// Tells the catalog what this node has: within one registration first a full
// inventory, then the events of the announcement log, in numbered batches, one
// under way at a time (rules A1, A4).
//
//     Begin -> BEGIN, PART..., END, events, events, ...   until End or on_lost
//
// Why an inventory in parts is consistent: the log records from before the
// first part is read. Whatever changes in the pool while parts are read is an
// event in the log too, and events go after END in the order in which they
// happened: a copy that a part named and that left since is withdrawn by its
// event, one that came behind the cursor is published by its.
//
// A batch whose answer got lost is sent again as it was, under its number; the
// catalog answers a repeated batch as it did the first time. Entries that it
// refused are copies that must go (rule C2): they are dropped from the pool.
//
// Does not know: registering, leases, who may be superseded (catalog_link.h).
//
// Threading. Thread-safe. One mutex, never held over a call, the pool or a
// callback.
//
// Ownership. Owned by CatalogLink; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_ANNOUNCER_H_
#define FIRNKV_SERVER_NODE_ANNOUNCER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/limits.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "server/node/announcement_log.h"
#include "server/node/node_catalog_client.h"
#include "server/node/publish_waiters.h"
#include "server/node/retry_delay.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

// Whether the same call may succeed a little later: the peer was away, slow or
// full. Everything else is an answer.
bool IsPassing(const absl::Status& status);

class Announcer {
 public:
  struct Options {
    absl::Duration call_timeout = absl::Seconds(2);
    absl::Duration first_backoff = absl::Milliseconds(50);
    absl::Duration longest_backoff = absl::Seconds(2);
    std::size_t batch = kMaxAnnouncementEntries;
    // Blocks that commits may wait for (wait_for published).
    std::size_t max_waiting_blocks = 64 * 1024;
  };
  struct Parts {
    Executor* executor = nullptr;
    Random* random = nullptr;
    NodeCatalogClient* catalog = nullptr;
    AnnouncementLog* log = nullptr;
    DramPool* pool = nullptr;
  };
  struct Counters {
    Counter batches;
    Counter entries;
    Counter retries;
    Counter refused;
    Counter inventories;
    Counter overflows;
  };

  // `on_lost` runs as a task: the registration is of no use any more (a gap,
  // another registration, an overflowed log), make a new one. Never after End
  // of that registration.
  Announcer(const Options& options, const Parts& parts,
            absl::AnyInvocable<void(absl::Status)> on_lost);
  ~Announcer();

  struct Registration {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    RegistrationId id;
  };
  // A new registration; ends an older one.
  void Begin(const Registration& registration) ABSL_LOCKS_EXCLUDED(mutex_);
  // The registration is over; waiters go on waiting for the next one.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  // No task and no waiter is left on return.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until the catalog knows these blocks, which are resident now.
  void WaitPublished(std::vector<BlockId> blocks, BootTime deadline,
                     PublishWaiters::Done done);

  // The inventory has been applied: what the catalog says of this node is true.
  bool complete() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Number of the last batch of `registration` whose answer is here; 0 where
  // another one is under way.
  std::uint64_t applied(RegistrationId registration) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  const Counters& counters() const { return counters_; }

 private:
  enum class Stage : std::uint8_t {
    kIdle,
    kInventoryBegin,
    kInventoryPart,
    kInventoryEnd,
    kEvents,
  };

  // How far the inventory is; used by whoever is sending.
  struct Progress {
    std::uint32_t cursor = 0;
    bool all_read = false;
    // Read and too much for the part before.
    std::vector<AnnouncedEntry> rest;
  };
  // A batch, and the position of the log up to which all is told with it.
  struct Batch {
    NodeCatalogClient::AnnounceCall call;
    std::uint64_t covers = 0;
  };

  // Sends the next batch, or the last one again, unless one is under way.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // nullopt: nothing to tell now.
  std::optional<Batch> Build(Stage stage, Progress* progress)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadPart(Progress* progress, std::vector<AnnouncedEntry>* entries)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(std::uint64_t term, const NodeCatalogClient::AnnounceCall& call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnAnswer(std::uint64_t term,
                absl::StatusOr<NodeCatalogClient::Announced> answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What follows from a batch that was applied.
  void OnApplied(const Batch& batch,
                 const std::vector<NodeCatalogClient::Refusal>& refused)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRetryTimer(std::uint64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  void Lose(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Parts parts_;
  absl::AnyInvocable<void(absl::Status)> on_lost_;
  Counters counters_;
  PublishWaiters waiters_;

  mutable Mutex mutex_;
  // Counts registrations and their ends, so that answers to older ones are
  // ignored.
  std::uint64_t term_ ABSL_GUARDED_BY(mutex_) = 0;
  Registration registration_ ABSL_GUARDED_BY(mutex_);
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kIdle;
  // A batch is being built, is under way, or waits for the backoff's timer.
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  // The one that is under way or will be sent again.
  std::optional<Batch> batch_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  // Number of the last batch that was applied.
  std::uint64_t applied_ ABSL_GUARDED_BY(mutex_) = 0;
  // Everything before this position of the log is covered by the inventory,
  // and, once that is applied, told.
  std::uint64_t told_ ABSL_GUARDED_BY(mutex_) = 0;
  RetryDelay backoff_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_ANNOUNCER_H_
