// This node's membership: registration at the catalog, heartbeats, and what
// comes back with them (changed namespaces, copies to remove).
//
//     connecting -> registering -> refreshing -> registered
//          ^             |  ^                        |
//          |             |  '---- lease lost --------'
//          '-- away <----'
//     superseded, left: for ever. refused: tried again, slowly.
//
// Rule A6: the node names the epoch of the data directory's last run, whose
// lock it has, and so takes over at once. A run that the catalog calls
// superseded stops serving, for ever. Rule A7: a lease is believed for 7/8 of
// its term, counted from before the call that it came with. Rule A9: every
// registration and heartbeat says the highest incarnation that this node has
// seen, and a catalog that was never there refuses it; besides, the node
// refuses a lower one, or another one of the same number, until the operator
// accepts it.
//
// After every registration all namespaces that the node knows are asked for
// anew, since changes during an outage are in no heartbeat; only then does the
// node believe in its membership (rule C4). Then the catalog is told what it
// does not know: where it has kept what this run told it before, that is what
// happened meanwhile (announcer.h). Without a catalog the node goes on serving.
//
// Does not know: the wire, sessions.
//
// Threading. Thread-safe. One mutex, never held over a call, a callback or the
// node state's disk; the drain's and the pool's are below it.
//
// Ownership. Owned by Node; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_CATALOG_LINK_H_
#define FIRNKV_SERVER_NODE_CATALOG_LINK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/node_address.h"
#include "proto/base/random.h"
#include "server/base/log.h"
#include "server/node/announcer.h"
#include "server/node/clear_drain.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_catalog_client.h"
#include "server/node/node_credentials.h"
#include "server/node/node_state.h"
#include "server/node/retry_delay.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class CatalogLink {
 public:
  enum class State : std::uint8_t {
    // No answer from the catalog in this run yet.
    kConnecting,
    kRegistering,
    kRefreshing,
    kRegistered,
    // It was registered, and the lease was lost.
    kAway,
    // The catalog says no, or says what rule A9 refuses.
    kRefused,
    // Another run of this node has taken over (rule A6).
    kSuperseded,
    // This run has ended its membership by itself.
    kLeft,
  };

  struct Options {
    // This run's. Filled in by Start at the latest; outlives the link.
    const NodeAddress* address = nullptr;
    std::string version;
    absl::Duration call_timeout = absl::Seconds(2);
    absl::Duration first_backoff = absl::Milliseconds(50);
    absl::Duration longest_backoff = absl::Seconds(2);
    // Between two tries of what the catalog refused.
    absl::Duration refused_pause = absl::Seconds(5);
    // Between two log lines about one and the same failure.
    absl::Duration say_again = absl::Minutes(1);
    // Between two looks whether the leases of a strict clear have ended.
    absl::Duration clear_look = absl::Milliseconds(100);
    Announcer::Options announcer;
  };
  struct Parts {
    Executor* executor = nullptr;
    Random* random = nullptr;
    Logger* log = nullptr;
    NodeCatalogClient* catalog = nullptr;
    NodeCredentials* credentials = nullptr;
    NodeState* state = nullptr;
    AnnouncementLog* announcements = nullptr;
    NamespaceCache* namespaces = nullptr;
    DramPool* pool = nullptr;
  };
  struct Counters {
    Counter registrations;
    Counter lost_leases;
    Counter failed_heartbeats;
    Counter removals;
  };

  // `on_superseded` runs once, as a task.
  CatalogLink(const Options& options, const Parts& parts,
              absl::AnyInvocable<void()> on_superseded);
  ~CatalogLink();

  void Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // No task of it runs after this returns; waiters are kCancelled.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the membership, for ever: the catalog forgets at once what this run
  // announced. `done` runs once, as a task, within `timeout`: OK; or why the
  // catalog may not know, which then forgets after lease and grace.
  void Leave(absl::Duration timeout,
             absl::AnyInvocable<void(absl::Status) &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  State state() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Until when this node believes that it is a member.
  BootTime believed_until() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Why it is not registered; OK if it is.
  absl::Status last_failure() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The inventory too has been applied.
  bool settled() const;

  // Of commits with wait_for published: see PublishWaiters.
  void WaitPublished(std::vector<BlockId> blocks, BootTime deadline,
                     PublishWaiters::Done done) {
    announcer_.WaitPublished(std::move(blocks), deadline, std::move(done));
  }

  // A remote reader came for a copy that is not here (kStaleLocation).
  void OnRemoteMiss() { announcer_.CompareSoon(); }

  const Counters& counters() const { return counters_; }
  const Announcer::Counters& announcer_counters() const {
    return announcer_.counters();
  }

 private:
  // In the order in which they run. `term` counts attempts, so that answers to
  // older ones are ignored.
  void Connect(std::uint64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  void Register(std::uint64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRegistered(std::uint64_t term, BootTime asked_at,
                    absl::StatusOr<NodeCatalogClient::Registered> answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Accept(const NodeCatalogClient::Registered& answer);
  void Refresh(std::uint64_t term, std::vector<NamespaceId> left)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRefreshed(std::uint64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  void KeepAlive(std::uint64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnKeptAlive(std::uint64_t term, BootTime asked_at,
                   absl::StatusOr<NodeCatalogClient::KeptAlive> answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Soon, while the lease lasts; else the membership is over.
  void BeatAgain(std::uint64_t term, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Beats at `at`, or as soon as a strict clear has ended here (rule C4).
  void AwaitBeat(std::uint64_t term, BootTime at) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExecuteRemovals(const std::vector<NodeCatalogClient::Removal>& removals);
  void Unregister(const NodeCatalogClient::UnregisterCall& call, BootTime until,
                  int tries, absl::AnyInvocable<void(absl::Status) &&> done);

  // The attempt or the registration has failed; begins the next one.
  void Fail(std::uint64_t term, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Which run to name as the one before this one.
  NodeEpoch Predecessor() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsCurrent(std::uint64_t term) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Believe() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Saves what of the node's memory changed; never under the mutex.
  absl::Status Remember(absl::AnyInvocable<void(NodeMemory*)> change);
  void After(absl::Duration delay, absl::AnyInvocable<void() &&> step);

  const Options options_;
  const Parts parts_;
  // Of the run before, as this run found them (rule A6).
  const NodeEpoch attempted_before_;
  const NodeEpoch registered_before_;
  absl::AnyInvocable<void()> on_superseded_;
  Counters counters_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kConnecting;
  absl::Status last_failure_ ABSL_GUARDED_BY(mutex_);
  // When it was last logged.
  BootTime said_failure_at_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t term_ ABSL_GUARDED_BY(mutex_) = 0;
  bool registered_once_ ABSL_GUARDED_BY(mutex_) = false;
  // Counts refusals, to name the other possible predecessor next time.
  std::uint64_t refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  RegistrationId registration_ ABSL_GUARDED_BY(mutex_);
  std::optional<NodeCatalogClient::Registered::Kept> kept_
      ABSL_GUARDED_BY(mutex_);
  absl::Duration lease_ ABSL_GUARDED_BY(mutex_);
  // When the lease that we hold ends for us (rule A7).
  BootTime lease_until_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t namespace_cursor_ ABSL_GUARDED_BY(mutex_) = 0;
  // As the last heartbeat said it.
  std::uint64_t drained_cursor_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t removals_done_ ABSL_GUARDED_BY(mutex_) = 0;
  RetryDelay backoff_ ABSL_GUARDED_BY(mutex_);
  RetryDelay heartbeat_backoff_ ABSL_GUARDED_BY(mutex_);

  ClearDrain drain_;
  Announcer announcer_;
  TaskScope scope_;
};

std::string_view LinkStateName(CatalogLink::State state);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_CATALOG_LINK_H_
