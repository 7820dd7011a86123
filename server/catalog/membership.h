// Which nodes there are, which run of each is alive, and how far its
// announcements have been applied.
//
//     awaited --KeepAlive--> alive --lease over--> expired --grace--> reaped
//                              |-------------- Unregister ------------->'
//
// (an awaited one expires too, and Register makes any of them alive.) A node
// that unregistered is remembered for its superseded runs (rule A6) and is in
// no list.
//
// Leases. The catalog alone decides when one ends, by its own boot clock; a
// node is told a duration and stops at 7/8 of it (rule A7). After a start every
// node known from the store is awaited for a full term: a second boot of it is
// refused meanwhile, and its copies are not served before it has been heard of.
// A catalog that stood still for a quarter lease or more cannot know who tried
// to renew meanwhile: every lease that had not ended before gets a full term.
//
// A location is judged by its run (store_schema.h): it counts if it is of the
// node's last epoch and named by an inventory that still counts, and is served
// while that run's lease runs. So a node that vanishes, comes back as another
// run or ends an inventory changes the verdict about millions of locations in
// one step; reaper.h removes what no longer counts at its leisure.
//
// Does not know: keys, namespaces beyond their change numbers.
//
// Threading. Thread-safe, one mutex. What changes registrations or applied
// numbers (under "On the strand") is called there and nowhere else, so that a
// step may rely on what it read.

#ifndef FIRNKV_SERVER_CATALOG_MEMBERSHIP_H_
#define FIRNKV_SERVER_CATALOG_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "server/catalog/store.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

enum class NodeLife : std::uint8_t {
  // Known from before this start of the catalog, not heard of since.
  kAwaited,
  kAlive,
  // Its lease ended: hidden, not removed.
  kExpired,
  // Its grace ended too, or it has left: its entries do not count any more.
  kReaped,
};

// What a location's run makes of it.
enum class Verdict : std::uint8_t {
  // The run is alive: serve it.
  kServing,
  // It counts, and its node cannot be reached now.
  kHidden,
  // It will never count again: reap it.
  kStale,
};

