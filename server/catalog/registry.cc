#include "server/catalog/registry.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/catalog/key_index.h"

namespace firnkv {
namespace {

bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9');
}

absl::Status Disagrees(std::string_view field, const std::string& is,
                       const std::string& asked) {
  return absl::FailedPreconditionError(StrCat("the namespace exists with ",
                                              field, " ", is, ", and ", asked,
                                              " was asked for"));
}

// Whether the settings with which somebody opens a namespace are those that it
// has.
absl::Status CheckAgrees(const NamespaceFacts& facts,
                         const Registry::Wanted& wanted) {
  if (wanted.block_bytes != 0 && wanted.block_bytes != facts.block_bytes) {
    return Disagrees("block_bytes", StrCat(facts.block_bytes),
                     StrCat(wanted.block_bytes));
  }
  if (wanted.chained != facts.chained) {
    return Disagrees("chained", facts.chained ? "true" : "false",
                     wanted.chained ? "true" : "false");
  }
  if (wanted.retention != absl::ZeroDuration() &&
      wanted.retention != facts.retention) {
    return Disagrees("retention", absl::FormatDuration(facts.retention),
                     absl::FormatDuration(wanted.retention));
  }
  if (wanted.strict_clear && !facts.strict_clear) {
    return Disagrees("strict_clear", "false", "true");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckName(std::string_view what, std::string_view name) {
  if (name.empty()) {
    return absl::InvalidArgumentError(StrCat(what, " name is missing"));
  }
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(StrCat(
        what, " name has ", name.size(), " bytes, of at most ", kMaxNameBytes));
  }
  const auto allowed = [](char c) {
    return IsAlnum(c) ||
           std::string_view("._-/:@+").find(c) != std::string_view::npos;
  };
  if (!IsAlnum(name[0]) || !std::all_of(name.begin(), name.end(), allowed)) {
    return absl::InvalidArgumentError(
        StrCat(what,
               " name may have letters, digits and \"._-/:@+\", and "
               "begins with a letter or a digit"));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> CheckRetention(std::uint64_t seconds) {
  if (seconds > kMaxRetentionSeconds) {
    return absl::InvalidArgumentError(StrCat("retention is ", seconds,
                                             " seconds, of at most ",
                                             kMaxRetentionSeconds));
  }
  return absl::Seconds(static_cast<std::int64_t>(seconds));
}

Registry::Registry(const Options& options, const Parts& parts)
    : options_(options), parts_(parts) {}

absl::Status Registry::Load() {
  absl::Status damage;
  std::vector<TenantRecord> tenants;
  std::vector<NamespaceRecord> namespaces;
  RETURN_IF_ERROR(parts_.store->Scan(
      Family::kTenants, "", "", [&](std::string_view, std::string_view value) {
        absl::StatusOr<TenantRecord> record = DecodeTenant(value);
        damage = record.status();
        if (record.ok()) tenants.push_back(*std::move(record));
        return damage.ok();
      }));
  RETURN_IF_ERROR(damage);
  RETURN_IF_ERROR(parts_.store->Scan(
      Family::kNamespaces, "", "",
      [&](std::string_view, std::string_view value) {
        absl::StatusOr<NamespaceRecord> record = DecodeNamespace(value);
        damage = record.status();
        if (record.ok()) namespaces.push_back(*std::move(record));
        return damage.ok();
      }));
  RETURN_IF_ERROR(damage);
  const bool empty = tenants.empty();
  {
    MutexLock lock(&mutex_);
    Inherit(tenants, std::move(namespaces));
  }
  if (!empty) return absl::OkStatus();
  return CreateTenant(kDefaultTenant).status();
}

void Registry::Inherit(absl::Span<const TenantRecord> tenants,
                       std::vector<NamespaceRecord> namespaces) {
  // Versions of a name go in order.
  std::sort(namespaces.begin(), namespaces.end(),
            [](const NamespaceRecord& a, const NamespaceRecord& b) {
              return a.facts.version < b.facts.version;
            });
  inherited_at_ = parts_.clock->Now();
  for (const TenantRecord& one : tenants) Install(one);
  for (const NamespaceRecord& one : namespaces) {
    Install(one);
    inherited_.insert(one.facts.name_space);
  }
}

void Registry::Install(const TenantRecord& record) {
  tenants_[record.tenant] = record;
  tenant_names_[record.name] = record.tenant;
}

void Registry::Install(const NamespaceRecord& record) {
  const NamespaceFacts& facts = record.facts;
  const auto old = namespaces_.find(facts.name_space);
  if (old == namespaces_.end()) {
    std::vector<NamespaceId>& versions = names_[{facts.tenant, facts.name}];
    CHECK(facts.version == versions.size() + 1);
    versions.push_back(facts.name_space);
  } else {
    changes_.erase(old->second.changed_at);
  }
  namespaces_[facts.name_space] = record;
  changes_[record.changed_at] = facts.name_space;
}

absl::Status Registry::Commit(const ClusterRecord& next,
                              const std::vector<NamespaceRecord>& records) {
  std::vector<Store::Write> writes = {ClusterState::WriteOf(next)};
  for (const NamespaceRecord& record : records) {
    writes.push_back({Family::kNamespaces,
                      std::string(record.facts.name_space.view()),
                      Encode(record)});
  }
  RETURN_IF_ERROR(parts_.store->Apply(writes, Store::Durability::kSynced));
  parts_.cluster->Install(next);
  MutexLock lock(&mutex_);
  for (const NamespaceRecord& record : records) Install(record);
  return absl::OkStatus();
}

NamespaceRecord Registry::WithTenantName(NamespaceRecord record) const {
  const auto tenant = tenants_.find(record.facts.tenant);
  CHECK(tenant != tenants_.end());
  record.facts.tenant_name = tenant->second.name;
  return record;
}

std::optional<TenantRecord> Registry::FindTenant(std::string_view name) const {
  MutexLock lock(&mutex_);
  const auto it = tenant_names_.find(name);
  if (it == tenant_names_.end()) return std::nullopt;
  return tenants_.at(it->second);
}

std::optional<TenantRecord> Registry::FindTenant(TenantId tenant) const {
  MutexLock lock(&mutex_);
  const auto it = tenants_.find(tenant);
  if (it == tenants_.end()) return std::nullopt;
  return it->second;
}

std::vector<Registry::TenantRow> Registry::ListTenants() const {
  MutexLock lock(&mutex_);
  std::map<TenantId, std::uint64_t> counts;
  for (const auto& [name, versions] : names_) {
    counts[name.first] += versions.size();
  }
  std::vector<TenantRow> rows;
  for (const auto& [name, tenant] : tenant_names_) {
    rows.push_back({tenants_.at(tenant), counts[tenant]});
  }
  return rows;
}

std::optional<NamespaceFacts> Registry::Describe(NamespaceId name_space) const {
  MutexLock lock(&mutex_);
  const auto it = namespaces_.find(name_space);
  if (it == namespaces_.end()) return std::nullopt;
  NamespaceFacts facts = it->second.facts;
  facts.tenant_name = tenants_.at(facts.tenant).name;
  return facts;
}

std::optional<NamespaceRecord> Registry::FindNamespace(
    TenantId tenant, std::string_view name, std::uint32_t version) const {
  MutexLock lock(&mutex_);
  const auto it = names_.find({tenant, std::string(name)});
  if (it == names_.end() || version > it->second.size()) return std::nullopt;
  const std::size_t index =
      version == 0 ? it->second.size() - 1 : std::size_t{version} - 1;
  return WithTenantName(namespaces_.at(it->second[index]));
}

absl::StatusOr<std::vector<NamespaceRecord>> Registry::Versions(
    TenantId tenant, std::string_view name, std::uint32_t version) const {
  std::vector<NamespaceRecord> records;
  MutexLock lock(&mutex_);
  const auto it = names_.find({tenant, std::string(name)});
  if (it == names_.end() || version > it->second.size()) {
    return absl::NotFoundError(
        version == 0 ? StrCat("there is no namespace \"", name, "\"")
                     : StrCat("there is no version ", version,
                              " of namespace \"", name, "\""));
  }
  for (const NamespaceId& id : it->second) {
    const NamespaceRecord& record = namespaces_.at(id);
    if (version != 0 && record.facts.version != version) continue;
    records.push_back(WithTenantName(record));
  }
  return records;
}

std::vector<NamespaceRecord> Registry::ListNamespaces(
    const TenantId* tenant) const {
  std::vector<NamespaceRecord> records;
  {
    MutexLock lock(&mutex_);
    for (const auto& [name, versions] : names_) {
      if (tenant != nullptr && name.first != *tenant) continue;
      for (const NamespaceId id : versions) {
        records.push_back(WithTenantName(namespaces_.at(id)));
      }
    }
  }
  std::stable_sort(records.begin(), records.end(),
                   [](const NamespaceRecord& a, const NamespaceRecord& b) {
                     return a.facts.tenant_name < b.facts.tenant_name;
                   });
  return records;
}

std::uint64_t Registry::namespaces() const {
  MutexLock lock(&mutex_);
  return namespaces_.size();
}

std::optional<BootTime> Registry::InheritedAt(NamespaceId name_space) const {
  MutexLock lock(&mutex_);
  if (!inherited_.contains(name_space)) return std::nullopt;
  return inherited_at_;
}

absl::Status Registry::CheckWanted(const Wanted& wanted) const {
  RETURN_IF_ERROR(CheckName("namespace", wanted.name));
  RETURN_IF_ERROR(Validate(wanted.contract));
  if (wanted.block_bytes > kLargestBlockBytes) {
    return absl::InvalidArgumentError(
        StrCat("block_bytes is ", wanted.block_bytes, ", of at most ",
               kLargestBlockBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<NamespaceRecord>> Registry::FindVersion(
    const Wanted& wanted) const {
  const auto it = names_.find({wanted.tenant, wanted.name});
  if (it == names_.end()) return std::optional<NamespaceRecord>();
  const IdentityDigest digest = MakeIdentityDigest(wanted.contract);
  for (const NamespaceId id : it->second) {
    const NamespaceRecord& record = namespaces_.at(id);
    if (record.facts.digest != digest) continue;
    RETURN_IF_ERROR(CheckAgrees(record.facts, wanted));
    return std::optional<NamespaceRecord>(WithTenantName(record));
  }
  return std::optional<NamespaceRecord>();
}

absl::StatusOr<Registry::Opened> Registry::Find(const Wanted& wanted) const {
  RETURN_IF_ERROR(CheckWanted(wanted));
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const std::optional<NamespaceRecord> found,
                   FindVersion(wanted));
  if (found.has_value()) return Opened{.record = *found, .created = false};
  const auto it = names_.find({wanted.tenant, wanted.name});
  if (it == names_.end()) {
    return absl::NotFoundError(
        StrCat("there is no namespace \"", wanted.name, "\""));
  }
  const NamespaceRecord& newest = namespaces_.at(it->second.back());
  return absl::FailedPreconditionError(
      StrCat("no version of namespace \"", wanted.name,
             "\" has this contract; the newest, version ", newest.facts.version,
             ", differs first in ",
             FirstDifference(newest.contract, wanted.contract)));
}

Registry::Changes Registry::ChangesSince(std::uint64_t since,
                                         std::size_t most) const {
  Changes changes;
  changes.cursor = parts_.cluster->last_change();
  MutexLock lock(&mutex_);
  // A number that we never gave: of the state before a restore. Tell all.
  if (since > changes.cursor) since = 0;
  for (auto it = changes_.upper_bound(since); it != changes_.end(); ++it) {
    if (changes.facts.size() == most) {
      changes.cursor = std::prev(it)->first;
      return changes;
    }
    changes.facts.push_back(WithTenantName(namespaces_.at(it->second)).facts);
  }
  // What came between the two looks is told now, and again next time.
  return changes;
}

void Registry::NoteReported(NamespaceId name_space, ClearEpoch epoch) {
  if (epoch > KeyIndex::kLastClearEpoch) return;
  MutexLock lock(&mutex_);
  // Only for namespaces that there are, so that the map is bounded.
  if (!namespaces_.contains(name_space)) return;
  ClearEpoch& highest = reported_[name_space];
  highest = std::max(highest, epoch);
}

// --- On the strand.

absl::StatusOr<TenantRecord> Registry::CreateTenant(std::string_view name) {
  RETURN_IF_ERROR(CheckName("tenant", name));
  {
    MutexLock lock(&mutex_);
    if (tenant_names_.contains(name)) {
      return absl::AlreadyExistsError(
          StrCat("there is a tenant \"", name, "\" already"));
    }
    if (tenants_.size() >= options_.max_tenants) {
      return absl::ResourceExhaustedError(
          StrCat("there are ", options_.max_tenants, " tenants already"));
    }
  }
  const TenantRecord record{
      .tenant = TenantId::Make(parts_.random),
      .name = std::string(name),
      .created_unix_seconds = absl::ToUnixSeconds(parts_.clock->WallNow())};
  const ClusterRecord next = parts_.cluster->NextAdministrative();
  RETURN_IF_ERROR(parts_.store->Apply(
      {ClusterState::WriteOf(next),
       {Family::kTenants, std::string(record.tenant.view()), Encode(record)}},
      Store::Durability::kSynced));
  parts_.cluster->Install(next);
  MutexLock lock(&mutex_);
  Install(record);
  return record;
}

absl::StatusOr<Registry::Opened> Registry::OpenOrCreate(const Wanted& wanted) {
  RETURN_IF_ERROR(CheckWanted(wanted));
  NamespaceRecord record;
  {
    MutexLock lock(&mutex_);
    ASSIGN_OR_RETURN(const std::optional<NamespaceRecord> found,
                     FindVersion(wanted));
    if (found.has_value()) return Opened{.record = *found, .created = false};
    if (!tenants_.contains(wanted.tenant)) {
      return absl::NotFoundError("there is no such tenant");
    }
    const auto it = names_.find({wanted.tenant, wanted.name});
    const std::size_t versions = it == names_.end() ? 0 : it->second.size();
    if (namespaces_.size() >= options_.max_namespaces ||
        versions >= options_.max_versions_a_name) {
      return absl::ResourceExhaustedError(
          StrCat("namespace \"", wanted.name, "\" has ", versions,
                 " versions, of at most ", options_.max_versions_a_name,
                 "; there are ", namespaces_.size(), " namespaces, of at most ",
                 options_.max_namespaces));
    }
    record.facts.version = static_cast<std::uint32_t>(versions + 1);
  }
  ClusterRecord next = parts_.cluster->NextAdministrative();
  record.facts.name_space = NamespaceId::Make(parts_.random);
  record.facts.tenant = wanted.tenant;
  record.facts.name = wanted.name;
  record.facts.digest = MakeIdentityDigest(wanted.contract);
  record.facts.clear_epoch = ClearEpoch{1};
  record.facts.block_bytes = wanted.block_bytes;
  record.facts.chained = wanted.chained;
  record.facts.retention = wanted.retention;
  record.facts.strict_clear = wanted.strict_clear;
  record.contract = wanted.contract;
  record.created_unix_seconds = absl::ToUnixSeconds(parts_.clock->WallNow());
  record.changed_at = ++next.last_change;
  RETURN_IF_ERROR(Commit(next, {record}));
  MutexLock lock(&mutex_);
  return Opened{.record = WithTenantName(std::move(record)), .created = true};
}

absl::StatusOr<std::vector<NamespaceRecord>> Registry::Clear(
    TenantId tenant, std::string_view name, std::uint32_t version) {
  ASSIGN_OR_RETURN(std::vector<NamespaceRecord> records,
                   Versions(tenant, name, version));
  ClusterRecord next = parts_.cluster->NextAdministrative();
  for (NamespaceRecord& record : records) {
    ClearEpoch& epoch = record.facts.clear_epoch;
    if (epoch >= KeyIndex::kLastClearEpoch) {
      return absl::ResourceExhaustedError("no clear epoch is left");
    }
    epoch = ClearEpoch{static_cast<std::uint64_t>(epoch) + 1};
    record.changed_at = ++next.last_change;
  }
  RETURN_IF_ERROR(Commit(next, records));
  return records;
}

BackupState Registry::Backup() const {
  BackupState state;
  state.namespaces = ListNamespaces(nullptr);
  // As they decode again.
  for (NamespaceRecord& one : state.namespaces) one.facts.tenant_name.clear();
  for (TenantRow& row : ListTenants()) state.tenants.push_back(row.record);
  // As it is: what a node has seen that came after it is not in the backup.
  state.cluster = parts_.cluster->record();
  return state;
}

absl::Status Registry::Restore(const BackupState& backup) {
  std::vector<Store::Write> writes;
  {
    MutexLock lock(&mutex_);
    if (!namespaces_.empty()) {
      return absl::FailedPreconditionError(
          StrCat("this catalog has ", namespaces_.size(),
                 " namespaces; restore only into an empty one"));
    }
    for (const auto& [id, tenant] : tenants_) {
      writes.push_back({Family::kTenants, std::string(id.view()), {}});
    }
  }
  const ClusterRecord next = parts_.cluster->NextRestored(backup.cluster);
  writes.push_back(ClusterState::WriteOf(next));
  for (const TenantRecord& one : backup.tenants) {
    writes.push_back(
        {Family::kTenants, std::string(one.tenant.view()), Encode(one)});
  }
  for (const NamespaceRecord& one : backup.namespaces) {
    writes.push_back({Family::kNamespaces,
                      std::string(one.facts.name_space.view()), Encode(one)});
  }
  RETURN_IF_ERROR(parts_.store->Apply(writes, Store::Durability::kSynced));
  parts_.cluster->Install(next);
  MutexLock lock(&mutex_);
  tenants_.clear();
  tenant_names_.clear();
  Inherit(backup.tenants, backup.namespaces);
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> Registry::AcceptRestore() {
  ClusterRecord next = parts_.cluster->NextAccepted();
  // Every clear took a change number, so no namespace has missed more clears
  // than numbers were reported of which we know nothing.
  const std::uint64_t lost = next.last_change - parts_.cluster->last_change();
  const std::uint64_t margin = std::max(kRestoreMargin, lost + 1);
  // This raise counts as that many changes: an accept-restore of a state from
  // before it raises above it.
  next.last_change += margin;
  std::vector<NamespaceRecord> records;
  {
    MutexLock lock(&mutex_);
    for (const auto& [changed_at, id] : changes_) {
      NamespaceRecord record = namespaces_.at(id);
      const auto reported = reported_.find(id);
      ClearEpoch& epoch = record.facts.clear_epoch;
      if (reported != reported_.end())
        epoch = std::max(epoch, reported->second);
      epoch = std::min(ClearEpoch{static_cast<std::uint64_t>(epoch) + margin},
                       KeyIndex::kLastClearEpoch);
      record.changed_at = ++next.last_change;
      records.push_back(std::move(record));
    }
  }
  RETURN_IF_ERROR(Commit(next, records));
  return records.size();
}

}  // namespace firnkv
