#include "server/catalog/member_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/base/copy_digest.h"
#include "proto/base/limits.h"
#include "proto/base/request.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "server/catalog/authenticator.h"

namespace firnkv {
namespace {

Handshake OurHandshake(ClusterId cluster) {
  Handshake ours;
  ours.cluster = cluster;
  ours.test_vector = HandshakeTestVector();
  return ours;
}

std::uint32_t Millis(absl::Duration duration) {
  return static_cast<std::uint32_t>(absl::ToInt64Milliseconds(duration));
}

absl::Status CheckColumn(std::string_view column, int got, std::size_t wanted) {
  if (static_cast<std::size_t>(got) == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(column, " has ", got, " entries instead of ", wanted));
}

absl::Status CheckGroups(const std::vector<std::uint32_t>& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] >= kCopyGroups || (i > 0 && groups[i] <= groups[i - 1])) {
      return absl::InvalidArgumentError(
          StrCat("groups rise, and are below ", kCopyGroups));
    }
  }
  return absl::OkStatus();
}

// The columns of the entries of a batch.
absl::Status TakeCopies(const v1::AnnounceRequest& request,
                        AnnouncedBatch* batch) {
  ASSIGN_OR_RETURN(const std::vector<BlockRow> rows,
                   FromProto(request.blocks()));
  const std::size_t count = rows.size();
  RETURN_IF_ERROR(CheckColumn("name_space_indexes",
                              request.name_space_indexes_size(), count));
  RETURN_IF_ERROR(CheckColumn(
      "operations", static_cast<int>(request.operations().size()), count));
  RETURN_IF_ERROR(
      CheckColumn("generations", request.generations_size(), count));
  RETURN_IF_ERROR(
      CheckColumn("tiers", static_cast<int>(request.tiers().size()), count));
  batch->copies.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int at = static_cast<int>(i);
    const auto operation = static_cast<std::uint8_t>(request.operations()[i]);
    if (operation != static_cast<std::uint8_t>(EntryOperation::kPublish) &&
        operation != static_cast<std::uint8_t>(EntryOperation::kWithdraw)) {
      return absl::InvalidArgumentError(
          StrCat("operation ", int{operation}, " is unknown"));
    }
    batch->copies.push_back(
        {.operation = EntryOperation{operation},
         .name_space = request.name_space_indexes(at),
         .key = rows[i].key,
         .place = rows[i].place,
         .length = rows[i].length,
         .generation = Generation{request.generations(at)},
         .tier = static_cast<std::uint8_t>(request.tiers()[i])});
  }
  return absl::OkStatus();
}

absl::StatusOr<AnnouncedBatch> BatchOf(const v1::AnnounceRequest& request) {
  AnnouncedBatch batch;
  ASSIGN_OR_RETURN(batch.node, IdFromProto<NodeId>("node", request.node()));
  batch.epoch = NodeEpoch{request.epoch()};
  ASSIGN_OR_RETURN(
      batch.registration,
      IdFromProto<RegistrationId>("registration", request.registration()));
  batch.number = request.number();
  if (!v1::AnnounceRequest::Kind_IsValid(request.kind())) {
    return absl::InvalidArgumentError("unknown kind of batch");
  }
  batch.kind = BatchKind{static_cast<std::uint8_t>(request.kind())};
  ASSIGN_OR_RETURN(
      const auto name_spaces,
      IdsFromProto<NamespaceId>("name_spaces", request.name_spaces(),
                                kMaxAnnouncementEntries));
  RETURN_IF_ERROR(CheckColumn("clear_epochs", request.clear_epochs_size(),
                              name_spaces.size()));
  for (std::size_t i = 0; i < name_spaces.size(); ++i) {
    batch.namespaces.push_back({name_spaces[i], ClearEpoch{request.clear_epochs(
                                                    static_cast<int>(i))}});
  }
  batch.buckets.assign(request.buckets().begin(), request.buckets().end());
  RETURN_IF_ERROR(TakeCopies(request, &batch));
  RETURN_IF_ERROR(CheckBatch(batch));
  return batch;
}

}  // namespace

