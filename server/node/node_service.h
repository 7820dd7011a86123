// NodeService: encoded calls in, plain types out; validates, calls one method,
// answers. One answer a key, whatever happens to the key; a call that is wrong
// as a whole is INVALID_ARGUMENT with the field, and changes nothing.
//
// Who may call (rule S3): data calls need a live session, and come over the
// node's own unix socket, where alone a session id counts. Status is for
// sessions, and, with a token, for administrators and nodes; Drain and SetDram
// only for administrators, FetchCopies only for nodes. Drain, asked to wait, is
// answered later.
//
// Does not know: how anything is done.
//
// Threading. Thread-safe.
//
// Ownership. Owned by Node; everything in Parts outlives it. Whoever serves it
// must have ended its calls before the node is destroyed.

#ifndef FIRNKV_SERVER_NODE_NODE_SERVICE_H_
#define FIRNKV_SERVER_NODE_NODE_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/control_channel.h"
#include "proto/base/clock.h"
#include "proto/base/node_address.h"
#include "proto/base/request.h"
#include "server/base/log.h"
#include "server/node/catalog_link.h"
#include "server/node/copy_fetcher.h"
#include "server/node/drainer.h"
#include "server/node/node_credentials.h"
#include "server/node/node_metrics.h"
#include "server/node/promoter.h"
#include "server/node/read_path.h"
#include "server/node/session_registry.h"
#include "server/node/tenant_directory.h"
#include "server/node/write_path.h"

namespace firnkv {

namespace v1 {
class AbortRequest;
class CommitRequest;
class ConnectRequest;
class DrainRequest;
class ExistsRequest;
class FetchCopiesRequest;
class NodeRemoveRequest;
class NodeStatusRequest;
class NoteRemoteReadsRequest;
class OpenReadRequest;
class ReleaseRequest;
class RenewRequest;
class ReportCorruptRequest;
class ReserveRequest;
class SetDramRequest;
}  // namespace v1

class NodeService : public ControlService {
 public:
  struct Options {
    // This run's; outlives the service.
    const NodeAddress* address = nullptr;
    std::string version;
  };
  struct Parts {
    const Clock* clock = nullptr;
    Logger* log = nullptr;
    NodeCredentials* credentials = nullptr;
    SessionRegistry* registry = nullptr;
    TenantDirectory* tenants = nullptr;
    ReadPath* reads = nullptr;
    WritePath* writes = nullptr;
    CopyFetcher* copies = nullptr;
    Promoter* promoter = nullptr;
    // For Status and SetDram.
    DramPool* pool = nullptr;
    // For Status and Drain.
    Drainer* drainer = nullptr;
    Reservations* reservations = nullptr;
    Staging* staging = nullptr;
    AnnouncementLog* announcements = nullptr;
    CatalogLink* link = nullptr;
    NodeMetrics* metrics = nullptr;
  };

  // `on_drain` runs for each Drain of an administrator that is more than a
  // question, says whether it will be done, and must not block.
  using OnDrain = absl::AnyInvocable<absl::Status(const DrainPlan&)>;
  NodeService(const Options& options, const Parts& parts, OnDrain on_drain);

  std::string_view service() const override { return "firnkv.v1.NodeService"; }
  void Handle(std::string_view method, const ControlPeer& peer,
              std::string_view request, ControlReply reply) override;

  // Calls from now on are UNAVAILABLE: superseded, or closing.
  void StopServing() { stopped_.store(true, std::memory_order_relaxed); }

 private:
  // A call as far as it has been checked.
  struct Caller {
    RequestHeader header;
    LiveSession session;
    BootTime deadline;
  };

  template <typename Request>
  using Method = void (NodeService::*)(const ControlPeer&, const Request&,
                                       ControlReply);
  // Decodes, and calls `method`.
  template <typename Request>
  void Dispatch(Method<Request> method, const ControlPeer& peer,
                std::string_view bytes, ControlReply reply);
  void Refuse(const absl::Status& why, ControlReply reply);

  // A live session's call.
  template <typename Request>
  absl::StatusOr<Caller> FromSession(const ControlPeer& peer,
                                     const Request& request) const;
  // A token's of one of these roles.
  absl::Status CheckRole(const RequestHeader& header,
                         absl::Span<const Role> roles) const;
  template <typename Request>
  absl::Status FromAdministrator(const Request& request) const;

  void Connect(const ControlPeer& peer, const v1::ConnectRequest& request,
               ControlReply reply);
  void OpenRead(const ControlPeer& peer, const v1::OpenReadRequest& request,
                ControlReply reply);
  void Release(const ControlPeer& peer, const v1::ReleaseRequest& request,
               ControlReply reply);
  void Renew(const ControlPeer& peer, const v1::RenewRequest& request,
             ControlReply reply);
  void Reserve(const ControlPeer& peer, const v1::ReserveRequest& request,
               ControlReply reply);
  void Commit(const ControlPeer& peer, const v1::CommitRequest& request,
              ControlReply reply);
  void Abort(const ControlPeer& peer, const v1::AbortRequest& request,
             ControlReply reply);
  void Exists(const ControlPeer& peer, const v1::ExistsRequest& request,
              ControlReply reply);
  void Remove(const ControlPeer& peer, const v1::NodeRemoveRequest& request,
              ControlReply reply);
  void ReportCorrupt(const ControlPeer& peer,
                     const v1::ReportCorruptRequest& request,
                     ControlReply reply);
  void NoteRemoteReads(const ControlPeer& peer,
                       const v1::NoteRemoteReadsRequest& request,
                       ControlReply reply);
  void FetchCopies(const ControlPeer& peer,
                   const v1::FetchCopiesRequest& request, ControlReply reply);
  void Drain(const ControlPeer& peer, const v1::DrainRequest& request,
             ControlReply reply);
  void SetDram(const ControlPeer& peer, const v1::SetDramRequest& request,
               ControlReply reply);
  void Status(const ControlPeer& peer, const v1::NodeStatusRequest& request,
              ControlReply reply);

  const Options options_;
  const Parts parts_;
  const BootTime started_;
  OnDrain on_drain_;
  // Relaxed: a call more or less does not matter.
  std::atomic<bool> stopped_{false};
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_SERVICE_H_
