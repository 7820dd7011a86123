#include "server/catalog/admin_service.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "proto/admin.pb.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "server/catalog/authenticator.h"
#include "server/catalog/backup.h"
#include "server/catalog/catalog_service.h"

namespace firnkv {
namespace {

std::string_view LifeName(NodeLife life) {
  switch (life) {
    case NodeLife::kAwaited:
      return "awaited";
    case NodeLife::kAlive:
      return "alive";
    case NodeLife::kExpired:
      return "expired";
    case NodeLife::kReaped:
      return "reaped";
  }
  return "unknown";
}

void PutTenant(const TenantRecord& record, std::uint64_t namespaces,
               v1::TenantRow* row) {
  row->set_tenant(IdToProto(record.tenant));
  row->set_name(record.name);
  row->set_namespaces(namespaces);
  row->set_created_unix_seconds(record.created_unix_seconds);
}

}  // namespace

AdminService::AdminService(Parts parts)
    : parts_(std::move(parts)), started_(parts_.clock->Now()) {}

const std::array<AdminService::Method, AdminService::kMethods>&
AdminService::Methods() {
  static constexpr std::array<Method, kMethods> kTable = {{
      {"CreateTenant", &AdminService::CreateTenant},
      {"ListTenants", &AdminService::ListTenants},
      {"ShowTenant", &AdminService::ShowTenant},
      {"CreateNamespace", &AdminService::CreateNamespace},
      {"ListNamespaces", &AdminService::ListNamespaces},
      {"ShowNamespace", &AdminService::ShowNamespace},
      {"ClearNamespace", &AdminService::ClearNamespace},
      {"ListNodes", &AdminService::ListNodes},
      {"ExplainKey", &AdminService::ExplainKey},
      {"CatalogStatus", &AdminService::CatalogStatus},
      {"Backup", &AdminService::Backup},
      {"Restore", &AdminService::Restore},
      {"AcceptRestore", &AdminService::AcceptRestore},
  }};
  return kTable;
}

std::string_view AdminService::MethodName(std::size_t method) {
  return Methods()[method].name;
}

void AdminService::Handle(std::string_view method, const ControlPeer&,
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

absl::StatusOr<TenantId> AdminService::TenantOf(const TokenClaims& caller,
                                                const std::string& name) const {
  RETURN_IF_ERROR(Require(caller, {Role::kTenant, Role::kAdmin}));
  if (name.empty()) {
    if (caller.role == Role::kTenant) return caller.tenant;
    return absl::InvalidArgumentError("which tenant? (tenant_name is empty)");
  }
  const std::optional<TenantRecord> tenant = parts_.registry->FindTenant(name);
  if (!tenant.has_value() ||
      (caller.role == Role::kTenant && tenant->tenant != caller.tenant)) {
    return absl::NotFoundError(StrCat("there is no tenant \"", name, "\""));
  }
  return tenant->tenant;
}

absl::StatusOr<NamespaceRecord> AdminService::NamespaceOf(
    const TokenClaims& caller, const std::string& tenant_name,
    const std::string& name, std::uint32_t version) const {
  ASSIGN_OR_RETURN(const TenantId tenant, TenantOf(caller, tenant_name));
  std::optional<NamespaceRecord> record =
      parts_.registry->FindNamespace(tenant, name, version);
  if (!record.has_value()) {
    return absl::NotFoundError(
        version == 0 ? StrCat("there is no namespace \"", name, "\"")
                     : StrCat("there is no version ", version,
                              " of namespace \"", name, "\""));
  }
  return *std::move(record);
}

void AdminService::PutRow(const NamespaceRecord& record,
                          v1::NamespaceRow* row) const {
  ToProto(record.facts, row->mutable_facts());
  ToProto(record.contract, row->mutable_contract());
  row->set_created_unix_seconds(record.created_unix_seconds);
  row->set_keys(parts_.entries->index().entries_of(record.facts.name_space));
}

void AdminService::CreateTenant(std::string_view bytes, CallStats* stats,
                                ControlReply reply) {
  parts_.calls->Run<v1::CreateTenantRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::CreateTenantRequest& request)
          -> absl::StatusOr<v1::TenantResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kAdmin}));
        ASSIGN_OR_RETURN(const TenantRecord record,
                         parts_.registry->CreateTenant(request.name()));
        v1::TenantResponse response;
        PutTenant(record, 0, response.mutable_tenant());
        return response;
      });
}