absl::StatusOr<v1::RegisterResponse> MemberService::Register(
    const TokenClaims& caller, const v1::RegisterRequest& request) {
  RETURN_IF_ERROR(Require(caller, {Role::kNode}));
  const Handshake ours = OurHandshake(parts_.cluster->cluster());
  ASSIGN_OR_RETURN(const Handshake theirs, FromProto(request.handshake()));
  RETURN_IF_ERROR(Agree(ours, theirs).status());
  ASSIGN_OR_RETURN(const Incarnation seen, FromProto(request.seen()));
  RETURN_IF_ERROR(parts_.cluster->CheckSeen(seen));
  RETURN_IF_ERROR(parts_.cluster->MarkTold());
  Membership::Boot boot;
  ASSIGN_OR_RETURN(boot.address, FromProto(request.node()));
  if (request.version().size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("version is too long");
  }
  boot.predecessor = NodeEpoch{request.predecessor_epoch()};
  boot.version = request.version();
  boot.dram_bytes = request.dram_bytes();
  boot.namespace_cursor = parts_.cluster->last_change();
  ASSIGN_OR_RETURN(const Membership::Registered registered,
                   parts_.membership->Register(boot));
  counters_.registrations.Add();
  if (registered.replaced) parts_.reaper->Wake();
  if (registered.kept) counters_.kept_registrations.Add();

  v1::RegisterResponse response;
  response.set_registration(IdToProto(registered.registration));
  response.set_lease_millis(Millis(parts_.membership->lease()));
  ToProto(parts_.cluster->incarnation(), response.mutable_incarnation());
  ToProto(ours, response.mutable_handshake());
  response.set_namespace_cursor(registered.namespace_cursor);
  response.set_kept(registered.kept);
  if (registered.kept) {
    response.set_kept_registration(IdToProto(registered.kept_registration));
    response.set_kept_applied(registered.kept_applied);
  }
  return response;
}

absl::StatusOr<v1::KeepAliveResponse> MemberService::KeepAlive(
    const TokenClaims& caller, const v1::KeepAliveRequest& request) {
  RETURN_IF_ERROR(Require(caller, {Role::kNode}));
  Membership::Beat beat;
  ASSIGN_OR_RETURN(beat.node, IdFromProto<NodeId>("node", request.node()));
  beat.epoch = NodeEpoch{request.epoch()};
  ASSIGN_OR_RETURN(
      beat.registration,
      IdFromProto<RegistrationId>("registration", request.registration()));
  beat.applied = request.applied();
  ASSIGN_OR_RETURN(const Incarnation seen, FromProto(request.seen()));
  // What it has confirmed of another state than ours is nothing here.
  if (parts_.cluster->CheckCursor(request.namespace_cursor())) {
    beat.namespace_cursor = request.namespace_cursor();
    beat.drained_cursor =
        std::min(request.drained_cursor(), request.namespace_cursor());
  }
  // Rule A9: a restored catalog may know the registration too. After the
  // cursor, which says how much it lacks.
  RETURN_IF_ERROR(parts_.cluster->CheckSeen(seen));
  RETURN_IF_ERROR(parts_.cluster->MarkTold());
  beat.dram_bytes = request.dram_bytes();
  beat.dram_used_bytes = request.dram_used_bytes();
  beat.blocks = request.blocks();
  RETURN_IF_ERROR(parts_.membership->KeepAlive(beat));

  v1::KeepAliveResponse response;
  response.set_lease_millis(Millis(parts_.membership->lease()));
  ToProto(parts_.cluster->incarnation(), response.mutable_incarnation());
  const Registry::Changes changes = parts_.registry->ChangesSince(
      request.namespace_cursor(), kMaxChangesTold);
  for (const NamespaceFacts& facts : changes.facts) {
    ToProto(facts, response.add_changed());
  }
  response.set_namespace_cursor(changes.cursor);
  const Removals::Due due = parts_.removals->Take(
      beat.node, beat.epoch, request.removals_done(), kMaxRemovalsTold);
  for (const Removal& removal : due.removals) {
    response.mutable_remove_name_spaces()->append(
        removal.block.name_space.view());
    response.mutable_remove_keys()->append(removal.block.key.view());
    response.add_remove_generations(
        static_cast<std::uint64_t>(removal.generation));
  }
  response.set_removals(due.number);
  return response;
}

absl::StatusOr<v1::UnregisterResponse> MemberService::Unregister(
    const TokenClaims& caller, const v1::UnregisterRequest& request) {
  RETURN_IF_ERROR(Require(caller, {Role::kNode}));
  ASSIGN_OR_RETURN(const auto node,
                   IdFromProto<NodeId>("node", request.node()));
  ASSIGN_OR_RETURN(
      const auto registration,
      IdFromProto<RegistrationId>("registration", request.registration()));
  RETURN_IF_ERROR(parts_.membership->Unregister(
      node, NodeEpoch{request.epoch()}, registration));
  counters_.unregistrations.Add();
  parts_.reaper->Wake();
  return v1::UnregisterResponse();
}

