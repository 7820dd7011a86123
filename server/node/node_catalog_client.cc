#include "server/node/node_catalog_client.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"

namespace firnkv {
namespace {

// A lease outside of these is none that we could live with: shorter than a
// scheduling delay, or so long that a dead node would haunt the cluster.
constexpr absl::Duration kShortestLease = absl::Milliseconds(10);
constexpr absl::Duration kLongestLease = absl::Minutes(10);

// Of one KeepAlive's answer: 4 MiB of them.
constexpr std::size_t kMaxRemovals = 64 * 1024;

// Copies of one block that are looked at.
constexpr std::size_t kMaxLocationsAKey = 64;

absl::Status Malformed(std::string_view what) {
  return absl::InternalError(
      StrCat("the catalog's answer is malformed: ", what));
}

bool ReadLease(std::uint32_t millis, absl::Duration* lease) {
  *lease = absl::Milliseconds(millis);
  return *lease >= kShortestLease && *lease <= kLongestLease;
}

// What the catalog says about itself must be whole: an incarnation of zeros
// would pass for "none seen".
absl::StatusOr<Incarnation> ReadIncarnation(const v1::Incarnation& from) {
  ASSIGN_OR_RETURN(const Incarnation incarnation, FromProto(from));
  if (incarnation.random_id.IsZero()) return Malformed("incarnation");
  return incarnation;
}

absl::StatusOr<ClusterId> ReadCluster(const v1::Handshake& from) {
  ASSIGN_OR_RETURN(const Handshake handshake, FromProto(from));
  if (handshake.cluster.IsZero()) return Malformed("cluster");
  return handshake.cluster;
}

// A catalog never knows a namespace without an owner or an epoch.
absl::StatusOr<NamespaceFacts> ReadNamespace(const v1::NamespaceFacts& from) {
  ASSIGN_OR_RETURN(NamespaceFacts facts, FromProto(from));
  if (facts.name_space.IsZero() || facts.tenant.IsZero() ||
      facts.clear_epoch == ClearEpoch::kUnknown) {
    return Malformed("facts");
  }
  return facts;
}

absl::StatusOr<ClusterId> DecodeConnect(const v1::ConnectResponse& from) {
  return ReadCluster(from.handshake());
}

absl::StatusOr<NodeCatalogClient::Registered> DecodeRegister(
    const v1::RegisterResponse& from) {
  NodeCatalogClient::Registered to;
  ASSIGN_OR_RETURN(to.registration, IdFromProto<RegistrationId>(
                                        "registration", from.registration()));
  if (to.registration.IsZero()) return Malformed("registration");
  if (!ReadLease(from.lease_millis(), &to.lease)) return Malformed("lease");
  ASSIGN_OR_RETURN(to.incarnation, ReadIncarnation(from.incarnation()));
  ASSIGN_OR_RETURN(to.cluster, ReadCluster(from.handshake()));
  to.namespace_cursor = from.namespace_cursor();
  if (from.kept()) {
    to.kept = NodeCatalogClient::Registered::Kept{};
    ASSIGN_OR_RETURN(to.kept->registration,
                     IdFromProto<RegistrationId>("kept_registration",
                                                 from.kept_registration()));
    to.kept->applied = from.kept_applied();
  }
  return to;
}

absl::Status ReadRemovals(const v1::KeepAliveResponse& from,
                          std::vector<NodeCatalogClient::Removal>* to) {
  ASSIGN_OR_RETURN(
      const std::vector<NamespaceId> name_spaces,
      IdsFromProto<NamespaceId>("remove_name_spaces", from.remove_name_spaces(),
                                kMaxRemovals));
  ASSIGN_OR_RETURN(
      const std::vector<BlockKey> keys,
      IdsFromProto<BlockKey>("remove_keys", from.remove_keys(), kMaxRemovals));
  const auto count = static_cast<std::size_t>(from.remove_generations_size());
  if (name_spaces.size() != count || keys.size() != count) {
    return Malformed("removals");
  }
  for (std::size_t i = 0; i < count; ++i) {
    to->push_back({.block = {name_spaces[i], keys[i]},
                   .generation = Generation{
                       from.remove_generations(static_cast<int>(i))}});
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeCatalogClient::KeptAlive> DecodeKeepAlive(
    const v1::KeepAliveResponse& from) {
  NodeCatalogClient::KeptAlive to;
  if (!ReadLease(from.lease_millis(), &to.lease)) return Malformed("lease");
  ASSIGN_OR_RETURN(to.incarnation, ReadIncarnation(from.incarnation()));
  for (const v1::NamespaceFacts& one : from.changed()) {
    ASSIGN_OR_RETURN(NamespaceFacts facts, ReadNamespace(one));
    to.changed.push_back(std::move(facts));
  }
  to.namespace_cursor = from.namespace_cursor();
  RETURN_IF_ERROR(ReadRemovals(from, &to.removals));
  to.removals_number = from.removals();
  return to;
}

absl::StatusOr<NodeCatalogClient::Unregistered> DecodeUnregister(
    const v1::UnregisterResponse&) {
  return NodeCatalogClient::Unregistered{};
}

absl::StatusOr<std::vector<NodeCatalogClient::Peer>> DecodeListPeers(
    const v1::ListPeersResponse& from) {
  const int count = from.nodes_size();
  if (from.dram_bytes_size() != count || from.dram_used_bytes_size() != count) {
    return Malformed("peers");
  }
  std::vector<NodeCatalogClient::Peer> to;
  for (int i = 0; i < count; ++i) {
    NodeCatalogClient::Peer peer;
    ASSIGN_OR_RETURN(peer.address, FromProto(from.nodes(i)));
    peer.dram_bytes = from.dram_bytes(i);
    peer.dram_used_bytes = from.dram_used_bytes(i);
    to.push_back(std::move(peer));
  }
  return to;
}

absl::StatusOr<NodeCatalogClient::Announced> DecodeAnnounce(
    const v1::AnnounceResponse& from) {
  NodeCatalogClient::Announced to;
  to.applied = from.applied();
  ASSIGN_OR_RETURN(
      const std::vector<Outcome> outcomes,
      OutcomesFromProto(from.refused_outcomes(),
                        static_cast<std::size_t>(from.refused_size())));
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    to.refused.push_back({from.refused(static_cast<int>(i)), outcomes[i]});
  }
  return to;
}

absl::StatusOr<NodeCatalogClient::Compared> DecodeCompareDigests(
    const v1::CompareDigestsResponse& from) {
  NodeCatalogClient::Compared to;
  to.applied = from.applied();
  to.loading = from.loading();
  to.different.assign(from.different().begin(), from.different().end());
  const bool rising =
      std::adjacent_find(to.different.begin(), to.different.end(),
                         std::greater_equal<>()) == to.different.end();
  if (!rising) return Malformed("different");
  return to;
}

absl::StatusOr<NodeCatalogClient::Sources> DecodeLocate(
    const v1::LocateResponse& from) {
  const std::size_t wanted = std::min(from.outcomes().size(), kMaxBatchKeys);
  ASSIGN_OR_RETURN(const std::vector<Outcome> outcomes,
                   OutcomesFromProto(from.outcomes(), wanted));
  std::vector<NodeAddress> nodes;
  for (const v1::NodeAddress& one : from.nodes()) {
    ASSIGN_OR_RETURN(NodeAddress address, FromProto(one));
    nodes.push_back(std::move(address));
  }
  ASSIGN_OR_RETURN(
      const std::vector<LocationRow> rows,
      FromProto(from.locations(), nodes.size(), wanted * kMaxLocationsAKey));
  NodeCatalogClient::Sources to(wanted);
  std::size_t row = 0;
  int hit = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    if (outcomes[i] != Outcome::kHit) continue;
    if (hit == from.location_counts_size()) return Malformed("location_counts");
    const std::uint32_t count = from.location_counts(hit++);
    if (count > rows.size() - row) return Malformed("location_counts");
    for (std::uint32_t n = 0; n < count; ++n, ++row) {
      if (rows[row].tier != kDramTier) continue;
      to[i].push_back(nodes[rows[row].node]);
    }
  }
  return to;
}

absl::StatusOr<std::vector<NamespaceFacts>> DecodeDescribeNamespaces(
    const v1::DescribeNamespacesResponse& from) {
  std::vector<NamespaceFacts> to;
  for (const v1::NamespaceFacts& one : from.facts()) {
    ASSIGN_OR_RETURN(NamespaceFacts facts, ReadNamespace(one));
    to.push_back(std::move(facts));
  }
  return to;
}

absl::StatusOr<NodeCatalogClient::Tenants> DecodeDescribeTenants(
    const v1::DescribeTenantsResponse& from) {
  ASSIGN_OR_RETURN(const std::vector<TenantId> ids,
                   IdsFromProto<TenantId>("tenants", from.tenants()));
  if (ids.size() != static_cast<std::size_t>(from.names_size())) {
    return Malformed("tenants");
  }
  NodeCatalogClient::Tenants to;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    to.emplace_back(from.names(static_cast<int>(i)), ids[i]);
  }
  return to;
}

// Whose call it is: the node, its run and its registration.
template <typename Call, typename Request>
void SetMember(const Call& call, Request* request) {
  request->set_node(IdToProto(call.node));
  request->set_epoch(static_cast<std::uint64_t>(call.epoch));
  request->set_registration(IdToProto(call.registration));
}

// A batch names each (namespace, clear epoch) once; entries name it by index.
void WriteEntries(const std::vector<AnnouncedEntry>& entries,
                  v1::AnnounceRequest* to) {
  CHECK(entries.size() <= kMaxAnnouncementEntries);
  absl::flat_hash_map<std::pair<NamespaceId, std::uint64_t>, std::uint32_t>
      indexes;
  std::vector<BlockRow> rows;
  rows.reserve(entries.size());
  for (const AnnouncedEntry& entry : entries) {
    const auto epoch = static_cast<std::uint64_t>(entry.clear_epoch);
    const auto [it, is_new] =
        indexes.try_emplace(std::pair(entry.block.name_space, epoch),
                            static_cast<std::uint32_t>(indexes.size()));
    if (is_new) {
      to->mutable_name_spaces()->append(entry.block.name_space.view());
      to->add_clear_epochs(epoch);
    }
    to->add_name_space_indexes(it->second);
    to->mutable_operations()->push_back(static_cast<char>(entry.operation));
    to->add_generations(static_cast<std::uint64_t>(entry.generation));
    to->mutable_tiers()->push_back(static_cast<char>(kDramTier));
    rows.push_back({entry.block.key, entry.place, entry.length});
  }
  ToProto(rows, to->mutable_blocks());
}

}  // namespace

