// Reads of a local session, start to end: who may see the namespace, the
// look-up with its lease, and the ends of leases. Also what takes blocks away:
// Remove, and a client's report of a copy that failed its checksum.
//
// A remote read is served_connection.h: it asks the same two, namespace cache
// and pool.
//
// Does not know: the wire, sockets.
//
// Threading. Thread-safe. Every `done` runs exactly once, under no lock, maybe
// inside the call.
//
// Ownership. Owned by Node; everything in Parts outlives it. Close first.

#ifndef FIRNKV_SERVER_NODE_READ_PATH_H_
#define FIRNKV_SERVER_NODE_READ_PATH_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_metrics.h"
#include "server/node/session_registry.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

// Who asks about which blocks of which namespace: what all calls begin with.
struct SessionCall {
  LiveSession session;
  NamespaceId name_space;
  // Highest clear epoch that the client has seen (rule C2).
  ClearEpoch seen = ClearEpoch::kUnknown;
  BootTime deadline;
  std::vector<BlockKey> keys;
};

class ReadPath {
 public:
  struct Options {
    // Of a request that asks for none.
    absl::Duration default_lease = absl::Seconds(10);
    absl::Duration retry_after = absl::Milliseconds(20);
    // Copies of all sessions that wait for the node's own check; a report
    // beyond is kCongested. Each check reads a whole block, one at a time.
    std::size_t max_checks = 256;
  };
  struct Parts {
    Executor* executor = nullptr;
    NamespaceCache* namespaces = nullptr;
    SessionRegistry* registry = nullptr;
    DramPool* pool = nullptr;
    NodeMetrics* metrics = nullptr;
  };

  ReadPath(const Options& options, const Parts& parts);
  // Close().
  ~ReadPath();
  // No check of a copy runs after this returns; those that wait are
  // kCancelled.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  struct OpenAnswer {
    std::vector<Opened> blocks;  // One a key.
    LeaseTable::Granted lease;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    absl::Duration retry_after;
  };
  // `lease` zero: the default.
  void StartOpen(SessionCall call, ReadSpan span, LeaseUse use,
                 absl::Duration lease,
                 absl::AnyInvocable<void(OpenAnswer) &&> done);

  void Release(const LiveSession& session, absl::Span<const LeaseId> leases);
  std::vector<LeaseTable::RenewOutcome> Renew(const LiveSession& session,
                                              absl::Span<const LeaseId> leases,
                                              absl::Duration lease);

  void StartExists(SessionCall call, ReadSpan span,
                   absl::AnyInvocable<void(std::vector<Found>) &&> done);

  using OutcomesDone = absl::AnyInvocable<void(std::vector<Outcome>) &&>;
  // kHit: it was here and is gone.
  void StartRemove(SessionCall call, OutcomesDone done);

  // Rule P12: the node checks for itself. kCorrupt: isolated; kHit: sound;
  // kMiss: no such copy here. `generations` as many as keys.
  void StartReport(SessionCall call, std::vector<Generation> generations,
                   OutcomesDone done) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Duration retry_after() const { return options_.retry_after; }

 private:
  // Copies of one report that wait for their check.
  struct Report {
    NamespaceId name_space;
    std::vector<BlockKey> keys;
    std::vector<Generation> generations;
    std::vector<Outcome> outcomes;
    OutcomesDone done;
  };

  void CheckNext() ABSL_LOCKS_EXCLUDED(mutex_);
  void PostCheck() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Parts parts_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool checking_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t waiting_checks_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::unique_ptr<Report>> reports_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_READ_PATH_H_
