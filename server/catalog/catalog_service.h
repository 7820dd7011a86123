// CatalogService of catalog.proto: messages in, plain types to the parts,
// messages out, and who may call what. member_service.h has the nodes' part.
//
// Every call but Connect needs a token. A tenant sees its own namespaces and
// nothing else: a namespace that is not its own is answered as one that does
// not exist.
//
// Threading. Thread-safe. Locate, Place, Remove and KeepAlive run on the
// calling thread, so that they never wait for a write; the rest on the strand.
//
// Owned by Catalog.

#ifndef FIRNKV_SERVER_CATALOG_CATALOG_SERVICE_H_
#define FIRNKV_SERVER_CATALOG_CATALOG_SERVICE_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/transport/control_channel.h"
#include "proto/base/namespace_facts.h"
#include "server/catalog/authenticator.h"
#include "server/catalog/locator.h"
#include "server/catalog/member_service.h"
#include "server/catalog/placer.h"
#include "server/catalog/registry.h"
#include "server/catalog/service_call.h"

namespace firnkv {

namespace v1 {
class PlaceRequest;
}  // namespace v1

class CatalogService : public ControlService {
 public:
  // All outlive the service.
  struct Parts {
    ClusterState* cluster;
    Registry* registry;
    Locator* locator;
    Placer* placer;
    MemberService* members;
    Authenticator* authenticator;
    ServiceCalls* calls;
  };
  explicit CatalogService(const Parts& parts) : parts_(parts) {}

  std::string_view service() const override {
    return "firnkv.v1.CatalogService";
  }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override;

  static constexpr std::size_t kMethods = 14;
  static std::string_view MethodName(std::size_t method);
  const CallStats& stats(std::size_t method) const { return stats_[method]; }

 private:
  using Serve = void (CatalogService::*)(std::string_view, CallStats*,
                                         ControlReply);
  struct Method {
    std::string_view name;
    Serve serve;
  };
  static const std::array<Method, kMethods>& Methods();

  void Connect(std::string_view bytes, CallStats* stats, ControlReply reply);
  void OpenNamespace(std::string_view bytes, CallStats* stats,
                     ControlReply reply);
  void DescribeNamespaces(std::string_view bytes, CallStats* stats,
                          ControlReply reply);
  void DescribeTenants(std::string_view bytes, CallStats* stats,
                       ControlReply reply);
  void Register(std::string_view bytes, CallStats* stats, ControlReply reply);
  void KeepAlive(std::string_view bytes, CallStats* stats, ControlReply reply);
  void Unregister(std::string_view bytes, CallStats* stats, ControlReply reply);
  void ListPeers(std::string_view bytes, CallStats* stats, ControlReply reply);
  void Announce(std::string_view bytes, CallStats* stats, ControlReply reply);
  void CompareDigests(std::string_view bytes, CallStats* stats,
                      ControlReply reply);
  void Locate(std::string_view bytes, CallStats* stats, ControlReply reply);
  void Place(std::string_view bytes, CallStats* stats, ControlReply reply);
  void Remove(std::string_view bytes, CallStats* stats, ControlReply reply);
  void MintToken(std::string_view bytes, CallStats* stats, ControlReply reply);

  static absl::StatusOr<std::vector<Placer::Block>> BlocksOf(
      const v1::PlaceRequest& request);
  // Null: none, or not the caller's.
  std::optional<NamespaceFacts> Visible(const TokenClaims& caller,
                                        NamespaceId name_space) const;

  const Parts parts_;
  std::array<CallStats, kMethods> stats_;
};

// The last part of "/firnkv.v1.CatalogService/Locate".
std::string_view ShortMethodName(std::string_view method);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_CATALOG_SERVICE_H_
