// Who a caller on the local session is: the map from uids to tenants that the
// operator configured, and the ids that the catalog knows those tenants by.
//
// Rule S2: the map speaks only for peers of the host's own user namespace and
// never for the overflow uid (PeerCredentials::uid_trusted); everybody else
// shows a token. Rule P10: where no map is configured, the node's own uid is
// served, as tenant `default`, and nobody else.
//
// A tenant's id never changes, so what the catalog once said is believed for
// the rest of the run; a name that it does not know is asked for again.
//
// Threading. Thread-safe. `done` runs exactly once, under no lock, maybe inside
// the call.
//
// Owned by Node; outlives the sessions. `catalog` must outlive it.

#ifndef FIRNKV_SERVER_NODE_TENANT_DIRECTORY_H_
#define FIRNKV_SERVER_NODE_TENANT_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/local_socket.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/tenant.h"
#include "server/node/node_catalog_client.h"

namespace firnkv {

// "1000=alice": uid 1000 is tenant alice. INVALID_ARGUMENT with what is wrong.
using UidMap = absl::flat_hash_map<std::uint32_t, std::string>;
absl::StatusOr<UidMap> ParseUidMap(const std::vector<std::string>& lines);

class TenantDirectory {
 public:
  struct Options {
    UidMap uid_map;
    // This process's.
    std::uint32_t own_uid = 0;
    absl::Duration ask_timeout = absl::Seconds(2);
  };
  struct Tenant {
    TenantId id;
    std::string name;
  };

  TenantDirectory(const Options& options, NodeCatalogClient* catalog);

  // The tenant of a peer that shows no token. PERMISSION_DENIED where nobody
  // speaks for it, UNAVAILABLE where the catalog must be asked and is away,
  // NOT_FOUND where the catalog has no such tenant.
  void StartFindByPeer(const PeerCredentials& peer,
                       absl::AnyInvocable<void(absl::StatusOr<Tenant>) &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Empty where the directory has not met it.
  std::string NameOf(TenantId tenant) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Learnt elsewhere: from a namespace's facts.
  void Learn(TenantId tenant, const std::string& name)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<std::string> NameOfPeer(const PeerCredentials& peer) const;

  const Options options_;
  NodeCatalogClient* const catalog_;
  mutable Mutex mutex_;
  // Bounded by the tenants of the cluster that this node has to do with.
  absl::flat_hash_map<std::string, TenantId> ids_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<TenantId, std::string> names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_TENANT_DIRECTORY_H_
