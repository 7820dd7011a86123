// Tenants, namespaces, their versions and clear epochs: the administrative
// state, which must outlive every node. All of it is in memory too.
//
// A name has versions, one a state contract; each version is a namespace of its
// own, with a random id that is never reused (rule C1) and a clear epoch that
// starts at 1 and only rises (rule C2). Every change is one synced write that
// advances the incarnation's sequence (rule A9) and takes the next change
// number, by which KeepAlive tells nodes.
//
// Does not know: who may ask for what (catalog_service.h, admin_service.h);
// keys; nodes.
//
// Threading. Readers: any thread, one mutex. Methods under "On the strand" are
// called there and nowhere else; they write first, and readers see the change
// once it is on disk.

#ifndef FIRNKV_SERVER_CATALOG_REGISTRY_H_
#define FIRNKV_SERVER_CATALOG_REGISTRY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/contract.h"
#include "proto/base/mutex.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/random.h"
#include "proto/base/tenant.h"
#include "server/catalog/backup.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/store.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

// INVALID_ARGUMENT unless `name` is 1 to kMaxNameBytes of letters, digits and
// "._-/:@+", beginning with a letter or a digit: it goes into logs, labels and
// command lines.
absl::Status CheckName(std::string_view what, std::string_view name);

// INVALID_ARGUMENT beyond a century.
absl::StatusOr<absl::Duration> CheckRetention(std::uint64_t seconds);

class Registry {
 public:
  struct Options {
    std::uint64_t max_tenants = 1024;
    std::uint64_t max_namespaces = 4096;
    std::uint64_t max_versions_a_name = 256;
  };

  // A namespace as somebody wants to open it.
  struct Wanted {
    TenantId tenant;
    std::string name;
    StateContract contract;
    // Of what is created. Where it exists they must agree: block_bytes and
    // retention unless 0, strict_clear if true, chained always (rule P14).
    std::uint64_t block_bytes = 0;
    bool chained = false;
    absl::Duration retention;
    bool strict_clear = false;
  };
  struct Opened {
    NamespaceRecord record;
    bool created = false;
  };
  struct TenantRow {
    TenantRecord record;
    std::uint64_t namespaces = 0;
  };

  // All outlive the registry.
  struct Parts {
    Store* store;
    ClusterState* cluster;
    const Clock* clock;
    Random* random;
  };
  Registry(const Options& options, const Parts& parts);

  // Reads everything; makes the tenant `default` where there is no tenant.
  // After ClusterState::Load, before anything else.
  absl::Status Load() ABSL_LOCKS_EXCLUDED(mutex_);

  std::optional<TenantRecord> FindTenant(std::string_view name) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<TenantRecord> FindTenant(TenantId tenant) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // By name.
  std::vector<TenantRow> ListTenants() const ABSL_LOCKS_EXCLUDED(mutex_);

  std::optional<NamespaceFacts> Describe(NamespaceId name_space) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `version` 0: the newest.
  std::optional<NamespaceRecord> FindNamespace(TenantId tenant,
                                               std::string_view name,
                                               std::uint32_t version) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // One version of a name, or all of them where it is 0. NOT_FOUND.
  absl::StatusOr<std::vector<NamespaceRecord>> Versions(
      TenantId tenant, std::string_view name, std::uint32_t version) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // By tenant, name and version; of all tenants where `tenant` is null.
  std::vector<NamespaceRecord> ListNamespaces(const TenantId* tenant) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::uint64_t namespaces() const ABSL_LOCKS_EXCLUDED(mutex_);
  // When it came into this catalog from elsewhere: by its start, by a Restore.
  // nullopt for a namespace that was made since; of those no node has heard
  // but from here.
  std::optional<BootTime> InheritedAt(NamespaceId name_space) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The version with this contract. INVALID_ARGUMENT naming what the contract
  // lacks; NOT_FOUND where the tenant has no such name; FAILED_PRECONDITION
  // naming the first field in which the newest version differs, or the setting
  // that does not agree.
  absl::StatusOr<Opened> Find(const Wanted& wanted) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Namespaces changed after change number `since`, oldest first, at most
  // `most`; `cursor` is the number of the last one told, or of the last one
  // there is.
  struct Changes {
    std::vector<NamespaceFacts> facts;
    std::uint64_t cursor = 0;
  };
  Changes ChangesSince(std::uint64_t since, std::size_t most) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Somebody knows a clear epoch that we do not: what accept-restore raises
  // above. Ignores impossible ones.
  void NoteReported(NamespaceId name_space, ClearEpoch epoch)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // --- On the strand.
  // ALREADY_EXISTS, RESOURCE_EXHAUSTED.
  absl::StatusOr<TenantRecord> CreateTenant(std::string_view name)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // As Find, and makes the version (and the name) where there is none.
  absl::StatusOr<Opened> OpenOrCreate(const Wanted& wanted)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Raises clear epochs: O(versions), whatever the number of blocks. `version`
  // 0: all of them. NOT_FOUND.
  absl::StatusOr<std::vector<NamespaceRecord>> Clear(TenantId tenant,
                                                     std::string_view name,
                                                     std::uint32_t version)
      ABSL_LOCKS_EXCLUDED(mutex_);

  BackupState Backup() const ABSL_LOCKS_EXCLUDED(mutex_);
  // FAILED_PRECONDITION where there are namespaces. The cluster id becomes that
  // of the backup, the incarnation a new one.
  absl::Status Restore(const BackupState& backup) ABSL_LOCKS_EXCLUDED(mutex_);
  // Rule A9: a new incarnation above all that were reported, and all clear
  // epochs above all that were reported, by a margin for clears of which nobody
  // told us: nodes that refuse this catalog say how far it is behind
  // (ClusterState::CheckCursor), not which namespaces were cleared. How many
  // namespaces were raised.
  absl::StatusOr<std::uint64_t> AcceptRestore() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // More clears than anybody makes between two backups.
  static constexpr std::uint64_t kRestoreMargin = 1 << 16;
  using Name = std::pair<TenantId, std::string>;

  absl::Status CheckWanted(const Wanted& wanted) const;
  // Null where no version has the contract.
  absl::StatusOr<std::optional<NamespaceRecord>> FindVersion(
      const Wanted& wanted) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NamespaceRecord WithTenantName(NamespaceRecord record) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Install(const TenantRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Install(const NamespaceRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As Install, of all that there are.
  void Inherit(absl::Span<const TenantRecord> tenants,
               std::vector<NamespaceRecord> namespaces)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes `records` and `next` synced, then shows them to readers.
  absl::Status Commit(const ClusterRecord& next,
                      const std::vector<NamespaceRecord>& records)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const Parts parts_;

  mutable Mutex mutex_;
  std::map<TenantId, TenantRecord> tenants_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, TenantId, std::less<>> tenant_names_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NamespaceId, NamespaceRecord> namespaces_
      ABSL_GUARDED_BY(mutex_);
  // Versions in order: version v stands at v - 1.
  std::map<Name, std::vector<NamespaceId>> names_ ABSL_GUARDED_BY(mutex_);
  // By NamespaceRecord::changed_at.
  std::map<std::uint64_t, NamespaceId> changes_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NamespaceId, ClearEpoch> reported_
      ABSL_GUARDED_BY(mutex_);
  // See InheritedAt.
  absl::flat_hash_set<NamespaceId> inherited_ ABSL_GUARDED_BY(mutex_);
  BootTime inherited_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_REGISTRY_H_
