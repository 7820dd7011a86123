#include "tests/server/node/fake_catalog.h"

#include <iterator>

#include "proto/base/check.h"
#include "proto/base/copy_digest.h"
#include "proto/base/request.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"

namespace firnkv {
namespace {

template <typename Request>
Request Parse(std::string_view bytes) {
  Request request;
  CHECK(request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  return request;
}

}  // namespace

FakeCatalog::FakeCatalog(const ClusterSecret& secret, const Clock* clock)
    : secret_(secret), clock_(clock) {
  cluster = ClusterId::Make(&random_);
  incarnation.incarnation = 3;
  incarnation.random_id = decltype(incarnation.random_id)::Make(&random_);
  incarnation.sequence = 10;
}

TenantId FakeCatalog::AddTenant(const std::string& name) {
  return tenants_[name] = TenantId::Make(&random_);
}

NamespaceFacts FakeCatalog::AddNamespace(const std::string& tenant) {
  NamespaceFacts facts;
  facts.name_space = NamespaceId::Make(&random_);
  facts.tenant = tenants_.at(tenant);
  facts.tenant_name = tenant;
  facts.name = "granite";
  facts.version = 1;
  facts.digest = IdentityDigest::Make(&random_);
  facts.clear_epoch = ClearEpoch{1};
  name_spaces[facts.name_space] = facts;
  return facts;
}

void FakeCatalog::Clear(NamespaceId id) {
  NamespaceFacts& facts = name_spaces.at(id);
  facts.clear_epoch =
      ClearEpoch{static_cast<std::uint64_t>(facts.clear_epoch) + 1};
  changed_at_[id] = ++changes_;
  ++incarnation.sequence;
}

void FakeCatalog::Handle(std::string_view method, const ControlPeer&,
                         std::string_view request, ControlReply reply) {
  const std::string name(method.substr(method.rfind('/') + 1));
  ++calls[name];
  if (silent) {
    unanswered_.push_back(std::move(reply));
    return;
  }
  auto& failures = failures_[name];
  if (!failures.empty()) {
    const absl::Status status = failures.front();
    failures.pop_front();
    return std::move(reply)(status);
  }
  absl::StatusOr<std::string> answer = Serve(name, request);
  if (loses_answers) {
    unanswered_.push_back(std::move(reply));
    return;
  }
  std::move(reply)(std::move(answer));
}

absl::Status FakeCatalog::CheckNode(const v1::RequestHeader& header) const {
  ASSIGN_OR_RETURN(const TokenClaims claims,
                   CheckToken(header.token(), cluster, secret_,
                              incarnation.credentials, clock_->WallNow()));
  if (claims.role == Role::kNode) return absl::OkStatus();
  return absl::PermissionDeniedError("not a node's");
}

absl::StatusOr<std::string> FakeCatalog::Serve(std::string_view method,
                                               std::string_view bytes) {
  if (method == "Connect") {
    v1::ConnectResponse response;
    ToProto(Handshake{.cluster = cluster, .test_vector = HandshakeTestVector()},
            response.mutable_handshake());
    return response.SerializeAsString();
  }
  if (method == "Register") return Register(Parse<v1::RegisterRequest>(bytes));
  if (method == "KeepAlive") {
    return KeepAlive(Parse<v1::KeepAliveRequest>(bytes));
  }
  if (method == "Announce") return Announce(Parse<v1::AnnounceRequest>(bytes));
  if (method == "Locate") return Locate(Parse<v1::LocateRequest>(bytes));
  if (method == "Unregister") {
    return Unregister(Parse<v1::UnregisterRequest>(bytes));
  }
  if (method == "ListPeers") {
    return ListPeers(Parse<v1::ListPeersRequest>(bytes));
  }
  if (method == "CompareDigests") {
    return Compare(Parse<v1::CompareDigestsRequest>(bytes));
  }
  if (method == "DescribeNamespaces") {
    const auto request = Parse<v1::DescribeNamespacesRequest>(bytes);
    RETURN_IF_ERROR(CheckNode(request.header()));
    ASSIGN_OR_RETURN(
        const std::vector<NamespaceId> ids,
        IdsFromProto<NamespaceId>("name_spaces", request.name_spaces()));
    v1::DescribeNamespacesResponse response;
    for (const NamespaceId& id : ids) {
      const auto it = name_spaces.find(id);
      if (it != name_spaces.end()) ToProto(it->second, response.add_facts());
    }
    return response.SerializeAsString();
  }
  CHECK(method == "DescribeTenants");
  const auto request = Parse<v1::DescribeTenantsRequest>(bytes);
  RETURN_IF_ERROR(CheckNode(request.header()));
  v1::DescribeTenantsResponse response;
  for (const std::string& name : request.names()) {
    const auto it = tenants_.find(name);
    if (it == tenants_.end()) continue;
    response.add_names(name);
    response.mutable_tenants()->append(it->second.view());
  }
  return response.SerializeAsString();
}

absl::StatusOr<std::string> FakeCatalog::Locate(
    const v1::LocateRequest& request) {
  RETURN_IF_ERROR(CheckNode(request.header()));
  v1::LocateResponse response;
  std::vector<LocationRow> rows;
  ASSIGN_OR_RETURN(const std::vector<BlockKey> keys,
                   KeysFromProto("keys", request.keys()));
  for (const BlockKey& key : keys) {
    const auto it = located.find(key);
    const bool known = it != located.end();
    response.mutable_outcomes()->push_back(
        static_cast<char>(known ? Outcome::kHit : Outcome::kMiss));
    if (!known) continue;
    response.add_location_counts(1);
    rows.push_back({.node = static_cast<std::uint32_t>(response.nodes_size())});
    ToProto(it->second, response.add_nodes());
  }
  ToProto(rows, response.mutable_locations());
  return response.SerializeAsString();
}

absl::StatusOr<std::string> FakeCatalog::Register(
    const v1::RegisterRequest& request) {
  RETURN_IF_ERROR(CheckNode(request.header()));
  registrations.push_back(request);
  v1::RegisterResponse response;
  if (keeps && complete_) {
    response.set_kept(true);
    response.set_kept_registration(IdToProto(last_registration_));
    response.set_kept_applied(applied_);
  } else {
    complete_ = false;
  }
  registration_ = last_registration_ = RegistrationId::Make(&random_);
  applied_ = 0;
  response.set_registration(IdToProto(registration_));
  response.set_lease_millis(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(lease)));
  ToProto(incarnation, response.mutable_incarnation());
  ToProto(Handshake{.cluster = answers_as.IsZero() ? cluster : answers_as,
                    .test_vector = HandshakeTestVector()},
          response.mutable_handshake());
  response.set_namespace_cursor(changes_);
  return response.SerializeAsString();
}

absl::StatusOr<std::string> FakeCatalog::Unregister(
    const v1::UnregisterRequest& request) {
  RETURN_IF_ERROR(CheckNode(request.header()));
  if (request.registration() != registration_.view()) {
    return absl::NotFoundError("no such registration");
  }
  departures.push_back(request);
  registration_ = RegistrationId{};
  published.clear();
  return v1::UnregisterResponse().SerializeAsString();
}

absl::StatusOr<std::string> FakeCatalog::ListPeers(
    const v1::ListPeersRequest& request) {
  RETURN_IF_ERROR(CheckNode(request.header()));
  v1::ListPeersResponse response;
  for (const Peer& peer : peers) {
    ToProto(peer.address, response.add_nodes());
    response.add_dram_bytes(peer.dram_bytes);
    response.add_dram_used_bytes(peer.dram_used_bytes);
  }
  return response.SerializeAsString();
}

absl::StatusOr<std::string> FakeCatalog::KeepAlive(
    const v1::KeepAliveRequest& request) {
  RETURN_IF_ERROR(CheckNode(request.header()));
  beats.push_back(request);
  if (request.registration() != registration_.view()) {
    return absl::NotFoundError("no such registration");
  }
  removals_done = request.removals_done();
  if (removals_done >= 1) removals.clear();
  v1::KeepAliveResponse response;
  response.set_lease_millis(
      static_cast<std::uint32_t>(absl::ToInt64Milliseconds(lease)));
  ToProto(incarnation, response.mutable_incarnation());
  for (const auto& one : changed_at_) {
    if (one.second <= request.namespace_cursor()) continue;
    ToProto(name_spaces.at(one.first), response.add_changed());
  }
  response.set_namespace_cursor(changes_);
  for (const auto& one : removals) {
    response.mutable_remove_name_spaces()->append(one.first.name_space.view());
    response.mutable_remove_keys()->append(one.first.key.view());
    response.add_remove_generations(static_cast<std::uint64_t>(one.second));
  }
  response.set_removals(removals.empty() ? 0 : 1);
  return response.SerializeAsString();
}

absl::StatusOr<std::string> FakeCatalog::Announce(
    const v1::AnnounceRequest& request) {
  RETURN_IF_ERROR(CheckNode(request.header()));
  if (request.registration() != registration_.view()) {
    ++refusals;
    return absl::NotFoundError("no such registration");
  }
  if (request.number() == applied_ && applied_ != 0) {
    ++repeats;
    return last_answer_;
  }
  const bool begins = request.kind() == v1::AnnounceRequest::INVENTORY_BEGIN;
  const bool needs_all = request.kind() == v1::AnnounceRequest::EVENTS ||
                         request.kind() == v1::AnnounceRequest::REPAIR;
  if (request.number() != applied_ + 1 || (!begins && needs_all != complete_)) {
    ++refusals;
    return absl::FailedPreconditionError("a gap");
  }
  applied_ = request.number();
  v1::AnnounceResponse response;
  response.set_applied(applied_);
  Apply(request, &response);
  last_answer_ = response.SerializeAsString();
  return last_answer_;
}

std::size_t FakeCatalog::entries() const {
  std::size_t sum = 0;
  for (const Batch& one : batches) sum += one.entries;
  return sum;
}

// Rule A5.
absl::StatusOr<std::string> FakeCatalog::Compare(
    const v1::CompareDigestsRequest& request) {
  RETURN_IF_ERROR(CheckNode(request.header()));
  if (request.registration() != registration_.view()) {
    return absl::NotFoundError("no such registration");
  }
  v1::CompareDigestsResponse response;
  response.set_applied(applied_);
  response.set_loading(loading);
  if (loading || request.number() != applied_) {
    return response.SerializeAsString();
  }
  BucketSums sums;
  for (const auto& [block, generation] : published) {
    sums.Add(block, 0, generation);
  }
  const bool by_group = request.groups().empty();
  CHECK(static_cast<std::size_t>(request.digests_size()) ==
        (by_group ? kCopyGroups : request.groups_size() * kBucketsAGroup));
  for (int i = 0; i < request.digests_size(); ++i) {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t bucket =
        by_group ? 0
                 : request.groups(i / static_cast<int>(kBucketsAGroup)) *
                           kBucketsAGroup +
                       at % kBucketsAGroup;
    const std::uint64_t ours = by_group ? sums.Group(at) : sums.Bucket(bucket);
    if (ours != request.digests(i)) {
      response.add_different(by_group ? at : bucket);
    }
  }
  return response.SerializeAsString();
}

void FakeCatalog::Apply(const v1::AnnounceRequest& request,
                        v1::AnnounceResponse* answer) {
  Batch batch;
  batch.number = request.number();
  batch.kind = request.kind();
  const absl::StatusOr<std::vector<BlockRow>> rows =
      FromProto(request.blocks());
  CHECK(rows.ok());
  batch.entries = rows->size();
  batch.buckets.assign(request.buckets().begin(), request.buckets().end());
  if (request.kind() == v1::AnnounceRequest::INVENTORY_BEGIN) {
    named_.clear();
    complete_ = false;
  }
  // Rule A5: all that the node has in these buckets follows.
  if (request.kind() == v1::AnnounceRequest::REPAIR) {
    CHECK(!batch.buckets.empty() && batch.buckets.size() <= kMaxRepairBuckets);
    const std::set<std::uint32_t> whole(batch.buckets.begin(),
                                        batch.buckets.end());
    for (auto it = published.begin(); it != published.end();) {
      const bool named = whole.count(CopyBucket(it->first.key)) > 0;
      it = named ? published.erase(it) : std::next(it);
    }
  }
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const int at = static_cast<int>(i);
    const std::size_t space = request.name_space_indexes(at);
    const BlockId block{
        *NamespaceId::FromBytes(request.name_spaces().substr(space * 16, 16)),
        (*rows)[i].key};
    const Generation generation{request.generations(at)};
    const int operation = request.operations()[i];
    batch.operations.push_back({block.key, operation});
    const auto refusal = refused.find(block.key);
    if (refusal != refused.end()) {
      answer->add_refused(static_cast<std::uint32_t>(i));
      answer->mutable_refused_outcomes()->push_back(
          static_cast<char>(refusal->second));
      continue;
    }
    if (operation == 1) {
      named_.insert(block);
      // Rule A2: never an older one over a newer one.
      Generation& known = published[block];
      if (generation > known) known = generation;
    } else if (const auto it = published.find(block);
               it != published.end() && it->second == generation) {
      published.erase(it);
    }
  }
  if (request.kind() == v1::AnnounceRequest::INVENTORY_END) {
    complete_ = true;
    std::map<BlockId, Generation> kept;
    for (const auto& one : published) {
      if (named_.count(one.first) > 0) kept.insert(one);
    }
    published = std::move(kept);
  }
  batches.push_back(std::move(batch));
}

}  // namespace firnkv
