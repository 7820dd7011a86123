#include "server/node/node_service.h"

#include <algorithm>
#include <array>
#include <utility>

#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "proto/node.pb.h"
#include "server/node/node_messages.h"

namespace firnkv {
namespace {

// Of a caller that asks how far a drain is; it asks again.
constexpr absl::Duration kLongestDrainWait = absl::Seconds(10);

std::uint64_t Millis(absl::Duration time) {
  return static_cast<std::uint64_t>(absl::ToInt64Milliseconds(time));
}

template <typename Message>
void Answer(const Message& message, ControlReply reply) {
  std::move(reply)(message.SerializeAsString());
}

}  // namespace

NodeService::NodeService(const Options& options, const Parts& parts,
                         OnDrain on_drain)
    : options_(options),
      parts_(parts),
      started_(parts.clock->Now()),
      on_drain_(std::move(on_drain)) {}

void NodeService::Refuse(const absl::Status& why, ControlReply reply) {
  if (absl::IsInvalidArgument(why)) parts_.metrics->bad_requests.Add();
  std::move(reply)(why);
}

template <typename Request>
void NodeService::Dispatch(Method<Request> method, const ControlPeer& peer,
                           std::string_view bytes, ControlReply reply) {
  Request request;
  if (bytes.size() > kMaxControlMessageBytes ||
      !request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Refuse(absl::InvalidArgumentError("the request is no message"),
                  std::move(reply));
  }
  (this->*method)(peer, request, std::move(reply));
}

void NodeService::Handle(std::string_view method, const ControlPeer& peer,
                         std::string_view request, ControlReply reply) {
  if (stopped_.load(std::memory_order_relaxed)) {
    return std::move(reply)(
        absl::UnavailableError("this run of the node serves no more"));
  }
  const std::string_view name = method.substr(method.rfind('/') + 1);
  if (name == "OpenRead") {
    Dispatch(&NodeService::OpenRead, peer, request, std::move(reply));
  } else if (name == "Release") {
    Dispatch(&NodeService::Release, peer, request, std::move(reply));
  } else if (name == "Renew") {
    Dispatch(&NodeService::Renew, peer, request, std::move(reply));
  } else if (name == "Reserve") {
    Dispatch(&NodeService::Reserve, peer, request, std::move(reply));
  } else if (name == "Commit") {
    Dispatch(&NodeService::Commit, peer, request, std::move(reply));
  } else if (name == "Abort") {
    Dispatch(&NodeService::Abort, peer, request, std::move(reply));
  } else if (name == "Exists") {
    Dispatch(&NodeService::Exists, peer, request, std::move(reply));
  } else if (name == "Remove") {
    Dispatch(&NodeService::Remove, peer, request, std::move(reply));
  } else if (name == "ReportCorrupt") {
    Dispatch(&NodeService::ReportCorrupt, peer, request, std::move(reply));
  } else if (name == "Connect") {
    Dispatch(&NodeService::Connect, peer, request, std::move(reply));
  } else if (name == "NoteRemoteReads") {
    Dispatch(&NodeService::NoteRemoteReads, peer, request, std::move(reply));
  } else if (name == "FetchCopies") {
    Dispatch(&NodeService::FetchCopies, peer, request, std::move(reply));
  } else if (name == "Drain") {
    Dispatch(&NodeService::Drain, peer, request, std::move(reply));
  } else if (name == "SetDram") {
    Dispatch(&NodeService::SetDram, peer, request, std::move(reply));
  } else if (name == "Status") {
    Dispatch(&NodeService::Status, peer, request, std::move(reply));
  } else {
    std::move(reply)(absl::UnimplementedError(StrCat("no method ", method)));
  }
}

template <typename Request>
absl::StatusOr<NodeService::Caller> NodeService::FromSession(
    const ControlPeer& peer, const Request& request) const {
  Caller caller;
  ASSIGN_OR_RETURN(caller.header, FromProto(request.header()));
  if (!peer.local) {
    return absl::PermissionDeniedError(
        "a session speaks only over the node's own socket");
  }
  const auto session = parts_.registry->Find(caller.header.session);
  if (!session) {
    return absl::UnauthenticatedError("there is no such session");
  }
  caller.session = *session;
  caller.deadline = parts_.clock->Now() + caller.header.remaining;
  return caller;
}

absl::Status NodeService::CheckRole(const RequestHeader& header,
                                    absl::Span<const Role> roles) const {
  ASSIGN_OR_RETURN(const TokenClaims claims,
                   parts_.credentials->Check(header.token));
  if (std::find(roles.begin(), roles.end(), claims.role) == roles.end()) {
    return absl::PermissionDeniedError("the token's role may not do this");
  }
  return absl::OkStatus();
}

template <typename Request>
absl::Status NodeService::FromAdministrator(const Request& request) const {
  ASSIGN_OR_RETURN(const RequestHeader header, FromProto(request.header()));
  static constexpr std::array<Role, 1> kRoles = {Role::kAdmin};
  return CheckRole(header, kRoles);
}

void NodeService::Connect(const ControlPeer&, const v1::ConnectRequest& request,
                          ControlReply reply) {
  const absl::StatusOr<Handshake> theirs = FromProto(request.handshake());
  if (!theirs.ok()) return Refuse(theirs.status(), std::move(reply));
  const Handshake ours = parts_.credentials->handshake();
  const absl::StatusOr<std::uint32_t> protocol = Agree(ours, *theirs);
  if (!protocol.ok()) return Refuse(protocol.status(), std::move(reply));
  v1::ConnectResponse response;
  ToProto(ours, response.mutable_handshake());
  response.set_agreed_protocol(*protocol);
  Answer(response, std::move(reply));
}

void NodeService::OpenRead(const ControlPeer& peer,
                           const v1::OpenReadRequest& request,
                           ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  absl::StatusOr<SessionCall> call = CallFromProto(request);
  if (!call.ok()) return Refuse(call.status(), std::move(reply));
  call->session = caller->session;
  call->deadline = caller->deadline;
  parts_.reads->StartOpen(
      *std::move(call),
      request.leading_run() ? ReadSpan::kLeadingRun : ReadSpan::kEveryBlock,
      request.for_view() ? LeaseUse::kView : LeaseUse::kCopy,
      absl::Milliseconds(request.lease_millis()),
      [reply = std::move(reply)](ReadPath::OpenAnswer answer) mutable {
        v1::OpenReadResponse response;
        ToProto(answer, &response);
        Answer(response, std::move(reply));
      });
}

void NodeService::Release(const ControlPeer& peer,
                          const v1::ReleaseRequest& request,
                          ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  const auto leases = LeasesFromProto(request);
  if (!leases.ok()) return Refuse(leases.status(), std::move(reply));
  parts_.reads->Release(caller->session, *leases);
  Answer(v1::ReleaseResponse(), std::move(reply));
}

void NodeService::Renew(const ControlPeer& peer,
                        const v1::RenewRequest& request, ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  const auto leases = LeasesFromProto(request);
  if (!leases.ok()) return Refuse(leases.status(), std::move(reply));
  v1::RenewResponse response;
  for (const LeaseTable::RenewOutcome outcome :
       parts_.reads->Renew(caller->session, *leases,
                           absl::Milliseconds(request.lease_millis()))) {
    response.mutable_results()->push_back(static_cast<char>(outcome));
  }
  Answer(response, std::move(reply));
}

void NodeService::Reserve(const ControlPeer& peer,
                          const v1::ReserveRequest& request,
                          ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  absl::StatusOr<WritePath::ReserveCall> call = CallFromProto(request);
  if (!call.ok()) return Refuse(call.status(), std::move(reply));
  call->session = caller->session;
  call->deadline = caller->deadline;
  parts_.writes->StartReserve(
      *std::move(call), [this, reply = std::move(reply)](
                            Reservations::ReserveAnswer answer) mutable {
        if (!answer.status.ok()) {
          return Refuse(answer.status, std::move(reply));
        }
        v1::ReserveResponse response;
        ToProto(answer, &response);
        Answer(response, std::move(reply));
      });
}

void NodeService::Commit(const ControlPeer& peer,
                         const v1::CommitRequest& request, ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  absl::StatusOr<WritePath::CommitCall> call = CallFromProto(request);
  if (!call.ok()) return Refuse(call.status(), std::move(reply));
  call->session = caller->session;
  call->traffic = caller->header.traffic;
  call->deadline = caller->deadline;
  parts_.writes->StartCommit(
      *std::move(call),
      [this, reply = std::move(reply)](WritePath::CommitAnswer answer) mutable {
        if (!answer.status.ok()) {
          return Refuse(answer.status, std::move(reply));
        }
        v1::CommitResponse response;
        response.set_outcomes(OutcomesToProto(answer.outcomes));
        if (std::find(answer.outcomes.begin(), answer.outcomes.end(),
                      Outcome::kCongested) != answer.outcomes.end()) {
          response.set_retry_after_millis(static_cast<std::uint32_t>(
              absl::ToInt64Milliseconds(parts_.reads->retry_after())));
        }
        Answer(response, std::move(reply));
      });
}

void NodeService::Abort(const ControlPeer& peer,
                        const v1::AbortRequest& request, ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  parts_.writes->Abort(caller->session, ReservationId{request.reservation()});
  Answer(v1::AbortResponse(), std::move(reply));
}

void NodeService::Exists(const ControlPeer& peer,
                         const v1::ExistsRequest& request, ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  absl::StatusOr<SessionCall> call = CallFromProto(request);
  if (!call.ok()) return Refuse(call.status(), std::move(reply));
  call->session = caller->session;
  call->deadline = caller->deadline;
  parts_.reads->StartExists(
      *std::move(call),
      request.leading_run() ? ReadSpan::kLeadingRun : ReadSpan::kEveryBlock,
      [reply = std::move(reply)](std::vector<Found> found) mutable {
        v1::ExistsResponse response;
        ToProto(found, &response);
        Answer(response, std::move(reply));
      });
}

void NodeService::Remove(const ControlPeer& peer,
                         const v1::NodeRemoveRequest& request,
                         ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  absl::StatusOr<SessionCall> call = CallFromProto(request);
  if (!call.ok()) return Refuse(call.status(), std::move(reply));
  call->session = caller->session;
  call->deadline = caller->deadline;
  parts_.reads->StartRemove(
      *std::move(call),
      [reply = std::move(reply)](std::vector<Outcome> outcomes) mutable {
        v1::NodeRemoveResponse response;
        response.set_outcomes(OutcomesToProto(outcomes));
        Answer(response, std::move(reply));
      });
}

void NodeService::ReportCorrupt(const ControlPeer& peer,
                                const v1::ReportCorruptRequest& request,
                                ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  absl::StatusOr<SessionCall> call = CallFromProto(request);
  if (!call.ok()) return Refuse(call.status(), std::move(reply));
  absl::StatusOr<std::vector<Generation>> generations =
      GenerationsFromProto(request);
  if (!generations.ok()) return Refuse(generations.status(), std::move(reply));
  call->session = caller->session;
  call->deadline = caller->deadline;
  parts_.reads->StartReport(
      *std::move(call), *std::move(generations),
      [reply = std::move(reply)](std::vector<Outcome> outcomes) mutable {
        v1::ReportCorruptResponse response;
        response.set_outcomes(OutcomesToProto(outcomes));
        Answer(response, std::move(reply));
      });
}

void NodeService::NoteRemoteReads(const ControlPeer& peer,
                                  const v1::NoteRemoteReadsRequest& request,
                                  ControlReply reply) {
  const absl::StatusOr<Caller> caller = FromSession(peer, request);
  if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  absl::StatusOr<Promoter::Note> note = NoteFromProto(request);
  if (!note.ok()) return Refuse(note.status(), std::move(reply));
  note->tenant = caller->session.tenant;
  parts_.promoter->Start(
      *std::move(note),
      [reply = std::move(reply)](const std::vector<std::size_t>& here) mutable {
        v1::NoteRemoteReadsResponse response;
        ToProto(here, &response);
        Answer(response, std::move(reply));
      });
}

void NodeService::FetchCopies(const ControlPeer&,
                              const v1::FetchCopiesRequest& request,
                              ControlReply reply) {
  const absl::StatusOr<RequestHeader> header = FromProto(request.header());
  if (!header.ok()) return Refuse(header.status(), std::move(reply));
  static constexpr std::array<Role, 1> kRoles = {Role::kNode};
  const absl::Status may = CheckRole(*header, kRoles);
  if (!may.ok()) return Refuse(may, std::move(reply));
  // What it took now would go with it.
  if (parts_.drainer->report().state != DrainState::kServing) {
    return Refuse(absl::UnavailableError("the node drains itself"),
                  std::move(reply));
  }
  absl::StatusOr<CopyOrder> order = OrderFromProto(request);
  if (!order.ok()) return Refuse(order.status(), std::move(reply));
  if (order->source.node == options_.address->node) {
    return Refuse(absl::InvalidArgumentError("source.node is this node"),
                  std::move(reply));
  }
  order->caller = {.tenant = {}, .is_node = true};
  // The answer has to be there before the caller's time is over.
  order->deadline = parts_.clock->Now() + header->remaining * 7 / 8;
  order->room_wait = header->remaining / 2;
  order->traffic = TrafficClass::kRebuild;
  order->trace = header->trace;
  parts_.copies->Start(
      *std::move(order),
      [this, reply = std::move(reply)](std::vector<Outcome> outcomes) mutable {
        v1::FetchCopiesResponse response;
        response.set_outcomes(OutcomesToProto(outcomes));
        if (std::find(outcomes.begin(), outcomes.end(), Outcome::kCongested) !=
            outcomes.end()) {
          response.set_retry_after_millis(static_cast<std::uint32_t>(
              absl::ToInt64Milliseconds(parts_.copies->retry_after())));
        }
        Answer(response, std::move(reply));
      });
}

void NodeService::Drain(const ControlPeer&, const v1::DrainRequest& request,
                        ControlReply reply) {
  absl::Status may = FromAdministrator(request);
  if (may.ok() && !request.report_only()) {
    may = on_drain_({.deadline = absl::Milliseconds(request.deadline_millis()),
                     .move_bytes = request.move_bytes()});
  }
  if (!may.ok()) return Refuse(may, std::move(reply));
  const absl::Duration wait =
      std::min(absl::Milliseconds(request.wait_millis()), kLongestDrainWait);
  parts_.drainer->AwaitReport(
      parts_.clock->Now() + wait,
      [reply = std::move(reply)](const DrainReport& report) mutable {
        v1::DrainResponse response;
        response.set_drain(std::string(DrainStateName(report.state)));
        response.set_planned_bytes(report.planned_bytes);
        response.set_planned_blocks(report.planned_blocks);
        response.set_moved_bytes(report.moved_bytes);
        response.set_moved_blocks(report.moved_blocks);
        response.set_left_blocks(report.left_blocks);
        response.set_left_millis(Millis(report.time_left));
        for (const std::uint64_t count : report.outcomes) {
          response.add_outcomes(count);
        }
        response.set_trouble(report.trouble);
        Answer(response, std::move(reply));
      });
}

void NodeService::SetDram(const ControlPeer&, const v1::SetDramRequest& request,
                          ControlReply reply) {
  absl::Status may = FromAdministrator(request);
  if (may.ok()) may = parts_.pool->CheckTarget(request.dram_bytes());
  if (!may.ok()) return Refuse(may, std::move(reply));
  parts_.pool->SetTarget(request.dram_bytes());
  parts_.log->Write(Severity::kNotice, "dram_target_set",
                    {{"bytes", request.dram_bytes()}});
  const PoolSnapshot pool = parts_.pool->Snapshot();
  v1::SetDramResponse response;
  response.set_dram_target_bytes(pool.target_bytes);
  response.set_dram_mapped_bytes(pool.region_bytes);
  Answer(response, std::move(reply));
}

void NodeService::Status(const ControlPeer& peer,
                         const v1::NodeStatusRequest& request,
                         ControlReply reply) {
  const absl::StatusOr<RequestHeader> header = FromProto(request.header());
  if (!header.ok()) return Refuse(header.status(), std::move(reply));
  if (header->token.empty()) {
    const absl::StatusOr<Caller> caller = FromSession(peer, request);
    if (!caller.ok()) return Refuse(caller.status(), std::move(reply));
  } else {
    static constexpr std::array<Role, 2> kRoles = {Role::kAdmin, Role::kNode};
    const absl::Status may = CheckRole(*header, kRoles);
    if (!may.ok()) return Refuse(may, std::move(reply));
  }
  const PoolSnapshot pool = parts_.pool->Snapshot();
  v1::NodeStatusResponse response;
  response.set_node(IdToProto(options_.address->node));
  response.set_epoch(static_cast<std::uint64_t>(options_.address->epoch));
  response.set_cluster(IdToProto(parts_.credentials->cluster()));
  response.set_version(options_.version);
  response.set_stream_address(options_.address->stream_address);
  response.set_dram_target_bytes(pool.target_bytes);
  response.set_dram_mapped_bytes(pool.region_bytes);
  response.set_dram_used_bytes(pool.resident_bytes);
  response.set_blocks(pool.blocks);
  response.set_sessions(parts_.registry->size());
  response.set_leases(pool.leases);
  response.set_reservations(parts_.reservations->totals().live);
  response.set_holds(pool.holds);
  response.set_evictions(pool.evicted_blocks);
  response.set_corrupt_copies(pool.corrupt_copies);
  response.set_catalog_link(std::string(LinkStateName(parts_.link->state())));
  response.set_announcements_pending(parts_.announcements->pending());
  response.set_uptime_seconds(static_cast<std::uint64_t>(
      absl::ToInt64Seconds(parts_.clock->Now() - started_)));
  for (const std::uint64_t count : parts_.metrics->Outcomes()) {
    response.add_outcomes(count);
  }
  for (const auto& [tenant, regions] : pool.regions_by_tenant) {
    const std::string name = parts_.tenants->NameOf(tenant);
    response.add_region_tenants(name.empty() ? ToHex(tenant) : name);
    response.add_region_counts(regions);
  }
  response.set_staging_bytes(parts_.staging->mapped_bytes());
  response.set_retiring_slots(pool.retiring_slots);
  response.set_dram_retiring_bytes(pool.retiring_region_bytes +
                                   pool.mapped_after_retirement_bytes);
  const DrainReport drain = parts_.drainer->report();
  response.set_drain(std::string(DrainStateName(drain.state)));
  response.set_drain_planned_bytes(drain.planned_bytes);
  response.set_drain_moved_bytes(drain.moved_bytes);
  response.set_drain_moved_blocks(drain.moved_blocks);
  response.set_drain_left_blocks(drain.left_blocks);
  response.set_drain_left_millis(Millis(drain.time_left));
  Answer(response, std::move(reply));
}

}  // namespace firnkv
