// A whole catalog over a SimStore, called with encoded messages through a
// LocalChannel, in virtual time: what a node, a client or an administrator
// would send, as verbs.

#ifndef FIRNKV_TESTS_SERVER_CATALOG_SERVICE_FIXTURE_H_
#define FIRNKV_TESTS_SERVER_CATALOG_SERVICE_FIXTURE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/transport/local_channel.h"
#include "proto/admin.pb.h"
#include "proto/base/request.h"
#include "proto/base/token.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "server/catalog/catalog.h"
#include "tests/server/catalog/catalog_fixture.h"
#include "tests/support/sim_executor.h"

namespace firnkv {

inline const ClusterSecret kSecret{{1, 2, 3}};

class ServiceFixture : public testing::Test {
 protected:
  ServiceFixture() { Start(); }
  ~ServiceFixture() override { Stop(); }

  void Start() {
    Seams seams;
    seams.clock = world_.clock();
    seams.executor = &world_;
    seams.random = &random_;
    catalog_ = std::make_unique<Catalog>(options_, &store_, seams, kSecret);
    ASSERT_OK(catalog_->Start());
    channel_ = std::make_unique<LocalChannel>(&world_, catalog_->services());
  }
  void Stop() {
    channel_.reset();
    catalog_.reset();
  }
  void Restart() {
    Stop();
    Start();
  }

  std::string Token(Role role, TenantId tenant = {}) {
    return MintToken({.cluster = catalog_->cluster(),
                      .tenant = tenant,
                      .role = role,
                      .session = {},
                      .expires = world_.clock()->WallNow() + kTokenLife},
                     kSecret);
  }

  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(std::string_view service,
                                std::string_view method, std::string token,
                                Request request) {
    RequestHeader header;
    header.remaining = absl::Seconds(5);
    header.token = std::move(token);
    ToProto(header, request.mutable_header());
    std::optional<absl::StatusOr<std::string>> answer;
    channel_->StartCall(StrCat("/firnkv.v1.", service, "/", method),
                        request.SerializeAsString(), absl::Seconds(5),
                        [&](absl::StatusOr<std::string> response) {
                          answer = std::move(response);
                        });
    world_.RunUntil([&] { return answer.has_value(); });
    if (!answer->ok()) return answer->status();
    Response response;
    EXPECT_TRUE(response.ParseFromString(**answer));
    return response;
  }
  template <typename Response, typename Request>
  absl::StatusOr<Response> Catalogs(std::string_view method, std::string token,
                                    const Request& request) {
    return Call<Response>("CatalogService", method, std::move(token), request);
  }
  template <typename Response, typename Request>
  absl::StatusOr<Response> Admins(std::string_view method,
                                  const Request& request) {
    return Call<Response>("AdminService", method, Token(Role::kAdmin), request);
  }

  TenantId MakeTenant(const std::string& name) {
    v1::CreateTenantRequest request;
    request.set_name(name);
    auto response = Admins<v1::TenantResponse>("CreateTenant", request);
    EXPECT_OK(response);
    return *TenantId::FromBytes(response->tenant().tenant());
  }
  TenantId DefaultTenant() {
    v1::ShowTenantRequest request;
    request.set_name("default");
    auto response = Admins<v1::TenantResponse>("ShowTenant", request);
    EXPECT_OK(response);
    return *TenantId::FromBytes(response->tenant().tenant());
  }
  absl::StatusOr<v1::OpenNamespaceResponse> Open(TenantId tenant,
                                                 const std::string& name,
                                                 bool create = true,
                                                 bool strict_clear = false) {
    v1::OpenNamespaceRequest request;
    request.set_name(name);
    ToProto(TestContract(), request.mutable_contract());
    request.set_create(create);
    request.set_strict_clear(strict_clear);
    return Catalogs<v1::OpenNamespaceResponse>(
        "OpenNamespace", Token(Role::kTenant, tenant), request);
  }

