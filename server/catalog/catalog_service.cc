#include "server/catalog/catalog_service.h"

#include <string>
#include <utility>
#include <vector>

#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"

namespace firnkv {
namespace {

constexpr absl::Duration kLongestTokenLife = absl::Hours(24 * 30);

}  // namespace

std::string_view ShortMethodName(std::string_view method) {
  const std::size_t slash = method.rfind('/');
  return slash == std::string_view::npos ? method : method.substr(slash + 1);
}

const std::array<CatalogService::Method, CatalogService::kMethods>&
CatalogService::Methods() {
  static constexpr std::array<Method, kMethods> kTable = {{
      {"Connect", &CatalogService::Connect},
      {"OpenNamespace", &CatalogService::OpenNamespace},
      {"DescribeNamespaces", &CatalogService::DescribeNamespaces},
      {"DescribeTenants", &CatalogService::DescribeTenants},
      {"Register", &CatalogService::Register},
      {"KeepAlive", &CatalogService::KeepAlive},
      {"Unregister", &CatalogService::Unregister},
      {"ListPeers", &CatalogService::ListPeers},
      {"Announce", &CatalogService::Announce},
      {"CompareDigests", &CatalogService::CompareDigests},
      {"Locate", &CatalogService::Locate},
      {"Place", &CatalogService::Place},
      {"Remove", &CatalogService::Remove},
      {"MintToken", &CatalogService::MintToken},
  }};
  return kTable;
}

std::string_view CatalogService::MethodName(std::size_t method) {
  return Methods()[method].name;
}

void CatalogService::Handle(std::string_view method, const ControlPeer&,
                            std::string_view request, ControlReply reply) {
  const std::string_view name = ShortMethodName(method);
  for (std::size_t i = 0; i < kMethods; ++i) {
    if (Methods()[i].name != name) continue;
    (this->*Methods()[i].serve)(request, &stats_[i], std::move(reply));
    return;
  }
  std::move(reply)(
      absl::UnimplementedError(StrCat("the catalog has no method ", name)));
}

void CatalogService::Connect(std::string_view bytes, CallStats* stats,
                             ControlReply reply) {
  stats->calls.Add();
  // The one call without a token: who does not know the cluster yet has none.
  const auto connect = [&]() -> absl::StatusOr<std::string> {
    v1::ConnectRequest request;
    if (bytes.size() > kMaxControlMessageBytes ||
        !request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return absl::InvalidArgumentError("no ConnectRequest");
    }
    ASSIGN_OR_RETURN(const Handshake theirs, FromProto(request.handshake()));
    Handshake ours;
    ours.cluster = parts_.cluster->cluster();
    ours.test_vector = HandshakeTestVector();
    v1::ConnectResponse response;
    ASSIGN_OR_RETURN(const std::uint32_t agreed, Agree(ours, theirs));
    ToProto(ours, response.mutable_handshake());
    response.set_agreed_protocol(agreed);
    return response.SerializeAsString();
  };
  absl::StatusOr<std::string> answer = connect();
  if (!answer.ok()) stats->failures.Add();
  std::move(reply)(std::move(answer));
}

void CatalogService::OpenNamespace(std::string_view bytes, CallStats* stats,
                                   ControlReply reply) {
  parts_.calls->Run<v1::OpenNamespaceRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::OpenNamespaceRequest& request)
          -> absl::StatusOr<v1::OpenNamespaceResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kTenant}));
        Registry::Wanted wanted;
        wanted.tenant = caller.tenant;
        wanted.name = request.name();
        ASSIGN_OR_RETURN(wanted.contract, FromProto(request.contract()));
        wanted.block_bytes = request.block_bytes();
        wanted.chained = request.chained();
        ASSIGN_OR_RETURN(wanted.retention,
                         CheckRetention(request.retention_seconds()));
        wanted.strict_clear = request.strict_clear();
        ASSIGN_OR_RETURN(const Registry::Opened opened,
                         request.create()
                             ? parts_.registry->OpenOrCreate(wanted)
                             : parts_.registry->Find(wanted));
        v1::OpenNamespaceResponse response;
        ToProto(opened.record.facts, response.mutable_facts());
        response.set_created(opened.created);
        return response;
      });
}