NodeCatalogClient::NodeCatalogClient(std::unique_ptr<ControlChannel> channel,
                                     const NodeCredentials* credentials)
    : credentials_(credentials), channel_(std::move(channel)) {
  CHECK(channel_ != nullptr);
}

NodeCatalogClient::~NodeCatalogClient() = default;

void NodeCatalogClient::Close() { channel_.reset(); }

template <typename Response, typename Answer, typename Request>
void NodeCatalogClient::Call(std::string_view method, Request request,
                             absl::Duration timeout,
                             absl::StatusOr<Answer> (*decode)(const Response&),
                             Done<Answer> done) {
  // Closing: an answer that was just cancelled may ask once more.
  if (channel_ == nullptr) {
    return std::move(done)(absl::CancelledError("the node is closing"));
  }
  ToProto(RequestHeader{.remaining = timeout,
                        .traffic = TrafficClass::kForeground,
                        .trace = {},
                        .session = {},
                        .token = credentials_->NodeToken()},
          request.mutable_header());
  channel_->StartCall(StrCat("/firnkv.v1.CatalogService/", method),
                      request.SerializeAsString(), timeout,
                      [decode, done = std::move(done)](
                          absl::StatusOr<std::string> response) mutable {
                        if (!response.ok())
                          return std::move(done)(response.status());
                        Response decoded;
                        if (!decoded.ParseFromString(*response)) {
                          return std::move(done)(Malformed("not a message"));
                        }
                        std::move(done)(decode(decoded));
                      });
}