  struct Member {
    NodeAddress address;
    std::string registration;
    std::uint64_t cursor = 0;
    std::uint64_t drained = 0;
    std::uint64_t number = 0;
    std::uint64_t removals_done = 0;
    // As the registration began.
    bool kept = false;
    // What it has seen of the catalog.
    v1::Incarnation seen;
  };
  v1::RegisterRequest RegisterRequestOf(std::uint8_t node,
                                        std::uint64_t epoch) {
    v1::RegisterRequest request;
    Handshake ours;
    ours.cluster = catalog_->cluster();
    ours.test_vector = HandshakeTestVector();
    ToProto(ours, request.mutable_handshake());
    ToProto(AddressOf(node, epoch), request.mutable_node());
    return request;
  }
  Member Register(std::uint8_t node, std::uint64_t epoch) {
    Member member;
    member.address = AddressOf(node, epoch);
    auto response = Catalogs<v1::RegisterResponse>(
        "Register", Token(Role::kNode), RegisterRequestOf(node, epoch));
    EXPECT_OK(response);
    member.registration = response->registration();
    member.cursor = response->namespace_cursor();
    member.drained = member.cursor;
    member.kept = response->kept();
    member.seen = response->incarnation();
    return member;
  }
  Member Join(std::uint8_t node, std::uint64_t epoch) {
    Member member = Register(node, epoch);
    Announce(&member, v1::AnnounceRequest::INVENTORY_BEGIN, {}, {});
    Announce(&member, v1::AnnounceRequest::INVENTORY_END, {}, {});
    return member;
  }
  absl::StatusOr<v1::KeepAliveResponse> KeepAlive(Member* member) {
    v1::KeepAliveRequest request;
    request.set_node(IdToProto(member->address.node));
    request.set_epoch(static_cast<std::uint64_t>(member->address.epoch));
    request.set_registration(member->registration);
    request.set_namespace_cursor(member->cursor);
    request.set_drained_cursor(member->drained);
    request.set_removals_done(member->removals_done);
    *request.mutable_seen() = member->seen;
    auto response = Catalogs<v1::KeepAliveResponse>(
        "KeepAlive", Token(Role::kNode), request);
    if (response.ok()) {
      member->cursor = response->namespace_cursor();
      member->removals_done = response->removals();
      member->seen = response->incarnation();
    }
    return response;
  }
  v1::AnnounceRequest BatchOf(const Member& member,
                              v1::AnnounceRequest::Kind kind,
                              const v1::NamespaceFacts& facts,
                              const std::vector<std::uint64_t>& keys) {
    v1::AnnounceRequest request;
    request.set_node(IdToProto(member.address.node));
    request.set_epoch(static_cast<std::uint64_t>(member.address.epoch));
    request.set_registration(member.registration);
    request.set_number(member.number + 1);
    request.set_kind(kind);
    if (!keys.empty()) {
      request.set_name_spaces(facts.name_space());
      request.add_clear_epochs(facts.clear_epoch());
    }
    std::vector<BlockRow> rows;
    for (const std::uint64_t key : keys) {
      rows.push_back({.key = Key(key), .place = {}, .length = 4096});
      request.add_name_space_indexes(0);
      request.mutable_operations()->push_back(1);
      request.add_generations(key + 1);
      request.mutable_tiers()->push_back(0);
    }
    ToProto(rows, request.mutable_blocks());
    return request;
  }
  void Announce(Member* member, v1::AnnounceRequest::Kind kind,
                const v1::NamespaceFacts& facts,
                const std::vector<std::uint64_t>& keys) {
    auto response = Catalogs<v1::AnnounceResponse>(
        "Announce", Token(Role::kNode), BatchOf(*member, kind, facts, keys));
    ASSERT_OK(response);
    ASSERT_EQ(response->applied(), ++member->number);
  }
  void Publish(Member* member, const v1::NamespaceFacts& facts,
               const std::vector<std::uint64_t>& keys) {
    Announce(member, v1::AnnounceRequest::EVENTS, facts, keys);
  }

  absl::StatusOr<v1::LocateResponse> Locate(
      std::string token, const v1::NamespaceFacts& facts,
      const std::vector<std::uint64_t>& keys, bool leading_run = false) {
    v1::LocateRequest request;
    request.set_name_space(facts.name_space());
    request.set_clear_epoch(facts.clear_epoch());
    for (const std::uint64_t key : keys) {
      request.mutable_keys()->append(Key(key).view());
    }
    request.set_leading_run(leading_run);
    return Catalogs<v1::LocateResponse>("Locate", std::move(token), request);
  }
  std::vector<Outcome> OutcomesOf(TenantId tenant,
                                  const v1::NamespaceFacts& facts,
                                  const std::vector<std::uint64_t>& keys,
                                  bool leading_run = false) {
    auto response =
        Locate(Token(Role::kTenant, tenant), facts, keys, leading_run);
    EXPECT_OK(response);
    auto outcomes = OutcomesFromProto(response->outcomes(), keys.size());
    EXPECT_OK(outcomes);
    return *outcomes;
  }
  absl::StatusOr<v1::ClearNamespaceResponse> Clear(const std::string& name,
                                                   bool report_only = false) {
    v1::ClearNamespaceRequest request;
    request.set_tenant_name("default");
    request.set_name(name);
    request.set_report_only(report_only);
    return Admins<v1::ClearNamespaceResponse>("ClearNamespace", request);
  }
  v1::CatalogStatusResponse CatalogStatus() {
    auto response = Admins<v1::CatalogStatusResponse>(
        "CatalogStatus", v1::CatalogStatusRequest());
    EXPECT_OK(response);
    return *std::move(response);
  }

  SimExecutor world_;
  SeededRandom random_{7};
  SimStore store_;
  CatalogOptions options_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<LocalChannel> channel_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_CATALOG_SERVICE_FIXTURE_H_
