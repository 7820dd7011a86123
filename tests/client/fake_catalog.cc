#include <algorithm>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/contract.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/request.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "tests/client/fake_node.h"

namespace firnkv {
namespace {

std::vector<BlockKey> Keys(const std::string& column) {
  auto keys = KeysFromProto("keys", column);
  EXPECT_TRUE(keys.ok()) << keys.status();
  return keys.ok() ? *std::move(keys) : std::vector<BlockKey>();
}

}  // namespace

FakeCatalog::FakeCatalog(SimWorld* world, ClusterId cluster)
    : cluster_(cluster) {
  SimMachine* const machine = world->NewMachine("catalog", "catalog");
  name_space = NamespaceId::Make(machine->seams().random);
  serving_ =
      world->control()->Serve(kFakeCatalogAddress, machine->process(), {this});
}

FakeCatalog::~FakeCatalog() = default;

void FakeCatalog::Locate(const BlockId& block, const NodeAddress& node,
                         std::uint64_t length) {
  locations_[block].emplace_back(node, length);
}

void FakeCatalog::Handle(std::string_view method, const ControlPeer&,
                         std::string_view request, ControlReply reply) {
  const std::string name(method.substr(method.rfind('/') + 1));
  ++calls[name];
  if (silent.contains(name)) {
    unanswered_.push_back(std::move(reply));
    return;
  }
  const std::string bytes(request);
  if (const auto it = instead.find(name); it != instead.end()) {
    return std::move(reply)(it->second(bytes));
  }
  auto answer = Answer(name, bytes);
  const auto it = tamper.find(name);
  if (answer.ok() && it != tamper.end()) it->second(&*answer);
  std::move(reply)(std::move(answer));
}

absl::StatusOr<std::string> FakeCatalog::Answer(const std::string& method,
                                                const std::string& request) {
  if (method == "Connect") {
    v1::ConnectRequest message;
    EXPECT_TRUE(message.ParseFromString(request));
    tokens.push_back(message.header().token());
    Handshake handshake;
    handshake.cluster = cluster_;
    handshake.test_vector = HandshakeTestVector();
    v1::ConnectResponse response;
    ToProto(handshake, response.mutable_handshake());
    response.set_agreed_protocol(1);
    return response.SerializeAsString();
  }
  if (method == "OpenNamespace") return OpenNamespace(request);
  if (method == "Locate") return LocateAnswer(request);
  if (method == "Place") return PlaceAnswer(request);
  if (method == "Remove") {
    v1::CatalogRemoveRequest message;
    EXPECT_TRUE(message.ParseFromString(request));
    const auto id = *IdFromProto<NamespaceId>("ns", message.name_space());
    std::vector<Outcome> outcomes;
    for (const BlockKey& key : Keys(message.keys())) {
      const bool known = locations_.contains(BlockId{id, key});
      outcomes.push_back(known ? Outcome::kHit : Outcome::kMiss);
    }
    v1::CatalogRemoveResponse response;
    response.set_outcomes(OutcomesToProto(outcomes));
    response.set_pending(static_cast<std::uint32_t>(
        std::count(outcomes.begin(), outcomes.end(), Outcome::kHit)));
    return response.SerializeAsString();
  }
  return absl::UnimplementedError(method);
}

absl::StatusOr<std::string> FakeCatalog::OpenNamespace(
    const std::string& request) {
  v1::OpenNamespaceRequest message;
  EXPECT_TRUE(message.ParseFromString(request));
  NamespaceFacts facts;
  facts.name_space = name_space;
  facts.tenant.bytes.fill('t');
  facts.tenant_name = "default";
  facts.name = message.name();
  facts.version = 1;
  facts.digest = MakeIdentityDigest(*FromProto(message.contract()));
  facts.clear_epoch = ClearEpoch{1};
  facts.block_bytes = message.block_bytes();
  facts.chained = message.chained();
  v1::OpenNamespaceResponse response;
  ToProto(facts, response.mutable_facts());
  response.set_created(true);
  return response.SerializeAsString();
}

absl::StatusOr<std::string> FakeCatalog::PlaceAnswer(
    const std::string& request) {
  v1::PlaceRequest message;
  EXPECT_TRUE(message.ParseFromString(request));
  v1::PlaceResponse response;
  response.set_clear_epoch(1);
  for (const NodeAddress& node : takers) {
    if (message.excluded_nodes().find(IdToProto(node.node)) !=
        std::string::npos) {
      continue;
    }
    ToProto(node, response.add_nodes());
    for (int i = 0; i < message.lengths_size(); ++i) {
      response.add_node_indexes(0);
    }
    return response.SerializeAsString();
  }
  return absl::UnavailableError("no node is alive to take blocks");
}

absl::StatusOr<std::string> FakeCatalog::LocateAnswer(
    const std::string& request) {
  v1::LocateRequest message;
  EXPECT_TRUE(message.ParseFromString(request));
  const auto id = *IdFromProto<NamespaceId>("ns", message.name_space());
  v1::LocateResponse response;
  std::vector<Outcome> outcomes;
  std::vector<LocationRow> rows;
  std::vector<NodeAddress> nodes;
  bool over = false;
  for (const BlockKey& key : Keys(message.keys())) {
    const auto it = locations_.find(BlockId{id, key});
    if (over || it == locations_.end()) {
      outcomes.push_back(over ? Outcome::kSkipped : Outcome::kMiss);
      over = over || message.leading_run();
      continue;
    }
    outcomes.push_back(Outcome::kHit);
    response.add_location_counts(static_cast<std::uint32_t>(it->second.size()));
    for (const auto& [node, length] : it->second) {
      auto at = std::find(nodes.begin(), nodes.end(), node);
      if (at == nodes.end()) at = nodes.insert(nodes.end(), node);
      rows.push_back({.node = static_cast<std::uint32_t>(at - nodes.begin()),
                      .tier = 0,
                      .generation = Generation{5},
                      .length = length});
    }
  }
  response.set_outcomes(OutcomesToProto(outcomes));
  ToProto(rows, response.mutable_locations());
  for (const NodeAddress& node : nodes) ToProto(node, response.add_nodes());
  response.set_clear_epoch(1);
  return response.SerializeAsString();
}

}  // namespace firnkv