void NodeCatalogClient::StartConnect(absl::Duration timeout,
                                     Done<ClusterId> done) {
  v1::ConnectRequest request;
  ToProto(credentials_->handshake(), request.mutable_handshake());
  Call("Connect", std::move(request), timeout, &DecodeConnect, std::move(done));
}

void NodeCatalogClient::StartRegister(const RegisterCall& call,
                                      absl::Duration timeout,
                                      Done<Registered> done) {
  v1::RegisterRequest request;
  ToProto(credentials_->handshake(), request.mutable_handshake());
  ToProto(call.address, request.mutable_node());
  request.set_predecessor_epoch(static_cast<std::uint64_t>(call.predecessor));
  request.set_dram_bytes(call.dram_bytes);
  ToProto(call.seen, request.mutable_seen());
  request.set_version(call.version);
  Call("Register", std::move(request), timeout, &DecodeRegister,
       std::move(done));
}

void NodeCatalogClient::StartKeepAlive(const KeepAliveCall& call,
                                       absl::Duration timeout,
                                       Done<KeptAlive> done) {
  v1::KeepAliveRequest request;
  SetMember(call, &request);
  request.set_namespace_cursor(call.namespace_cursor);
  request.set_dram_used_bytes(call.dram_used_bytes);
  request.set_dram_bytes(call.dram_bytes);
  request.set_blocks(call.blocks);
  request.set_removals_done(call.removals_done);
  request.set_applied(call.applied);
  request.set_drained_cursor(call.drained_cursor);
  ToProto(call.seen, request.mutable_seen());
  Call("KeepAlive", std::move(request), timeout, &DecodeKeepAlive,
       std::move(done));
}