void AdminService::ListTenants(std::string_view bytes, CallStats* stats,
                               ControlReply reply) {
  parts_.calls->Run<v1::ListTenantsRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::ListTenantsRequest&)
          -> absl::StatusOr<v1::ListTenantsResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kTenant, Role::kAdmin}));
        v1::ListTenantsResponse response;
        for (const auto& row : parts_.registry->ListTenants()) {
          if (caller.role == Role::kTenant &&
              row.record.tenant != caller.tenant) {
            continue;
          }
          PutTenant(row.record, row.namespaces, response.add_tenants());
        }
        return response;
      });
}

void AdminService::ShowTenant(std::string_view bytes, CallStats* stats,
                              ControlReply reply) {
  parts_.calls->Run<v1::ShowTenantRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::ShowTenantRequest& request)
          -> absl::StatusOr<v1::TenantResponse> {
        ASSIGN_OR_RETURN(const TenantId tenant,
                         TenantOf(caller, request.name()));
        const auto record = parts_.registry->FindTenant(tenant);
        if (!record.has_value()) {
          return absl::NotFoundError("there is no such tenant");
        }
        v1::TenantResponse response;
        PutTenant(*record, parts_.registry->ListNamespaces(&tenant).size(),
                  response.mutable_tenant());
        return response;
      });
}

void AdminService::CreateNamespace(std::string_view bytes, CallStats* stats,
                                   ControlReply reply) {
  parts_.calls->Run<v1::CreateNamespaceRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller,
             const v1::CreateNamespaceRequest& request)
          -> absl::StatusOr<v1::NamespaceResponse> {
        Registry::Wanted wanted;
        ASSIGN_OR_RETURN(wanted.tenant,
                         TenantOf(caller, request.tenant_name()));
        wanted.name = request.name();
        ASSIGN_OR_RETURN(wanted.contract, FromProto(request.contract()));
        wanted.block_bytes = request.block_bytes();
        wanted.chained = request.chained();
        ASSIGN_OR_RETURN(wanted.retention,
                         CheckRetention(request.retention_seconds()));
        wanted.strict_clear = request.strict_clear();
        ASSIGN_OR_RETURN(const Registry::Opened opened,
                         parts_.registry->OpenOrCreate(wanted));
        v1::NamespaceResponse response;
        PutRow(opened.record, response.mutable_name_space());
        response.set_created(opened.created);
        return response;
      });
}

void AdminService::ListNamespaces(std::string_view bytes, CallStats* stats,
                                  ControlReply reply) {
  parts_.calls->Run<v1::ListNamespacesRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller,
             const v1::ListNamespacesRequest& request)
          -> absl::StatusOr<v1::ListNamespacesResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kTenant, Role::kAdmin}));
        TenantId tenant;
        const bool all =
            caller.role == Role::kAdmin && request.tenant_name().empty();
        if (!all) {
          ASSIGN_OR_RETURN(tenant, TenantOf(caller, request.tenant_name()));
        }
        v1::ListNamespacesResponse response;
        for (const NamespaceRecord& record :
             parts_.registry->ListNamespaces(all ? nullptr : &tenant)) {
          PutRow(record, response.add_namespaces());
        }
        return response;
      });
}

void AdminService::ShowNamespace(std::string_view bytes, CallStats* stats,
                                 ControlReply reply) {
  parts_.calls->Run<v1::ShowNamespaceRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::ShowNamespaceRequest& request)
          -> absl::StatusOr<v1::NamespaceResponse> {
        ASSIGN_OR_RETURN(const NamespaceRecord record,
                         NamespaceOf(caller, request.tenant_name(),
                                     request.name(), request.version()));
        v1::NamespaceResponse response;
        PutRow(record, response.mutable_name_space());
        return response;
      });
}

// Rule C4: a node that this catalog has never heard of may be a member of one
// that was here before, for as long as a lease runs that it granted: whose disk
// was lost, or that went on after the backup. Of a namespace that is not strict
// such a node may serve what it has beyond that, until it registers.
bool AdminService::MayBeServedByStrangers(
    const std::vector<NamespaceRecord>& records) const {
  const BootTime now = parts_.clock->Now();
  return std::any_of(
      records.begin(), records.end(), [&](const NamespaceRecord& record) {
        const auto inherited =
            parts_.registry->InheritedAt(record.facts.name_space);
        return inherited.has_value() &&
               now - *inherited < parts_.membership->lease();
      });
}

