#include "server/catalog/backup.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/sha256.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"
#include "server/catalog/key_index.h"
#include "server/catalog/registry.h"

namespace firnkv {
namespace {

constexpr std::string_view kMagic("FirnKV backup\0\n", 15);
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kDigestBytes = 32;

void PutRecord(std::string_view record, WireWriter* out) {
  out->U32(static_cast<std::uint32_t>(record.size()));
  out->Bytes(record);
}

std::string_view TakeRecord(WireReader* in) {
  const std::uint32_t size = in->U32();
  return in->Bytes(size);
}

absl::Status NoBackup(std::string_view why) {
  return absl::InvalidArgumentError(StrCat("no usable backup: ", why));
}

std::string DigestOf(std::string_view bytes) {
  const Sha256Bytes digest = Sha256(bytes);
  return std::string(digest.begin(), digest.end());
}

// What Restore relies on; see the header.
absl::Status CheckConsistent(const BackupState& state) {
  if (state.cluster.cluster.IsZero()) return NoBackup("no cluster id");
  std::set<TenantId> tenants;
  std::set<std::string> names;
  for (const TenantRecord& tenant : state.tenants) {
    RETURN_IF_ERROR(CheckName("tenant", tenant.name));
    if (tenant.tenant.IsZero() || !tenants.insert(tenant.tenant).second ||
        !names.insert(tenant.name).second) {
      return NoBackup("a tenant twice");
    }
  }
  std::set<NamespaceId> ids;
  std::map<std::pair<TenantId, std::string>, std::vector<std::uint32_t>>
      versions;
  std::set<std::uint64_t> changes;
  for (const NamespaceRecord& record : state.namespaces) {
    const NamespaceFacts& facts = record.facts;
    RETURN_IF_ERROR(CheckName("namespace", facts.name));
    RETURN_IF_ERROR(Validate(record.contract));
    if (!tenants.contains(facts.tenant)) return NoBackup("no such tenant");
    if (facts.name_space.IsZero() || !ids.insert(facts.name_space).second) {
      return NoBackup("a namespace twice");
    }
    if (facts.clear_epoch == ClearEpoch::kUnknown ||
        facts.clear_epoch > KeyIndex::kLastClearEpoch ||
        record.changed_at > state.cluster.last_change ||
        !changes.insert(record.changed_at).second) {
      return NoBackup("impossible numbers in a namespace");
    }
    versions[{facts.tenant, facts.name}].push_back(facts.version);
  }
  for (auto& [name, numbers] : versions) {
    std::sort(numbers.begin(), numbers.end());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] != i + 1) return NoBackup("a version is missing");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BackupState> StateOf(std::string_view body) {
  WireReader in(body);
  BackupState state;
  ASSIGN_OR_RETURN(state.cluster, DecodeCluster(TakeRecord(&in)));
  const std::uint32_t tenants = in.U32();
  for (std::uint32_t i = 0; i < tenants; ++i) {
    ASSIGN_OR_RETURN(TenantRecord tenant, DecodeTenant(TakeRecord(&in)));
    state.tenants.push_back(std::move(tenant));
  }
  const std::uint32_t namespaces = in.U32();
  for (std::uint32_t i = 0; i < namespaces; ++i) {
    ASSIGN_OR_RETURN(NamespaceRecord one, DecodeNamespace(TakeRecord(&in)));
    state.namespaces.push_back(std::move(one));
  }
  if (!in.AtEnd()) return NoBackup("wrong length");
  return state;
}

}  // namespace

std::string EncodeBackup(const BackupState& state) {
  std::string body;
  WireWriter out(&body);
  PutRecord(Encode(state.cluster), &out);
  out.U32(static_cast<std::uint32_t>(state.tenants.size()));
  for (const TenantRecord& one : state.tenants) PutRecord(Encode(one), &out);
  out.U32(static_cast<std::uint32_t>(state.namespaces.size()));
  for (const NamespaceRecord& one : state.namespaces) {
    PutRecord(Encode(one), &out);
  }

  std::string blob(kMagic);
  WireWriter lead(&blob);
  lead.U16(kVersion);
  lead.U64(body.size());
  lead.Bytes(body);
  return StrCat(blob, DigestOf(blob));
}

absl::StatusOr<BackupState> DecodeBackup(std::string_view blob) {
  if (blob.size() < kMagic.size() + 2 + 8 + kDigestBytes ||
      blob.substr(0, kMagic.size()) != kMagic) {
    return NoBackup("not written by `firnkv catalog backup`");
  }
  WireReader lead(blob.substr(kMagic.size()));
  const std::uint16_t version = lead.U16();
  if (version != kVersion) {
    return absl::FailedPreconditionError(
        StrCat("backup of format ", version, "; this build reads ", kVersion));
  }
  const std::uint64_t body_bytes = lead.U64();
  if (lead.left() != body_bytes + kDigestBytes) return NoBackup("cut short");
  const std::string_view digest = blob.substr(blob.size() - kDigestBytes);
  if (DigestOf(blob.substr(0, blob.size() - kDigestBytes)) != digest) {
    return NoBackup("its checksum differs");
  }

  const absl::StatusOr<BackupState> state =
      StateOf(lead.Bytes(static_cast<std::size_t>(body_bytes)));
  // Whoever made this blob wrote bad records: no disk of ours is damaged.
  if (absl::IsDataLoss(state.status())) {
    return NoBackup(ToStd(state.status().message()));
  }
  RETURN_IF_ERROR(state.status());
  RETURN_IF_ERROR(CheckConsistent(*state));
  return state;
}

}  // namespace firnkv
