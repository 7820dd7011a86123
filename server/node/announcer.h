// Tells the catalog what this node has: within one registration a full
// inventory, then the events of the announcement log, in numbered batches, one
// under way at a time (rules A1, A4), with a comparison of digests and a repair
// now and then (rule A5).
//
//     Begin -> BEGIN, PART..., END -> events, events, compare, events, ...
//     Begin (kept) --------------------^  compare -> repair -> events
//                                         compare -> BEGIN ...
//
// Why an inventory in parts is consistent: the log records from before the
// first part is read. Whatever changes in the pool while parts are read is an
// event in the log too, and events go after END in the order in which they
// happened: a copy that a part named and that left since is withdrawn by its
// event, one that came behind the cursor is published by its.
//
// Why a registration that was kept needs none: the log went on recording, and
// told events leave it only once their answer is here. So it holds all that
// happened since the last answer. The first of them may have been applied, if
// only the answer was lost; to tell events again, in order, up to the last one,
// changes nothing: a publish never replaces a newer copy, a withdrawal names
// its generation, and the last event of a block decides (rule A2). What was
// answered and yet lost (a power cut) is found by the comparison, which then
// mends at once. Only if the log overflowed, or an inventory was under way,
// there is nothing to go on with: a new inventory.
//
// Why a comparison compares equals: no batch is under way while it is, so the
// catalog has what was told with the last batch, and AnnouncementLog::Told sums
// exactly that. Not before everything is told that had happened when an
// inventory's or a repair's reading ended, or a kept registration began: until
// then the catalog may be ahead of what was told.
//
// Why a repair neither removes a live entry nor revives a dead one: from its
// first reading of the pool until its last batch is applied no event is told.
// So everything that happened since the reading began is in the log behind it,
// and the argument of the inventory holds, bucket by bucket: a copy that came
// behind the cursor is published by its event, one that left is withdrawn by
// its. And an older event, which the log held already, is told again after the
// repair, which changes nothing, as above.
//
// A batch whose answer got lost is sent again as it was, under its number; the
// catalog answers a repeated batch as it did the first time. Entries that it
// refused are copies that must go (rule C2): they are dropped from the pool.
//
// Does not know: registering, leases, who may be superseded (catalog_link.h);
// when to compare and what to do then (digest_watch.h).
//
// Threading. Thread-safe. One mutex, never held over a call, the pool or a
// callback; the log's and the waiters' are below it.
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
#include "server/base/log.h"
#include "server/node/announcement_log.h"
#include "server/node/bucket_repair.h"
#include "server/node/digest_watch.h"
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
    // Events are gathered for so long after a batch of them was applied, unless
    // a batch is full or somebody waits: a node that is written to would else
    // call its catalog as fast as that answers, a block or two at a time.
    absl::Duration gather = absl::Milliseconds(2);
    // Blocks that commits may wait for (wait_for published).
    std::size_t max_waiting_blocks = 64 * 1024;
    DigestWatch::Options digests;
  };
  struct Parts {
    Executor* executor = nullptr;
    Random* random = nullptr;
    NodeCatalogClient* catalog = nullptr;
    AnnouncementLog* log = nullptr;
    DramPool* pool = nullptr;
    Logger* logger = nullptr;
  };
  struct Counters {
    Counter batches;
    Counter entries;
    Counter retries;
    Counter refused;
    Counter inventories;
    Counter overflows;
    // Registrations that went on without an inventory.
    Counter resumed;
    Counter compares;
    Counter different_buckets;
    Counter repaired_buckets;
    Counter repaired_entries;
  };

  // `on_lost` runs as a task: the registration is of no use any more (a gap,
  // another registration), make a new one. Never after End of that
  // registration.
  Announcer(const Options& options, const Parts& parts,
            absl::AnyInvocable<void(absl::Status)> on_lost);
  ~Announcer();

  struct Registration {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    RegistrationId id;
  };
  // A new registration; ends an older one. `kept`: the catalog has still what
  // this run told it before.
  void Begin(const Registration& registration,
             const std::optional<NodeCatalogClient::Registered::Kept>& kept)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The registration is over; the log and the waiters wait for the next one.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  // No task and no waiter is left on return.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until the catalog knows these blocks, which are resident now.
  void WaitPublished(std::vector<BlockId> blocks, BootTime deadline,
                     PublishWaiters::Done done);

  // A reader came for a copy that is not here: the catalog may have it still.
  // Brings the next comparison forward; cheap, and bounded by what it plans.
  void CompareSoon() ABSL_LOCKS_EXCLUDED(mutex_);

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
    kRepairRead,
    kRepairPart,
  };

  // How far an inventory or a repair is; used by whoever is sending.
  struct Progress {
    std::uint32_t cursor = 0;
    bool all_read = false;
    // Read and too much for the part before.
    std::vector<AnnouncedEntry> rest;
    std::optional<BucketRepair> repair;
    BucketRepair::Progress repair_read = BucketRepair::Progress::kMore;
  };
  // A batch, and the position of the log up to which all is told with it.
  struct Batch {
    NodeCatalogClient::AnnounceCall call;
    std::uint64_t covers = 0;
  };

  // Sends the next batch or comparison, unless something is under way.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // As a task: an answer may come inside the call.
  void PostAdvance();
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
  // The stage after this batch's.
  void Follow(Batch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What follows from a batch that was applied.
  void OnApplied(const Batch& batch,
                 const std::vector<NodeCatalogClient::Refusal>& refused)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether there is time for more events; then Advance comes by itself.
  bool Gathers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnRetryTimer(std::uint64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  void BeginInventory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lose(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Comparing and repairing, in the order in which it runs.
  void PlanCompare(absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayCompare() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartCompare(std::uint64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  void SendCompare(std::uint64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCompared(std::uint64_t term,
                  const absl::StatusOr<NodeCatalogClient::Compared>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnVerdict(DigestWatch::Verdict verdict)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A part of the pool was read.
  void OnRepairRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

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
  // An inventory of this run was applied, and the log has all events since.
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  // Number of the last batch that was applied.
  std::uint64_t applied_ ABSL_GUARDED_BY(mutex_) = 0;
  // Everything before this position of the log is covered by the inventory,
  // and, once that is applied, told.
  std::uint64_t told_ ABSL_GUARDED_BY(mutex_) = 0;
  // Until all before this position is told, the catalog may be ahead of it.
  std::uint64_t compare_from_ ABSL_GUARDED_BY(mutex_) = 0;
  bool compare_due_ ABSL_GUARDED_BY(mutex_) = false;
  // When the planned one becomes due.
  BootTime compare_at_ ABSL_GUARDED_BY(mutex_);
  // Counts plans for the next comparison, so that only the last one counts.
  std::uint64_t plan_ ABSL_GUARDED_BY(mutex_) = 0;
  // Until then events are gathered; a task is set for then.
  BootTime gather_until_ ABSL_GUARDED_BY(mutex_);
  bool gathering_ ABSL_GUARDED_BY(mutex_) = false;
  DigestWatch digests_ ABSL_GUARDED_BY(mutex_);
  RetryDelay backoff_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_ANNOUNCER_H_
