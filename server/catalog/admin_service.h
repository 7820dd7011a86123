// AdminService of admin.proto: what the CLI speaks. Tenants see and make what
// is theirs; all else needs the admin role, which sees every tenant and names
// it.
//
// Threading. Thread-safe. Reads run on the calling thread, the rest on the
// strand.
//
// Owned by Catalog.

#ifndef FIRNKV_SERVER_CATALOG_ADMIN_SERVICE_H_
#define FIRNKV_SERVER_CATALOG_ADMIN_SERVICE_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "client/transport/control_channel.h"
#include "proto/base/clock.h"
#include "server/catalog/cluster_state.h"
#include "server/catalog/entries.h"
#include "server/catalog/membership.h"
#include "server/catalog/reaper.h"
#include "server/catalog/registry.h"
#include "server/catalog/service_call.h"

namespace firnkv {

namespace v1 {
class ClearNamespaceResponse;
class NamespaceRow;
}  // namespace v1

class AdminService : public ControlService {
 public:
  // All outlive the service.
  struct Parts {
    ClusterState* cluster;
    Registry* registry;
    Membership* membership;
    Entries* entries;
    Reaper* reaper;
    ServiceCalls* calls;
    const Clock* clock;
    // Of the software, for CatalogStatus.
    std::string version;
  };
  explicit AdminService(Parts parts);

  std::string_view service() const override { return "firnkv.v1.AdminService"; }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override;

  static constexpr std::size_t kMethods = 13;
  static std::string_view MethodName(std::size_t method);
  const CallStats& stats(std::size_t method) const { return stats_[method]; }

 private:
  using Serve = void (AdminService::*)(std::string_view, CallStats*,
                                       ControlReply);
  struct Method {
    std::string_view name;
    Serve serve;
  };
  static const std::array<Method, kMethods>& Methods();

  void CreateTenant(std::string_view, CallStats*, ControlReply);
  void ListTenants(std::string_view, CallStats*, ControlReply);
  void ShowTenant(std::string_view, CallStats*, ControlReply);
  void CreateNamespace(std::string_view, CallStats*, ControlReply);
  void ListNamespaces(std::string_view, CallStats*, ControlReply);
  void ShowNamespace(std::string_view, CallStats*, ControlReply);
  void ClearNamespace(std::string_view, CallStats*, ControlReply);
  void ListNodes(std::string_view, CallStats*, ControlReply);
  void ExplainKey(std::string_view, CallStats*, ControlReply);
  void CatalogStatus(std::string_view, CallStats*, ControlReply);
  void Backup(std::string_view, CallStats*, ControlReply);
  void Restore(std::string_view, CallStats*, ControlReply);
  void AcceptRestore(std::string_view, CallStats*, ControlReply);

  // Whose namespaces the call is about: the caller's own, or for an
  // administrator the named one. A tenant that names another one is told that
  // there is none.
  absl::StatusOr<TenantId> TenantOf(const TokenClaims& caller,
                                    const std::string& name) const;
  absl::StatusOr<NamespaceRecord> NamespaceOf(const TokenClaims& caller,
                                              const std::string& tenant_name,
                                              const std::string& name,
                                              std::uint32_t version) const;
  void PutRow(const NamespaceRecord& record, v1::NamespaceRow* row) const;
  bool MayBeServedByStrangers(
      const std::vector<NamespaceRecord>& records) const;
  // Nodes that may still serve what `records` had before they were cleared, and
  // why.
  void PutPending(const std::vector<NamespaceRecord>& records,
                  v1::ClearNamespaceResponse* response) const;

  const Parts parts_;
  const BootTime started_;
  std::array<CallStats, kMethods> stats_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_ADMIN_SERVICE_H_