class Membership {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(10);
    absl::Duration grace = absl::Minutes(15);
    std::uint64_t max_nodes = 1024;
  };

  // One boot of a node that wants to be a member.
  struct Boot {
    NodeAddress address;
    NodeEpoch predecessor = NodeEpoch::kNone;
    std::string version;
    std::uint64_t dram_bytes = 0;
    // The last change to namespaces before this registration.
    std::uint64_t namespace_cursor = 0;
  };
  struct Registered {
    RegistrationId registration;
    // From which change on KeepAlive tells: that of Boot, or for a run that was
    // a member before, the last one that it has confirmed.
    std::uint64_t namespace_cursor = 0;
    // Another run of the node was there: its entries are stale now.
    bool replaced = false;
    // This run was a member before, with an inventory that had ended and was
    // not reaped: its entries count as before, and batches go on behind
    // `kept_applied`, the last that the store has of `kept_registration`.
    bool kept = false;
    RegistrationId kept_registration;
    std::uint64_t kept_applied = 0;
  };

  struct Beat {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    RegistrationId registration;
    // The last batch whose answer the node has.
    std::uint64_t applied = 0;
    // Changes of namespaces up to here have reached the node.
    std::uint64_t namespace_cursor = 0;
    // And up to here no read goes on there that was granted before (rule C4).
    std::uint64_t drained_cursor = 0;
    std::uint64_t dram_bytes = 0;
    std::uint64_t dram_used_bytes = 0;
    std::uint64_t blocks = 0;
  };

  // A snapshot of one node, for people and for tests.
  struct Row {
    NodeAddress address;
    NodeLife life = NodeLife::kAwaited;
    absl::Duration last_seen_ago;
    AppliedRecord applied;
    std::string version;
    std::uint64_t namespace_cursor = 0;
    std::uint64_t drained_cursor = 0;
    std::uint64_t dram_bytes = 0;
    std::uint64_t dram_used_bytes = 0;
    std::uint64_t blocks = 0;
  };

  // All outlive the membership.
  struct Parts {
    Store* store;
    const Clock* clock;
    Random* random;
  };
  Membership(const Options& options, const Parts& parts);

  // Reads the nodes; all of them are awaited. Before anything else.
  absl::Status Load() ABSL_LOCKS_EXCLUDED(mutex_);

  // Renews the lease. NOT_FOUND: no such registration, its lease is over, or
  // batches that the node has answers for were lost in a power cut; ABORTED:
  // superseded (rule A6).
  absl::Status KeepAlive(const Beat& beat) ABSL_LOCKS_EXCLUDED(mutex_);

  // Verdicts in the order of `runs`.
  std::vector<Verdict> Judge(absl::Span<const Run> runs) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Null for a node that nobody knows.
  std::optional<Row> Find(NodeId node) const ABSL_LOCKS_EXCLUDED(mutex_);
  // But those that have unregistered.
  std::vector<Row> List() const ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Duration lease() const { return options_.lease; }
  // How often Tick must run.
  absl::Duration tick() const { return options_.lease / 8; }

  // Notices stalls and expiry. Nodes whose grace has ended come back, for
  // Reap on the strand.
  struct Overdue {
    NodeId node;
    RegistrationId registration;
  };
  std::vector<Overdue> Tick() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- On the strand.
  // Rules A1 and A6: synced; one write, however many entries the node has.
  // ALREADY_EXISTS while the lease of another run
  // runs that `boot` does not name as its predecessor; ABORTED where this run
  // was superseded itself; RESOURCE_EXHAUSTED where there are too many nodes.
  absl::StatusOr<Registered> Register(const Boot& boot)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // What a batch of announcements is checked against. NOT_FOUND, ABORTED as for
  // KeepAlive; FAILED_PRECONDITION for another registration.
  absl::StatusOr<AppliedRecord> CheckAnnouncer(NodeId node, NodeEpoch epoch,
                                               RegistrationId registration)
      ABSL_LOCKS_EXCLUDED(mutex_);
  static Store::Write WriteOf(NodeId node, const AppliedRecord& applied);
  // After the write has landed.
  void Install(NodeId node, const AppliedRecord& applied)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Rule A3: makes all entries of an expired registration stale, if it is still
  // the node's last and still expired; the applied number becomes none. True if
  // it did.
  absl::StatusOr<bool> Reap(const Overdue& overdue) ABSL_LOCKS_EXCLUDED(mutex_);

  // The same at once, for a run that ends by itself: its entries are stale, and
  // another boot of the node need not wait for its lease. NOT_FOUND: the
  // registration is not the node's last, or its lease is over. As durable as
  // reaping is: a power cut may bring the node back as one that has vanished.
  absl::Status Unregister(NodeId node, NodeEpoch epoch,
                          RegistrationId registration)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Serials of inventories are below: no entry of a reaped node counts.
  static constexpr std::uint64_t kNoSerial = UINT64_MAX;

  struct NodeState {
    NodeRecord record;
    AppliedRecord applied;
    NodeLife life = NodeLife::kAwaited;
    BootTime lease_ends;
    BootTime last_seen;
    std::uint64_t namespace_cursor = 0;
    std::uint64_t drained_cursor = 0;
    std::uint64_t dram_bytes = 0;
    std::uint64_t dram_used_bytes = 0;
    std::uint64_t blocks = 0;
  };

  // Rule A7, ahead of every look at a lease: gives full terms if the catalog
  // has stood still.
  void NoticeStall(BootTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StoodStill(BootTime now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool LeaseRuns(const NodeState& node, BootTime now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Verdict JudgeOne(const Run& run, BootTime now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<NodeState*> FindMember(NodeId node, NodeEpoch epoch,
                                        BootTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Row RowOf(const NodeState& node, BootTime now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The state of a node as `boot` leaves it, or why it may not.
  absl::StatusOr<NodeState> Admit(const Boot& boot, BootTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static AppliedRecord Renewed(const AppliedRecord& before,
                               RegistrationId registration);
  // Nothing that was ever applied counts any more (rule A3).
  static void Void(AppliedRecord* applied);
  // A reaped node to be forgotten for a new one; null where there is none.
  std::optional<NodeId> Forgettable() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Parts parts_;

  mutable Mutex mutex_;
  std::map<NodeId, NodeState> nodes_ ABSL_GUARDED_BY(mutex_);
  // When the catalog was last known to go.
  BootTime last_tick_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_MEMBERSHIP_H_