std::optional<NamespaceFacts> CatalogService::Visible(
    const TokenClaims& caller, NamespaceId name_space) const {
  std::optional<NamespaceFacts> facts = parts_.registry->Describe(name_space);
  if (facts.has_value() && caller.role == Role::kTenant &&
      facts->tenant != caller.tenant) {
    return std::nullopt;
  }
  return facts;
}

void CatalogService::DescribeNamespaces(std::string_view bytes,
                                        CallStats* stats, ControlReply reply) {
  parts_.calls->Run<v1::DescribeNamespacesRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller,
             const v1::DescribeNamespacesRequest& request)
          -> absl::StatusOr<v1::DescribeNamespacesResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kTenant, Role::kNode}));
        ASSIGN_OR_RETURN(
            const std::vector<NamespaceId> ids,
            IdsFromProto<NamespaceId>("name_spaces", request.name_spaces()));
        v1::DescribeNamespacesResponse response;
        for (const NamespaceId id : ids) {
          const std::optional<NamespaceFacts> facts = Visible(caller, id);
          if (facts.has_value()) ToProto(*facts, response.add_facts());
        }
        return response;
      });
}

void CatalogService::DescribeTenants(std::string_view bytes, CallStats* stats,
                                     ControlReply reply) {
  parts_.calls->Run<v1::DescribeTenantsRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller,
             const v1::DescribeTenantsRequest& request)
          -> absl::StatusOr<v1::DescribeTenantsResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kNode, Role::kAdmin}));
        v1::DescribeTenantsResponse response;
        for (const std::string& name : request.names()) {
          const auto tenant = parts_.registry->FindTenant(name);
          if (!tenant.has_value()) continue;
          response.add_names(tenant->name);
          response.mutable_tenants()->append(tenant->tenant.view());
        }
        return response;
      });
}

void CatalogService::Register(std::string_view bytes, CallStats* stats,
                              ControlReply reply) {
  parts_.calls->Run<v1::RegisterRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::RegisterRequest& request) {
        return parts_.members->Register(caller, request);
      });
}

void CatalogService::KeepAlive(std::string_view bytes, CallStats* stats,
                               ControlReply reply) {
  // The first of an incarnation writes that a node was told of it (rule A9).
  parts_.calls->Run<v1::KeepAliveRequest>(
      parts_.cluster->told() ? RunsOn::kCaller : RunsOn::kStrand, bytes, stats,
      std::move(reply),
      [this](const TokenClaims& caller, const v1::KeepAliveRequest& request) {
        return parts_.members->KeepAlive(caller, request);
      });
}

void CatalogService::Unregister(std::string_view bytes, CallStats* stats,
                                ControlReply reply) {
  parts_.calls->Run<v1::UnregisterRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::UnregisterRequest& request) {
        return parts_.members->Unregister(caller, request);
      });
}

void CatalogService::ListPeers(std::string_view bytes, CallStats* stats,
                               ControlReply reply) {
  parts_.calls->Run<v1::ListPeersRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::ListPeersRequest& request) {
        return parts_.members->ListPeers(caller, request);
      });
}

void CatalogService::Announce(std::string_view bytes, CallStats* stats,
                              ControlReply reply) {
  parts_.calls->Run<v1::AnnounceRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::AnnounceRequest& request) {
        return parts_.members->Announce(caller, request);
      });
}

void CatalogService::CompareDigests(std::string_view bytes, CallStats* stats,
                                    ControlReply reply) {
  parts_.calls->Run<v1::CompareDigestsRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller,
             const v1::CompareDigestsRequest& request) {
        return parts_.members->CompareDigests(caller, request);
      });
}