void AdminService::PutPending(const std::vector<NamespaceRecord>& records,
                              v1::ClearNamespaceResponse* response) const {
  if (MayBeServedByStrangers(records)) {
    response->add_pending_nodes("unknown");
    response->add_pending_reasons(
        "may not have registered yet: the catalog started, or was restored, "
        "less than a lease ago");
  }
  for (const Membership::Row& row : parts_.membership->List()) {
    if (row.life == NodeLife::kReaped) continue;
    bool behind = false;
    bool reading = false;
    for (const NamespaceRecord& record : records) {
      // Rule C4. A node believes in its lease for 7/8 of the term, so by now it
      // grants no read of a strict namespace, and before it does again it asks
      // for all that was cleared. Of the other namespaces it may serve what it
      // has until it is back or its grace is over.
      const bool strict = record.facts.strict_clear;
      if (strict && row.life == NodeLife::kExpired) continue;
      behind = behind || row.namespace_cursor < record.changed_at;
      reading = reading || (strict && row.drained_cursor < record.changed_at);
    }
    if (!behind && !reading) continue;
    response->add_pending_nodes(ToHex(row.address.node));
    response->add_pending_reasons(
        behind ? "has not heard of it yet"
               : "still finishes reads that it granted before");
  }
}

void AdminService::ClearNamespace(std::string_view bytes, CallStats* stats,
                                  ControlReply reply) {
  parts_.calls->Run<v1::ClearNamespaceRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller,
             const v1::ClearNamespaceRequest& request)
          -> absl::StatusOr<v1::ClearNamespaceResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kAdmin}));
        ASSIGN_OR_RETURN(const TenantId tenant,
                         TenantOf(caller, request.tenant_name()));
        std::vector<NamespaceRecord> records;
        if (request.report_only()) {
          ASSIGN_OR_RETURN(records,
                           parts_.registry->Versions(tenant, request.name(),
                                                     request.version()));
        } else {
          ASSIGN_OR_RETURN(records,
                           parts_.registry->Clear(tenant, request.name(),
                                                  request.version()));
          parts_.reaper->WakeForClear();
        }
        v1::ClearNamespaceResponse response;
        for (const NamespaceRecord& record : records) {
          ToProto(record.facts, response.add_cleared());
        }
        PutPending(records, &response);
        return response;
      });
}

void AdminService::ListNodes(std::string_view bytes, CallStats* stats,
                             ControlReply reply) {
  parts_.calls->Run<v1::ListNodesRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::ListNodesRequest&)
          -> absl::StatusOr<v1::ListNodesResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kAdmin, Role::kNode}));
        v1::ListNodesResponse response;
        for (const Membership::Row& row : parts_.membership->List()) {
          v1::NodeRow* const out = response.add_nodes();
          ToProto(row.address, out->mutable_address());
          out->set_state(std::string(LifeName(row.life)));
          out->set_dram_bytes(row.dram_bytes);
          out->set_dram_used_bytes(row.dram_used_bytes);
          out->set_blocks(row.blocks);
          out->set_last_seen_millis_ago(static_cast<std::uint64_t>(
              absl::ToInt64Milliseconds(row.last_seen_ago)));
          out->set_applied(row.applied.applied);
          out->set_version(row.version);
          out->set_inventory_complete(row.applied.inventory ==
                                      InventoryState::kComplete);
        }
        return response;
      });
}