void NodeCatalogClient::StartUnregister(const UnregisterCall& call,
                                        absl::Duration timeout,
                                        Done<Unregistered> done) {
  v1::UnregisterRequest request;
  SetMember(call, &request);
  Call("Unregister", std::move(request), timeout, &DecodeUnregister,
       std::move(done));
}

void NodeCatalogClient::StartListPeers(NodeId asker, absl::Duration timeout,
                                       Done<std::vector<Peer>> done) {
  v1::ListPeersRequest request;
  request.set_node(IdToProto(asker));
  Call("ListPeers", std::move(request), timeout, &DecodeListPeers,
       std::move(done));
}

void NodeCatalogClient::StartAnnounce(const AnnounceCall& call,
                                      absl::Duration timeout,
                                      Done<Announced> done) {
  v1::AnnounceRequest request;
  SetMember(call, &request);
  request.set_number(call.number);
  request.set_kind(static_cast<v1::AnnounceRequest::Kind>(call.kind));
  WriteEntries(call.entries, &request);
  request.mutable_buckets()->Add(call.buckets.begin(), call.buckets.end());
  Call("Announce", std::move(request), timeout, &DecodeAnnounce,
       std::move(done));
}

void NodeCatalogClient::StartCompareDigests(const CompareCall& call,
                                            absl::Duration timeout,
                                            Done<Compared> done) {
  v1::CompareDigestsRequest request;
  SetMember(call, &request);
  request.set_number(call.number);
  request.mutable_groups()->Add(call.groups.begin(), call.groups.end());
  request.mutable_digests()->Add(call.digests.begin(), call.digests.end());
  Call("CompareDigests", std::move(request), timeout, &DecodeCompareDigests,
       std::move(done));
}

void NodeCatalogClient::StartLocate(const LocateCall& call,
                                    absl::Duration timeout,
                                    Done<Sources> done) {
  v1::LocateRequest request;
  request.set_name_space(IdToProto(call.name_space));
  request.set_clear_epoch(static_cast<std::uint64_t>(call.clear_epoch));
  request.set_keys(KeysToProto(call.keys));
  request.set_anchors(KeysToProto(call.anchors));
  Done<Sources> checked = [keys = call.keys.size(), done = std::move(done)](
                              absl::StatusOr<Sources> answer) mutable {
    if (answer.ok() && answer->size() != keys) answer = Malformed("outcomes");
    std::move(done)(std::move(answer));
  };
  Call("Locate", std::move(request), timeout, &DecodeLocate,
       std::move(checked));
}

void NodeCatalogClient::StartDescribeNamespaces(
    const std::vector<NamespaceId>& name_spaces, absl::Duration timeout,
    Done<std::vector<NamespaceFacts>> done) {
  v1::DescribeNamespacesRequest request;
  request.set_name_spaces(IdsToProto<NamespaceId>(name_spaces));
  Call("DescribeNamespaces", std::move(request), timeout,
       &DecodeDescribeNamespaces, std::move(done));
}

void NodeCatalogClient::StartDescribeTenants(
    const std::vector<std::string>& names, absl::Duration timeout,
    Done<Tenants> done) {
  v1::DescribeTenantsRequest request;
  for (const std::string& name : names) request.add_names(name);
  Call("DescribeTenants", std::move(request), timeout, &DecodeDescribeTenants,
       std::move(done));
}

}  // namespace firnkv
