#include "tests/support/sim_admin.h"

#include <algorithm>
#include <utility>

#include "proto/admin.pb.h"
#include "proto/base/request.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"

namespace firnkv {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(3);

template <typename Answer>
std::function<void(absl::StatusOr<std::string>)> StatusOnly(Answer done) {
  return [done = std::move(done)](absl::StatusOr<std::string> answer) {
    done(answer.status());
  };
}

}  // namespace

SimAdmin::SimAdmin(SimWorld* world, std::string_view catalog_address,
                   const ClusterSecret& secret)
    : world_(world),
      secret_(secret),
      machine_(world->NewMachine("admin", "admin")),
      channel_(machine_->seams().control->Connect(catalog_address)) {}

void SimAdmin::Connect(Done done) {
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
void SimAdmin::Call(std::string_view method, Request request, Answer done) {
  if (cluster_.IsZero()) {
    Connect([this, method = std::string(method), request,
             done](const absl::Status& status) {
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
                        // Perhaps another cluster answers there now.
                        if (absl::IsUnauthenticated(answer.status()))
                          cluster_ = ClusterId();
                        done(std::move(answer));
                      });
}

void SimAdmin::CreateTenant(std::string_view name, Done done) {
  v1::CreateTenantRequest request;
  request.set_name(std::string(name));
  Call("CreateTenant", std::move(request), StatusOnly(std::move(done)));
}

void SimAdmin::Clear(std::string_view tenant, std::string_view name,
                     ClearMode mode, std::function<void(Cleared)> done) {
  v1::ClearNamespaceRequest request;
  request.set_tenant_name(std::string(tenant));
  request.set_name(std::string(name));
  request.set_report_only(mode == ClearMode::kReportOnly);
  Call("ClearNamespace", std::move(request),
       [done = std::move(done)](const absl::StatusOr<std::string>& answer) {
         Cleared cleared{.status = answer.status()};
         v1::ClearNamespaceResponse response;
         if (answer.ok() && !response.ParseFromString(*answer)) {
           cleared.status = absl::InternalError("an answer that is none");
         }
         for (const v1::NamespaceFacts& facts : response.cleared()) {
           cleared.epoch = std::max(
               cleared.epoch, static_cast<ClearEpoch>(facts.clear_epoch()));
         }
         cleared.pending =
             static_cast<std::size_t>(response.pending_nodes_size());
         done(cleared);
       });
}

void SimAdmin::Backup(std::function<void(absl::StatusOr<std::string>)> done) {
  Call("Backup", v1::BackupRequest(),
       [done = std::move(done)](absl::StatusOr<std::string> answer) {
         v1::BackupResponse response;
         if (answer.ok() && response.ParseFromString(*answer)) {
           answer = response.state();
         }
         done(std::move(answer));
       });
}

void SimAdmin::Restore(const std::string& state, Done done) {
  v1::RestoreRequest request;
  request.set_state(state);
  Call("Restore", std::move(request), StatusOnly(std::move(done)));
}

absl::Time SimAdmin::WallNow() const {
  return machine_->process()->clock()->WallNow();
}

void SimAdmin::AcceptRestore(
    std::function<void(absl::StatusOr<std::uint64_t>)> done) {
  Call("AcceptRestore", v1::AcceptRestoreRequest(),
       [this,
        done = std::move(done)](const absl::StatusOr<std::string>& answer) {
         v1::AcceptRestoreResponse response;
         if (!answer.ok() || !response.ParseFromString(*answer)) {
           done(answer.ok() ? absl::InternalError("an answer that is none")
                            : answer.status());
           return;
         }
         credentials_ = response.incarnation().incarnation();
         done(credentials_);
       });
}

}  // namespace firnkv