absl::StatusOr<v1::ListPeersResponse> MemberService::ListPeers(
    const TokenClaims& caller, const v1::ListPeersRequest& request) const {
  RETURN_IF_ERROR(Require(caller, {Role::kNode}));
  ASSIGN_OR_RETURN(const auto asker,
                   IdFromProto<NodeId>("node", request.node()));
  v1::ListPeersResponse response;
  for (const Membership::Row& row : parts_.membership->List()) {
    if (row.life != NodeLife::kAlive || row.address.node == asker) continue;
    ToProto(row.address, response.add_nodes());
    response.add_dram_bytes(row.dram_bytes);
    response.add_dram_used_bytes(row.dram_used_bytes);
  }
  return response;
}

absl::StatusOr<v1::AnnounceResponse> MemberService::Announce(
    const TokenClaims& caller, const v1::AnnounceRequest& request) {
  RETURN_IF_ERROR(Require(caller, {Role::kNode}));
  ASSIGN_OR_RETURN(const AnnouncedBatch batch, BatchOf(request));
  const absl::StatusOr<Announcements::Applied> applied =
      parts_.announcements->Apply(batch);
  if (!applied.ok()) {
    counters_.refused_batches.Add();
    return applied.status();
  }
  counters_.batches.Add();
  counters_.entries.Add(batch.copies.size());
  counters_.refused_entries.Add(applied->refused.size());
  counters_.repaired_buckets.Add(batch.buckets.size());
  if (applied->inventory_ended) {
    counters_.inventories.Add();
    parts_.reaper->Wake();
  }
  v1::AnnounceResponse response;
  response.set_applied(applied->applied);
  for (const RefusedEntry& refused : applied->refused) {
    response.add_refused(refused.index);
    response.mutable_refused_outcomes()->push_back(
        static_cast<char>(refused.outcome));
  }
  return response;
}

absl::StatusOr<v1::CompareDigestsResponse> MemberService::CompareDigests(
    const TokenClaims& caller, const v1::CompareDigestsRequest& request) {
  RETURN_IF_ERROR(Require(caller, {Role::kNode}));
  ASSIGN_OR_RETURN(const auto node,
                   IdFromProto<NodeId>("node", request.node()));
  const NodeEpoch epoch{request.epoch()};
  ASSIGN_OR_RETURN(
      const auto registration,
      IdFromProto<RegistrationId>("registration", request.registration()));
  const std::vector<std::uint32_t> groups(request.groups().begin(),
                                          request.groups().end());
  RETURN_IF_ERROR(CheckGroups(groups));
  RETURN_IF_ERROR(CheckColumn(
      "digests", request.digests_size(),
      groups.empty() ? kCopyGroups : groups.size() * kBucketsAGroup));
  ASSIGN_OR_RETURN(
      const AppliedRecord applied,
      parts_.membership->CheckAnnouncer(node, epoch, registration));

  v1::CompareDigestsResponse response;
  response.set_applied(applied.applied);
  if (applied.applied != request.number()) return response;
  if (applied.inventory != InventoryState::kComplete) {
    return absl::FailedPreconditionError(
        "digests are compared after the inventory's end");
  }
  if (!parts_.entries->loaded() || parts_.reaper->owes_cleared()) {
    response.set_loading(true);
    return response;
  }
  counters_.compares.Add();
  static const BucketSums kNothing;
  const BucketSums* ours = parts_.digests->Find(
      {.node = node, .epoch = epoch, .serial = applied.serial});
  if (ours == nullptr) ours = &kNothing;
  int at = 0;
  if (groups.empty()) {
    for (std::uint32_t group = 0; group < kCopyGroups; ++group) {
      if (ours->Group(group) != request.digests(at++)) {
        response.add_different(group);
      }
    }
    return response;
  }
  for (const std::uint32_t group : groups) {
    for (std::uint32_t i = 0; i < kBucketsAGroup; ++i) {
      const auto bucket =
          static_cast<std::uint32_t>(group * kBucketsAGroup + i);
      if (ours->Bucket(bucket) != request.digests(at++)) {
        response.add_different(bucket);
      }
    }
  }
  counters_.different_buckets.Add(
      static_cast<std::uint64_t>(response.different_size()));
  return response;
}

}  // namespace firnkv
