// A backup of the administrative state as one blob: cluster id, incarnation,
// tenants, namespaces with ids, contracts and clear epochs. No keys: those come
// back from the nodes' inventories. Losing namespace ids would orphan every
// byte.
//
//     "FirnKV backup" 00 0a, u16 version, u64 body bytes, body, SHA-256 of all
//     that precedes it; body = records of store_schema.h, each length-prefixed:
//     the cluster, u32 tenants, ..., u32 namespaces, ...
//
// Pure code over bytes; the decoder takes blobs from anybody.

#ifndef FIRNKV_SERVER_CATALOG_BACKUP_H_
#define FIRNKV_SERVER_CATALOG_BACKUP_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

struct BackupState {
  ClusterRecord cluster;
  std::vector<TenantRecord> tenants;
  std::vector<NamespaceRecord> namespaces;
  friend bool operator==(const BackupState&, const BackupState&) = default;
};

std::string EncodeBackup(const BackupState& state);

// INVALID_ARGUMENT: no backup, torn or altered; FAILED_PRECONDITION: of a newer
// format. Besides the checksum it holds what Restore relies on: names are
// valid, every namespace has a tenant of the same blob, ids are unique,
// versions of a name are 1 to n.
absl::StatusOr<BackupState> DecodeBackup(std::string_view blob);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_BACKUP_H_