void CatalogService::Locate(std::string_view bytes, CallStats* stats,
                            ControlReply reply) {
  parts_.calls->Run<v1::LocateRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::LocateRequest& request)
          -> absl::StatusOr<v1::LocateResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kTenant, Role::kNode}));
        ASSIGN_OR_RETURN(
            const NamespaceId name_space,
            IdFromProto<NamespaceId>("name_space", request.name_space()));
        ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                         KeysFromProto("keys", request.keys()));
        if (!request.anchors().empty() &&
            request.anchors().size() != request.keys().size()) {
          return absl::InvalidArgumentError(
              "keys and anchors differ in number");
        }
        v1::LocateResponse response;
        const auto facts = Visible(caller, name_space);
        if (!facts.has_value()) {
          response.set_outcomes(OutcomesToProto(
              std::vector<Outcome>(keys.size(), Outcome::kDenied)));
          return response;
        }
        response.set_clear_epoch(
            static_cast<std::uint64_t>(facts->clear_epoch));
        const ClearEpoch asked{request.clear_epoch()};
        if (asked > facts->clear_epoch) {
          // Rule C2: somebody knows more than we do; guess nothing.
          parts_.registry->NoteReported(name_space, asked);
          response.set_outcomes(OutcomesToProto(
              std::vector<Outcome>(keys.size(), Outcome::kUnavailable)));
          return response;
        }
        ASSIGN_OR_RETURN(const Locator::Answer answer,
                         parts_.locator->Locate(
                             *facts, keys,
                             request.leading_run() ? Entries::Want::kLeadingRun
                                                   : Entries::Want::kEveryKey));
        response.set_outcomes(OutcomesToProto(answer.outcomes));
        for (const std::uint32_t count : answer.counts) {
          response.add_location_counts(count);
        }
        std::vector<LocationRow> rows;
        rows.reserve(answer.copies.size());
        for (const Locator::Copy& copy : answer.copies) {
          rows.push_back({copy.node, copy.tier, copy.generation, copy.length});
        }
        ToProto(rows, response.mutable_locations());
        for (const NodeAddress& node : answer.nodes) {
          ToProto(node, response.add_nodes());
        }
        return response;
      });
}

absl::StatusOr<std::vector<Placer::Block>> CatalogService::BlocksOf(
    const v1::PlaceRequest& request) {
  ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                   KeysFromProto("keys", request.keys()));
  ASSIGN_OR_RETURN(const std::vector<BlockKey> parents,
                   KeysFromProto("parents", request.parents()));
  ASSIGN_OR_RETURN(const std::vector<BlockKey> anchors,
                   KeysFromProto("anchors", request.anchors()));
  if (keys.empty() || parents.size() != keys.size() ||
      anchors.size() != keys.size() ||
      static_cast<std::size_t>(request.lengths_size()) != keys.size()) {
    return absl::InvalidArgumentError(
        "keys, parents, anchors and lengths differ in number, or are none");
  }
  std::vector<Placer::Block> blocks;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t length = request.lengths(static_cast<int>(i));
    if (length == 0 || length > kLargestBlockBytes) {
      return absl::InvalidArgumentError(
          StrCat("a block of ", length, " bytes"));
    }
    blocks.push_back({.key = keys[i],
                      .parent = parents[i],
                      .anchor = anchors[i],
                      .length = length});
  }
  return blocks;
}

