// The catalog's services (proto/catalog.proto, proto/admin.proto): calls with a
// right token of some role, or with none, on a whole catalog.

#include "tests/fuzz/fuzz_catalog.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace firnkv {
namespace {

constexpr int kMostCalls = 4;

// In the low bits of a call's flags: whose token it has; 3: its own bytes.
constexpr std::uint8_t kWho = 3;
constexpr std::uint8_t kAsIs = 3;

Role RoleOf(std::uint8_t flags) {
  return static_cast<Role>(1 + (flags & kWho));
}

template <typename Request>
void Call(FuzzCatalog* catalog, std::string_view service,
          std::string_view method, std::uint8_t flags, std::string_view bytes) {
  std::string sent(bytes);
  Request request;
  if ((flags & kWho) != kAsIs && request.ParseFromString(sent)) {
    *request.mutable_header() = catalog->HeaderOf(RoleOf(flags));
    sent = request.SerializeAsString();
  }
  (void)catalog->CallRaw(service, method, sent);
}

struct Method {
  std::string_view service;
  std::string_view name;
  void (*call)(FuzzCatalog*, std::string_view, std::string_view, std::uint8_t,
               std::string_view);
};

constexpr std::string_view kCatalog = "CatalogService";
constexpr std::string_view kAdmin = "AdminService";

constexpr Method kMethods[] = {
    {kCatalog, "Connect", Call<v1::ConnectRequest>},
    {kCatalog, "OpenNamespace", Call<v1::OpenNamespaceRequest>},
    {kCatalog, "DescribeNamespaces", Call<v1::DescribeNamespacesRequest>},
    {kCatalog, "DescribeTenants", Call<v1::DescribeTenantsRequest>},
    {kCatalog, "Register", Call<v1::RegisterRequest>},
    {kCatalog, "KeepAlive", Call<v1::KeepAliveRequest>},
    {kCatalog, "Locate", Call<v1::LocateRequest>},
    {kCatalog, "Remove", Call<v1::CatalogRemoveRequest>},
    {kCatalog, "MintToken", Call<v1::MintTokenRequest>},
    {kCatalog, "CompareDigests", Call<v1::CompareDigestsRequest>},
    {kAdmin, "CreateTenant", Call<v1::CreateTenantRequest>},
    {kAdmin, "ListTenants", Call<v1::ListTenantsRequest>},
    {kAdmin, "ShowTenant", Call<v1::ShowTenantRequest>},
    {kAdmin, "CreateNamespace", Call<v1::CreateNamespaceRequest>},
    {kAdmin, "ListNamespaces", Call<v1::ListNamespacesRequest>},
    {kAdmin, "ShowNamespace", Call<v1::ShowNamespaceRequest>},
    {kAdmin, "ClearNamespace", Call<v1::ClearNamespaceRequest>},
    {kAdmin, "ListNodes", Call<v1::ListNodesRequest>},
    {kAdmin, "ExplainKey", Call<v1::ExplainKeyRequest>},
    {kAdmin, "CatalogStatus", Call<v1::CatalogStatusRequest>},
    {kAdmin, "Backup", Call<v1::BackupRequest>},
    {kAdmin, "Restore", Call<v1::RestoreRequest>},
    {kAdmin, "AcceptRestore", Call<v1::AcceptRestoreRequest>},
};

std::string CallOf(std::string_view name, Role role,
                   const google::protobuf::Message& request) {
  std::string call;
  WireWriter out(&call);
  const std::string bytes = request.SerializeAsString();
  for (std::size_t i = 0; i < std::size(kMethods); ++i) {
    if (kMethods[i].name == name) out.U8(static_cast<std::uint8_t>(i));
  }
  out.U8(static_cast<std::uint8_t>(static_cast<std::uint8_t>(role) - 1));
  out.U16(static_cast<std::uint16_t>(bytes.size()));
  out.Bytes(bytes);
  return call;
}

// Calls that read, or that a tenant or node makes.
std::vector<std::string> DataSeeds(FuzzCatalog* catalog) {
  const std::string id = catalog->facts().name_space();
  v1::OpenNamespaceRequest open;
  open.set_name("granite");
  ToProto(TestContract(), open.mutable_contract());
  open.set_create(true);
  v1::DescribeNamespacesRequest describe;
  describe.set_name_spaces(id);
  v1::DescribeTenantsRequest tenants;
  tenants.add_names("alice");
  v1::RegisterRequest boot = catalog->RegisterRequestOf(7, 70);
  v1::KeepAliveRequest beat;
  beat.set_node(boot.node().node());
  beat.set_epoch(70);
  beat.set_registration(std::string(16, 'r'));
  v1::LocateRequest locate;
  locate.set_name_space(id);
  locate.set_clear_epoch(1);
  locate.set_keys(IdToProto(Key(1)) + IdToProto(Key(9)));
  v1::CatalogRemoveRequest remove;
  remove.set_name_space(id);
  remove.set_keys(IdToProto(Key(9)));
  v1::MintTokenRequest mint;
  mint.set_tenant_name("alice");
  mint.set_role(1);
  v1::CompareDigestsRequest compare;
  compare.set_node(boot.node().node());
  compare.set_epoch(70);
  for (int i = 0; i < 256; ++i) compare.add_digests(0);
  return {CallOf("OpenNamespace", Role::kTenant, open),
          CallOf("DescribeNamespaces", Role::kNode, describe),
          CallOf("DescribeTenants", Role::kNode, tenants),
          CallOf("Register", Role::kNode, boot) +
              CallOf("KeepAlive", Role::kNode, beat),
          CallOf("Locate", Role::kTenant, locate),
          CallOf("Remove", Role::kTenant, remove),
          CallOf("MintToken", Role::kAdmin, mint),
          CallOf("CompareDigests", Role::kNode, compare)};
}

std::vector<std::string> AdminSeeds(FuzzCatalog* catalog) {
  v1::CreateTenantRequest create;
  create.set_name("carol");
  v1::ShowTenantRequest show;
  show.set_name("alice");
  v1::CreateNamespaceRequest made;
  made.set_tenant_name("alice");
  made.set_name("slate");
  ToProto(TestContract(), made.mutable_contract());
  v1::ClearNamespaceRequest clear;
  clear.set_tenant_name("alice");
  clear.set_name("granite");
  clear.set_report_only(true);
  v1::ExplainKeyRequest explain;
  explain.set_tenant_name("alice");
  explain.set_name("granite");
  explain.set_version(1);
  explain.set_key(IdToProto(Key(1)));
  v1::BackupRequest backup;
  *backup.mutable_header() = catalog->HeaderOf(Role::kAdmin);
  v1::BackupResponse saved;
  CHECK(saved.ParseFromString(
      *catalog->CallRaw("AdminService", "Backup", backup.SerializeAsString())));
  v1::RestoreRequest restore;
  restore.set_state(saved.state());
  return {
      CallOf("CreateTenant", Role::kAdmin, create) +
          CallOf("ListTenants", Role::kAdmin, v1::ListTenantsRequest()),
      CallOf("ShowTenant", Role::kAdmin, show),
      CallOf("CreateNamespace", Role::kAdmin, made) +
          CallOf("ListNamespaces", Role::kAdmin, v1::ListNamespacesRequest()),
      CallOf("ClearNamespace", Role::kAdmin, clear),
      CallOf("ListNodes", Role::kAdmin, v1::ListNodesRequest()),
      CallOf("ExplainKey", Role::kAdmin, explain),
      CallOf("CatalogStatus", Role::kAdmin, v1::CatalogStatusRequest()),
      CallOf("Backup", Role::kAdmin, v1::BackupRequest()),
      CallOf("Restore", Role::kAdmin, restore),
      CallOf("AcceptRestore", Role::kAdmin, v1::AcceptRestoreRequest())};
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  FuzzCatalog& catalog = FuzzCatalog::Fresh();
  std::vector<std::string> seeds = DataSeeds(&catalog);
  for (std::string& seed : AdminSeeds(&catalog)) {
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  FuzzCatalog& catalog = FuzzCatalog::Fresh();
  for (int i = 0; i < kMostCalls && !input.empty(); ++i) {
    const Method& method = kMethods[input.U8() % std::size(kMethods)];
    const std::uint8_t flags = input.U8();
    method.call(&catalog, method.service, method.name, flags,
                input.Bytes(input.U16()));
  }
  // Whatever an administrator has changed, it answers.
  v1::CatalogStatusRequest status;
  *status.mutable_header() = catalog.HeaderOf(Role::kAdmin);
  CHECK(
      catalog
          .CallRaw("AdminService", "CatalogStatus", status.SerializeAsString())
          .ok());
  return 0;
}
