#include "tools/bench/announce_client.h"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "proto/admin.pb.h"
#include "proto/base/limits.h"
#include "proto/base/request.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "tools/bench/bench_blocks.h"
#include "tools/firnkv/secret_file.h"

namespace firnkv {
namespace {

// What a node of this version says (server/catalog/entry_change.h).
constexpr char kPublish = 1;
constexpr char kDram = 0;

}  // namespace

absl::Status AnnounceClient::Meet(Role role) {
  if (cluster_.IsZero()) {
    ASSIGN_OR_RETURN(cluster_, catalog_->Connect("CatalogService"));
  }
  catalog_->set_token(
      MintToken({.cluster = cluster_,
                 .tenant = role == Role::kTenant ? tenant_ : TenantId{},
                 .role = role,
                 .expires = clock_.WallNow() + kTokenLife},
                secret_));
  return absl::OkStatus();
}

absl::StatusOr<Counts> AnnounceClient::Register(const Command& command) {
  catalog_ = std::make_unique<AdminClient>(
      &connector_, AdminClient::Options{.address = command.Text("catalog"),
                                        .token = {},
                                        .timeout = absl::Seconds(30)});
  ASSIGN_OR_RETURN(secret_, ReadSecretFile(command.Text("secret")));
  RETURN_IF_ERROR(OpenNamespace(command.Text("name"), command.Number("bytes")));
  RETURN_IF_ERROR(RegisterNode());
  RETURN_IF_ERROR(Send(Prepare(v1::AnnounceRequest::INVENTORY_BEGIN, 0)));
  RETURN_IF_ERROR(Send(Prepare(v1::AnnounceRequest::INVENTORY_END, 0)));
  return Counts();
}

absl::Status AnnounceClient::OpenNamespace(const std::string& name,
                                           std::uint64_t bytes) {
  RETURN_IF_ERROR(Meet(Role::kAdmin));
  v1::ShowTenantRequest show;
  show.set_name("default");
  ASSIGN_OR_RETURN(const auto tenant, catalog_->Call<v1::TenantResponse>(
                                          "AdminService/ShowTenant", show));
  ASSIGN_OR_RETURN(tenant_,
                   IdFromProto<TenantId>("tenant", tenant.tenant().tenant()));
  RETURN_IF_ERROR(Meet(Role::kTenant));
  const OpenNamespaceRequest wanted = BenchNamespace(name, bytes);
  v1::OpenNamespaceRequest open;
  open.set_name(wanted.name);
  ToProto(wanted.contract, open.mutable_contract());
  open.set_create(true);
  open.set_block_bytes(wanted.block_bytes);
  open.set_chained(wanted.chained);
  ASSIGN_OR_RETURN(const auto opened,
                   catalog_->Call<v1::OpenNamespaceResponse>(
                       "CatalogService/OpenNamespace", open));
  ASSIGN_OR_RETURN(name_space_, IdFromProto<NamespaceId>(
                                    "namespace", opened.facts().name_space()));
  name_ = name;
  clear_epoch_ = opened.facts().clear_epoch();
  block_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status AnnounceClient::RegisterNode() {
  RETURN_IF_ERROR(Meet(Role::kNode));
  NodeAddress address;
  address.node = NodeId::Make(&random_);
  address.epoch = NodeEpoch{random_.NonZero64()};
  // Where nobody listens: nobody reads what is announced here.
  address.stream_address = "127.0.0.1:1";
  address.control_address = "127.0.0.1:2";
  v1::RegisterRequest request;
  Handshake ours;
  ours.cluster = cluster_;
  ours.test_vector = HandshakeTestVector();
  ToProto(ours, request.mutable_handshake());
  ToProto(address, request.mutable_node());
  request.set_version("bench");
  ASSIGN_OR_RETURN(const auto answer, catalog_->Call<v1::RegisterResponse>(
                                          "CatalogService/Register", request));
  ASSIGN_OR_RETURN(registration_, IdFromProto<RegistrationId>(
                                      "registration", answer.registration()));
  node_ = address.node;
  epoch_ = static_cast<std::uint64_t>(address.epoch);
  batches_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<Counts> AnnounceClient::Keep(const Command&) {
  v1::KeepAliveRequest request;
  request.set_node(IdToProto(node_));
  request.set_epoch(epoch_);
  request.set_registration(IdToProto(registration_));
  request.set_applied(batches_);
  RETURN_IF_ERROR(
      catalog_->Call<v1::KeepAliveResponse>("CatalogService/KeepAlive", request)
          .status());
  return Counts();
}

v1::AnnounceRequest AnnounceClient::Prepare(int kind, std::uint64_t keys) {
  v1::AnnounceRequest request;
  request.set_node(IdToProto(node_));
  request.set_epoch(epoch_);
  request.set_registration(IdToProto(registration_));
  request.set_kind(static_cast<v1::AnnounceRequest::Kind>(kind));
  if (keys > 0) {
    *request.mutable_name_spaces() = IdToProto(name_space_);
    request.add_clear_epochs(clear_epoch_);
  }
  std::vector<BlockRow> rows;
  rows.reserve(keys);
  for (std::uint64_t i = 0; i < keys; ++i) {
    const Chain::Block block = BenchBlock(name_, next_key_++);
    rows.push_back({block.key, block.place, block_bytes_});
    request.add_name_space_indexes(0);
    request.mutable_operations()->push_back(kPublish);
    request.mutable_tiers()->push_back(kDram);
    request.add_generations(next_key_);
  }
  ToProto(rows, request.mutable_blocks());
  return request;
}

absl::Status AnnounceClient::Send(v1::AnnounceRequest request) {
  request.set_number(++batches_);
  ASSIGN_OR_RETURN(const auto answer, catalog_->Call<v1::AnnounceResponse>(
                                          "CatalogService/Announce", request));
  if (answer.refused_size() > 0) {
    return absl::FailedPreconditionError(
        StrCat(answer.refused_size(), " entries were refused"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Counts> AnnounceClient::Announce(const Command& command) {
  RETURN_IF_ERROR(Keep(command).status());
  const std::uint64_t upto = command.Number("upto");
  const auto prepare = [this, upto] {
    const std::uint64_t left =
        upto == 0 ? kMaxAnnouncementEntries : upto - next_key_;
    return Prepare(v1::AnnounceRequest::EVENTS,
                   std::min<std::uint64_t>(left, kMaxAnnouncementEntries));
  };
  std::uint64_t sent = 0;
  v1::AnnounceRequest next = prepare();
  const auto send = [&](int) -> absl::StatusOr<std::uint64_t> {
    sent += static_cast<std::uint64_t>(next.generations_size());
    std::future<v1::AnnounceRequest> after =
        std::async(std::launch::async, prepare);
    const absl::Status status = Send(std::move(next));
    next = after.get();
    RETURN_IF_ERROR(status);
    return 0;
  };
  Counts counts;
  if (upto == 0) {
    ASSIGN_OR_RETURN(counts, Measure(command, send));
  }
  while (upto != 0 && next.generations_size() > 0) {
    RETURN_IF_ERROR(send(0).status());
  }
  counts["keys"] = sent;
  return counts;
}

}  // namespace firnkv
