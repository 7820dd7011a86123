// What this node knows of namespaces, and who may touch them.
//
// Facts come from the catalog by need and are refreshed by what its KeepAlive
// reports as changed (catalog_link.h). Rule C2: a request carries the highest
// clear epoch that its client has seen; where the node knows less, it asks the
// catalog first, and answers kUnavailable if that is away. A namespace of
// another tenant than the caller's is kDenied for every key, and so is one that
// does not exist: who may not see it does not learn whether it is there.
//
// Rule C4: while the node does not believe in its membership, nothing of a
// `strict_clear` namespace is served, and no lease of it lasts longer: nobody
// waits for a node that is no member.
//
// Does not know: blocks; the pool is told of every change through `on_changed`.
//
// Threading. Thread-safe. One mutex, never held over a call to the catalog or a
// callback.
//
// Owned by Node; outlives the paths. `catalog` and `clock` must outlive it.

#ifndef FIRNKV_SERVER_NODE_NAMESPACE_CACHE_H_
#define FIRNKV_SERVER_NODE_NAMESPACE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/outcome.h"
#include "server/base/capped_counts.h"
#include "server/node/node_catalog_client.h"
#include "server/tier/namespace_facts.h"

namespace firnkv {

PoolNamespace ToPoolNamespace(const NamespaceFacts& facts);

// Who asks for a namespace.
struct NamespaceCaller {
  TenantId tenant;
  // Another node: it reads for its own tenants.
  bool is_node = false;
};

class NamespaceCache {
 public:
  struct Options {
    // Longest wait for the catalog; a caller's deadline cuts it shorter.
    absl::Duration ask_timeout = absl::Seconds(2);
    // How long an answer that nobody liked is remembered: "there is no such
    // namespace", "the catalog knows no such clear epoch". Bounds what a client
    // that makes up ids can ask of the catalog.
    absl::Duration denial_memory = absl::Seconds(1);
    // At the bound a namespace is forgotten, and asked for again by need.
    std::size_t max_namespaces = 64 * 1024;
    std::size_t max_denials = 4096;
    // Questions under way, in all and of one tenant (nodes together count as
    // one); callers beyond them are answered kUnavailable. Each caller asks for
    // itself, with its own deadline.
    std::size_t max_asking = 1024;
    std::size_t max_asking_a_tenant = 256;
  };

  // Facts by which to serve, or kDenied, kUnavailable, kTimedOut for every key.
  using Answer = std::variant<PoolNamespace, Outcome>;
  using Done = absl::AnyInvocable<void(Answer) &&>;

  // What runs for every namespace that is new or changed, under no lock.
  using OnChanged = absl::AnyInvocable<void(const NamespaceFacts&)>;

  NamespaceCache(const Options& options, NodeCatalogClient* catalog,
                 const Clock* clock, OnChanged on_changed);

  // `seen` is the caller's highest clear epoch, kUnknown if none. `done` runs
  // exactly once: inside Find where the node knows enough, and when the catalog
  // has answered, at `deadline` at the latest, where not.
  void Find(const NamespaceCaller& caller, NamespaceId id, ClearEpoch seen,
            BootTime deadline, Done done) ABSL_LOCKS_EXCLUDED(mutex_);

  // How long a lease that is granted now may last; not positive: not at all.
  absl::Duration LongestLease(const PoolNamespace& facts) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The catalog said so. Older facts than those known change nothing.
  void Learn(const std::vector<NamespaceFacts>& facts)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // There is no such namespace any more.
  void Forget(NamespaceId id) ABSL_LOCKS_EXCLUDED(mutex_);

  // The node has registered: every namespace in the cache is to be asked for
  // anew. An answer to what was asked before is not believed any more: it may
  // be from before a clear that the registration covers, of which no heartbeat
  // will tell.
  std::vector<NamespaceId> BeginRefresh() ABSL_LOCKS_EXCLUDED(mutex_);

  // Until when the node believes in its membership (catalog_link.h).
  void SetMembership(BootTime believed_until) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // The catalog was asked, and knew no such namespace, or no such epoch of it.
  struct Denial {
    BootTime until;
    // The highest epoch that it was asked about.
    ClearEpoch asked = ClearEpoch::kUnknown;
    bool exists = false;
  };

  // By what is known now; kUnset: the catalog must be asked.
  Answer Judge(const NamespaceCaller& caller, NamespaceId id,
               ClearEpoch seen) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: of an answer to what was asked in an earlier `refresh`; nothing is
  // learned.
  bool LearnOf(std::optional<std::uint64_t> refresh,
               const std::vector<NamespaceFacts>& facts)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What was asked in `refresh`.
  Outcome OnAnswer(NamespaceId id, ClearEpoch seen, std::uint64_t refresh,
                   const absl::StatusOr<std::vector<NamespaceFacts>>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void RememberDenial(NamespaceId id, ClearEpoch asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  NodeCatalogClient* const catalog_;
  const Clock* const clock_;
  OnChanged on_changed_;
  CappedCounts<TenantId> asking_;

  mutable Mutex mutex_;
  BootTime believed_until_ ABSL_GUARDED_BY(mutex_);
  // Counts registrations.
  std::uint64_t refresh_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<NamespaceId, PoolNamespace> known_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NamespaceId, Denial> denials_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NAMESPACE_CACHE_H_
