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
// Ownership. Owned by Node; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_READ_PATH_H_
#define FIRNKV_SERVER_NODE_READ_PATH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "server/node/copy_checks.h"
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
  };
  struct Parts {
    Executor* executor = nullptr;
    NamespaceCache* namespaces = nullptr;
    SessionRegistry* registry = nullptr;
    DramPool* pool = nullptr;
    CopyChecks* checks = nullptr;
    NodeMetrics* metrics = nullptr;
  };

  ReadPath(const Options& options, const Parts& parts)
      : options_(options), parts_(parts) {}

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
  // kMiss: no such copy here; kCongested: see copy_checks.h. `generations` as
  // many as keys.
  void StartReport(SessionCall call, std::vector<Generation> generations,
                   OutcomesDone done);

  absl::Duration retry_after() const { return options_.retry_after; }

 private:
  const Options options_;
  const Parts parts_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_READ_PATH_H_
