#include "tests/support/sim_admin.h"

#include <utility>

#include "proto/admin.pb.h"
#include "proto/base/request.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"

namespace firnkv {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(3);

}  // namespace

SimAdmin::SimAdmin(SimWorld* world, std::string_view catalog_address,
                   const ClusterSecret& secret)
    : world_(world),
      secret_(secret),
      machine_(world->NewMachine("admin", "admin")),
      channel_(machine_->seams().control->Connect(catalog_address)) {}

void SimAdmin::Connect(std::function<void(absl::Status)> done) {
  v1::ConnectRequest request;
  ToProto(Handshake{.test_vector = HandshakeTestVector()},
          request.mutable_handshake());
  ToProto(RequestHeader{.remaining = kTimeout}, request.mutable_header());
  channel_->StartCall("/firnkv.v1.CatalogService/Connect",
                      request.SerializeAsString(), kTimeout,
                      [this, done](absl::StatusOr<std::string> answer) {
                        v1::ConnectResponse response;
                        if (answer.ok() && response.ParseFromString(*answer)) {
                          const auto theirs = FromProto(response.handshake());
                          if (theirs.ok()) cluster_ = theirs->cluster;
                        }
                        done(answer.status());
                      });
}

template <typename Request>
void SimAdmin::Call(std::string_view method, Request request, Done done) {
  if (cluster_.IsZero()) {
    Connect([this, method = std::string(method), request,
             done](absl::Status status) {
      if (!status.ok() || cluster_.IsZero()) {
        done(status.ok() ? absl::InternalError("no cluster id") : status);
        return;
      }
      Call(method, request, done);
    });
    return;
  }
  RequestHeader header{.remaining = kTimeout};
  header.token =
      MintToken({.cluster = cluster_,
                 .tenant = {},
                 .role = Role::kAdmin,
                 .session = {},
                 .expires = machine_->seams().clock->WallNow() + kTokenLife},
                secret_);
  ToProto(header, request.mutable_header());
  channel_->StartCall(StrCat("/firnkv.v1.AdminService/", method),
                      request.SerializeAsString(), kTimeout,
                      [this, method = std::string(method),
                       done](absl::StatusOr<std::string> answer) {
                        world_->executor()->Note(
                            StrCat(method, ": ", answer.status().ToString()));
                        done(answer.status());
                      });
}

void SimAdmin::CreateTenant(std::string_view name, Done done) {
  v1::CreateTenantRequest request;
  request.set_name(std::string(name));
  Call("CreateTenant", std::move(request), std::move(done));
}

void SimAdmin::ClearNamespace(std::string_view tenant, std::string_view name,
                              Done done) {
  v1::ClearNamespaceRequest request;
  request.set_tenant_name(std::string(tenant));
  request.set_name(std::string(name));
  Call("ClearNamespace", std::move(request), std::move(done));
}

}  // namespace firnkv