void CatalogService::Place(std::string_view bytes, CallStats* stats,
                           ControlReply reply) {
  parts_.calls->Run<v1::PlaceRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::PlaceRequest& request)
          -> absl::StatusOr<v1::PlaceResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kTenant}));
        ASSIGN_OR_RETURN(
            const NamespaceId name_space,
            IdFromProto<NamespaceId>("name_space", request.name_space()));
        ASSIGN_OR_RETURN(const std::vector<Placer::Block> blocks,
                         BlocksOf(request));
        ASSIGN_OR_RETURN(
            const std::vector<NodeId> excluded,
            IdsFromProto<NodeId>("excluded_nodes", request.excluded_nodes()));
        const auto facts = Visible(caller, name_space);
        if (!facts.has_value()) {
          return absl::PermissionDeniedError("no such namespace");
        }
        const ClearEpoch asked{request.clear_epoch()};
        if (asked > facts->clear_epoch) {
          // Rule C2, as for Locate.
          parts_.registry->NoteReported(name_space, asked);
          return absl::UnavailableError(
              "the catalog knows less than its caller");
        }
        ASSIGN_OR_RETURN(const Placer::Answer answer,
                         parts_.placer->Place(*facts, blocks, excluded));
        v1::PlaceResponse response;
        response.set_clear_epoch(
            static_cast<std::uint64_t>(facts->clear_epoch));
        for (const std::uint32_t place : answer.places) {
          response.add_node_indexes(place);
        }
        for (const NodeAddress& node : answer.nodes) {
          ToProto(node, response.add_nodes());
        }
        return response;
      });
}

void CatalogService::Remove(std::string_view bytes, CallStats* stats,
                            ControlReply reply) {
  parts_.calls->Run<v1::CatalogRemoveRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::CatalogRemoveRequest& request)
          -> absl::StatusOr<v1::CatalogRemoveResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kTenant, Role::kNode}));
        ASSIGN_OR_RETURN(
            const NamespaceId name_space,
            IdFromProto<NamespaceId>("name_space", request.name_space()));
        ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                         KeysFromProto("keys", request.keys()));
        v1::CatalogRemoveResponse response;
        const auto facts = Visible(caller, name_space);
        if (!facts.has_value()) {
          response.set_outcomes(OutcomesToProto(
              std::vector<Outcome>(keys.size(), Outcome::kDenied)));
          return response;
        }
        ASSIGN_OR_RETURN(const Locator::Removed removed,
                         parts_.locator->Remove(*facts, keys));
        response.set_outcomes(OutcomesToProto(removed.outcomes));
        response.set_pending(removed.pending);
        return response;
      });
}

void CatalogService::MintToken(std::string_view bytes, CallStats* stats,
                               ControlReply reply) {
  parts_.calls->Run<v1::MintTokenRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::MintTokenRequest& request)
          -> absl::StatusOr<v1::MintTokenResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kAdmin, Role::kNode}));
        if (request.role() < static_cast<std::uint32_t>(Role::kTenant) ||
            request.role() > static_cast<std::uint32_t>(Role::kAdmin)) {
          return absl::InvalidArgumentError("unknown role");
        }
        const Role role{static_cast<std::uint8_t>(request.role())};
        // A node speaks for its sessions' tenants, for nobody else.
        if (role != Role::kTenant) {
          RETURN_IF_ERROR(Require(caller, {Role::kAdmin}));
        }
        TenantId tenant;
        if (role == Role::kTenant) {
          const auto record =
              parts_.registry->FindTenant(request.tenant_name());
          if (!record.has_value()) {
            return absl::NotFoundError(
                StrCat("there is no tenant \"", request.tenant_name(), "\""));
          }
          tenant = record->tenant;
        }
        const absl::Duration longest =
            caller.role == Role::kAdmin ? kLongestTokenLife : kTokenLife;
        const absl::Duration life = request.life_seconds() == 0
                                        ? kTokenLife
                                        : absl::Seconds(request.life_seconds());
        if (life > longest) {
          return absl::InvalidArgumentError(
              StrCat("a token lives at most ", absl::FormatDuration(longest)));
        }
        v1::MintTokenResponse response;
        response.set_token(parts_.authenticator->Mint(role, tenant, life));
        return response;
      });
}

}  // namespace firnkv