void AdminService::ExplainKey(std::string_view bytes, CallStats* stats,
                              ControlReply reply) {
  parts_.calls->Run<v1::ExplainKeyRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::ExplainKeyRequest& request)
          -> absl::StatusOr<v1::ExplainKeyResponse> {
        ASSIGN_OR_RETURN(const NamespaceRecord record,
                         NamespaceOf(caller, request.tenant_name(),
                                     request.name(), request.version()));
        BlockId block{.name_space = record.facts.name_space, .key = {}};
        ASSIGN_OR_RETURN(block.key,
                         IdFromProto<BlockKey>("key", request.key()));
        ASSIGN_OR_RETURN(const std::optional<EntryRecord> entry,
                         parts_.entries->Explain(block));
        v1::ExplainKeyResponse response;
        ToProto(record.facts, response.mutable_facts());
        if (!entry.has_value()) return response;
        response.set_known(true);
        response.set_sequence(entry->sequence);
        std::vector<LocationRow> rows;
        for (const Location& one : entry->locations) {
          rows.push_back({static_cast<std::uint32_t>(rows.size()), one.tier,
                          one.generation, one.length});
          const auto node = parts_.membership->Find(one.run.node);
          NodeAddress address;
          std::string_view state = "forgotten";
          if (node.has_value()) {
            address = node->address;
            state = LifeName(node->life);
          }
          address.node = one.run.node;
          address.epoch = one.run.epoch;
          if (parts_.membership->Judge({one.run})[0] == Verdict::kStale) {
            state = "stale";
          }
          ToProto(address, response.add_nodes());
          response.add_node_states(std::string(state));
          response.add_clear_epochs(
              static_cast<std::uint64_t>(entry->clear_epoch));
        }
        ToProto(rows, response.mutable_locations());
        const BlockRow row{.key = block.key,
                           .place = entry->place,
                           .length = entry->locations.front().length};
        ToProto(absl::MakeConstSpan(&row, 1), response.mutable_block());
        return response;
      });
}

void AdminService::CatalogStatus(std::string_view bytes, CallStats* stats,
                                 ControlReply reply) {
  parts_.calls->Run<v1::CatalogStatusRequest>(
      RunsOn::kCaller, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::CatalogStatusRequest&)
          -> absl::StatusOr<v1::CatalogStatusResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kAdmin, Role::kNode}));
        v1::CatalogStatusResponse response;
        response.set_cluster(IdToProto(parts_.cluster->cluster()));
        ToProto(parts_.cluster->incarnation(), response.mutable_incarnation());
        response.set_tenants(parts_.registry->ListTenants().size());
        response.set_namespaces(parts_.registry->namespaces());
        const KeyIndex::Totals totals = parts_.entries->index().totals();
        response.set_keys(totals.entries);
        response.set_locations(totals.locations);
        response.set_index_bytes(totals.bytes);
        std::uint64_t alive = 0;
        const auto nodes = parts_.membership->List();
        for (const Membership::Row& row : nodes) {
          if (row.life == NodeLife::kAlive) ++alive;
        }
        response.set_nodes_alive(alive);
        response.set_nodes_expired(nodes.size() - alive);
        response.set_uptime_seconds(static_cast<std::uint64_t>(
            absl::ToInt64Seconds(parts_.clock->Now() - started_)));
        response.set_version(parts_.version);
        return response;
      });
}

void AdminService::Backup(std::string_view bytes, CallStats* stats,
                          ControlReply reply) {
  // On the strand, so that nothing is created between two looks.
  parts_.calls->Run<v1::BackupRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller,
             const v1::BackupRequest&) -> absl::StatusOr<v1::BackupResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kAdmin}));
        v1::BackupResponse response;
        response.set_state(EncodeBackup(parts_.registry->Backup()));
        return response;
      });
}

void AdminService::Restore(std::string_view bytes, CallStats* stats,
                           ControlReply reply) {
  parts_.calls->Run<v1::RestoreRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::RestoreRequest& request)
          -> absl::StatusOr<v1::RestoreResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kAdmin}));
        ASSIGN_OR_RETURN(const BackupState state,
                         DecodeBackup(request.state()));
        RETURN_IF_ERROR(parts_.registry->Restore(state));
        v1::RestoreResponse response;
        response.set_tenants(state.tenants.size());
        response.set_namespaces(state.namespaces.size());
        return response;
      });
}

void AdminService::AcceptRestore(std::string_view bytes, CallStats* stats,
                                 ControlReply reply) {
  parts_.calls->Run<v1::AcceptRestoreRequest>(
      RunsOn::kStrand, bytes, stats, std::move(reply),
      [this](const TokenClaims& caller, const v1::AcceptRestoreRequest&)
          -> absl::StatusOr<v1::AcceptRestoreResponse> {
        RETURN_IF_ERROR(Require(caller, {Role::kAdmin}));
        ASSIGN_OR_RETURN(const std::uint64_t raised,
                         parts_.registry->AcceptRestore());
        parts_.reaper->WakeForClear();
        v1::AcceptRestoreResponse response;
        ToProto(parts_.cluster->incarnation(), response.mutable_incarnation());
        response.set_namespaces_raised(raised);
        return response;
      });
}

}  // namespace firnkv
