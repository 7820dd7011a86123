#include "server/node/tenant_directory.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "client/transport/peer_credentials.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

absl::StatusOr<UidMap> ParseUidMap(const std::vector<std::string>& lines) {
  UidMap map;
  for (const std::string& line : lines) {
    const std::size_t equals = line.find('=');
    std::uint32_t uid = 0;
    const char* const end = line.data() + std::min(equals, line.size());
    const auto parsed = std::from_chars(line.data(), end, uid);
    if (equals == std::string::npos || parsed.ec != std::errc() ||
        parsed.ptr != end) {
      return absl::InvalidArgumentError(
          StrCat("'", line, "' is not UID=TENANT"));
    }
    if (uid == kOverflowUid) {
      return absl::InvalidArgumentError(
          StrCat("uid ", uid,
                 " is that of every user whom the kernel cannot "
                 "name here, and speaks for nobody; such callers show a "
                 "token"));
    }
    std::string name = line.substr(equals + 1);
    if (name.empty() || name.size() > kMaxNameBytes) {
      return absl::InvalidArgumentError(StrCat("'", line, "' names no tenant"));
    }
    if (!map.emplace(uid, std::move(name)).second) {
      return absl::InvalidArgumentError(StrCat("uid ", uid, " stands twice"));
    }
  }
  return map;
}

TenantDirectory::TenantDirectory(const Options& options,
                                 NodeCatalogClient* catalog)
    : options_(options), catalog_(catalog) {}

absl::StatusOr<std::string> TenantDirectory::NameOfPeer(
    const PeerCredentials& peer) const {
  if (!peer.uid_trusted) {
    return absl::PermissionDeniedError(
        StrCat("uid ", peer.uid,
               " is of another user namespace or nobody's: "
               "show a token"));
  }
  if (options_.uid_map.empty()) {
    if (peer.uid == options_.own_uid) return std::string(kDefaultTenant);
    return absl::PermissionDeniedError(
        StrCat("uid ", peer.uid, " is not the node's own (", options_.own_uid,
               ") and no uid map is configured: show a token"));
  }
  const auto it = options_.uid_map.find(peer.uid);
  if (it == options_.uid_map.end()) {
    return absl::PermissionDeniedError(
        StrCat("uid ", peer.uid, " is not in the uid map: show a token"));
  }
  return it->second;
}

void TenantDirectory::StartFindByPeer(
    const PeerCredentials& peer,
    absl::AnyInvocable<void(absl::StatusOr<Tenant>) &&> done) {
  absl::StatusOr<std::string> name = NameOfPeer(peer);
  if (!name.ok()) return std::move(done)(name.status());
  TenantId known;
  {
    MutexLock lock(&mutex_);
    const auto it = ids_.find(*name);
    if (it != ids_.end()) known = it->second;
  }
  if (!known.IsZero()) return std::move(done)(Tenant{known, *name});

  catalog_->StartDescribeTenants(
      {*name}, options_.ask_timeout,
      [this, name = *name, done = std::move(done)](
          absl::StatusOr<NodeCatalogClient::Tenants> tenants) mutable {
        if (!tenants.ok()) {
          return std::move(done)(absl::UnavailableError(
              StrCat("cannot ask the catalog for tenant '", name,
                     "': ", std::string(tenants.status().message()))));
        }
        for (const auto& one : *tenants) {
          if (one.first != name) continue;
          Learn(one.second, name);
          return std::move(done)(Tenant{one.second, name});
        }
        std::move(done)(absl::NotFoundError(
            StrCat("the catalog knows no tenant '", name, "'")));
      });
}

std::string TenantDirectory::NameOf(TenantId tenant) const {
  MutexLock lock(&mutex_);
  const auto it = names_.find(tenant);
  return it == names_.end() ? std::string() : it->second;
}

void TenantDirectory::Learn(TenantId tenant, const std::string& name) {
  MutexLock lock(&mutex_);
  names_[tenant] = name;
  ids_[name] = tenant;
}

}  // namespace firnkv
