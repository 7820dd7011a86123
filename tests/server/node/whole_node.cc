#include "tests/server/node/whole_node.h"

#include <cstring>
#include <utility>

#include "proto/base/request.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

ClusterSecret SecretOfTheTest() {
  SeededRandom random(21);
  return ClusterSecret::Make(&random);
}

NodeId NodeOfTheTest() {
  SeededRandom random(22);
  return NodeId::Make(&random);
}

}  // namespace

WholeNodeTest::WholeNodeTest()
    : secret_(SecretOfTheTest()),
      catalog_machine_(world_.NewMachine("catalog", "catalog")),
      catalog_(secret_, catalog_machine_->process()->clock()),
      catalog_serving_(world_.control()->Serve(
          kCatalogAddress, catalog_machine_->process(), {&catalog_})),
      default_(catalog_.AddTenant("default")),
      alice_(catalog_.AddTenant("alice")),
      bob_(catalog_.AddTenant("bob")),
      granite_(catalog_.AddNamespace("alice")),
      state_(NodeOfTheTest()),
      caller_(world_.NewMachine("caller", "node")) {}

WholeNodeTest::~WholeNodeTest() { StopNode(); }

NodeOptions WholeNodeTest::DefaultOptions() const {
  NodeOptions options;
  options.socket = kSocket;
  options.stream = kStream;
  options.control = kTcpGrpc;
  options.plaintext_network = true;
  options.catalog = kCatalogAddress;
  options.uid_map = {"2001=alice", "2002=bob"};
  options.dram_bytes = 16 * kMiB;
  options.region_bytes = 4 * kMiB;
  options.dram_reserve_bytes = 0;
  options.own_uid = kNodeUid;
  return options;
}

void WholeNodeTest::StartNode(const NodeOptions& options) {
  machine_ =
      world_.NewMachine("node", "node", {.uid = kNodeUid, .uid_trusted = true});
  Node::Parts parts;
  parts.state = &state_;
  parts.secret = secret_;
  parts.on_superseded = [this] { superseded_ = true; };
  parts.on_drain = [this] { ++drains_asked_; };
  node_ = std::make_unique<Node>(options, machine_->seams(), std::move(parts));
  for (const char* address : {kSessionGrpc, kTcpGrpc}) {
    servings_.push_back(world_.control()->Serve(address, machine_->process(),
                                                node_->services()));
  }
  CHECK(node_->Start(kTcpGrpc).ok());
  if (!catalog_.silent) {
    CHECK(world_.executor()->RunUntil([this] { return node_->settled(); }));
  }
}

void WholeNodeTest::StopNode() {
  servings_.clear();
  node_.reset();
}

SimMachine* WholeNodeTest::NewClient(const PeerCredentials& credentials) {
  return world_.NewMachine(StrCat("client", ++clients_), "node", credentials);
}

std::unique_ptr<SessionPeer> WholeNodeTest::Connect(SimMachine* machine,
                                                    const std::string& token) {
  auto peer = std::make_unique<SessionPeer>(machine, kSocket);
  peer->Send(SessionPeer::Hello(catalog_.cluster, token));
  EXPECT_TRUE(world_.executor()->RunUntil(
      [&] { return !peer->got.empty() || peer->closed(); }));
  return peer;
}

std::string WholeNodeTest::TokenOf(Role role, TenantId tenant) {
  return MintToken(
      {.cluster = catalog_.cluster,
       .tenant = tenant,
       .role = role,
       .session = {},
       .expires = caller_->process()->clock()->WallNow() + absl::Minutes(10)},
      secret_);
}

v1::RequestHeader WholeNodeTest::HeaderOf(SessionId session,
                                          absl::Duration remaining) {
  v1::RequestHeader header;
  ToProto(RequestHeader{.remaining = remaining,
                        .traffic = TrafficClass::kForeground,
                        .trace = {},
                        .session = session,
                        .token = {}},
          &header);
  return header;
}

absl::StatusOr<std::string> WholeNodeTest::CallRaw(std::string_view address,
                                                   std::string_view method,
                                                   std::string request) {
  auto& channel = channels_[std::string(address)];
  if (channel == nullptr) {
    channel = caller_->seams().control->Connect(address);
  }
  bool done = false;
  absl::StatusOr<std::string> got;
  channel->StartCall(StrCat("/firnkv.v1.NodeService/", method),
                     std::move(request), absl::Seconds(30),
                     [&](absl::StatusOr<std::string> response) {
                       got = std::move(response);
                       done = true;
                     });
  CHECK(world_.executor()->RunUntil([&] { return done; }));
  return got;
}

v1::ReserveRequest WholeNodeTest::ReserveOf(SessionId session,
                                            const NamespaceFacts& facts,
                                            std::uint64_t n,
                                            std::uint64_t bytes) {
  v1::ReserveRequest request;
  *request.mutable_header() = HeaderOf(session);
  request.set_name_space(IdToProto(facts.name_space));
  const BlockRow row{KeyOf(n), ChainPlace{.anchor = KeyOf(n)}, bytes};
  ToProto(absl::Span<const BlockRow>(&row, 1), request.mutable_blocks());
  request.set_reservation_millis(10'000);
  return request;
}

v1::CommitRequest WholeNodeTest::CommitOf(SessionId session,
                                          std::uint64_t reservation,
                                          std::uint64_t n,
                                          std::uint64_t bytes) {
  v1::CommitRequest request;
  *request.mutable_header() = HeaderOf(session);
  request.set_reservation(reservation);
  request.add_indexes(0);
  request.add_extent_counts(1);
  request.add_extent_stagings(next_staging_);
  request.add_extent_offsets(0);
  request.add_extent_lengths(bytes);
  for (const std::uint32_t piece : PieceChecksums(ContentOf(n, bytes))) {
    request.add_pieces(piece);
  }
  return request;
}

v1::OpenReadRequest WholeNodeTest::OpenOf(SessionId session,
                                          const NamespaceFacts& facts,
                                          std::uint64_t n) {
  v1::OpenReadRequest request;
  *request.mutable_header() = HeaderOf(session);
  request.set_name_space(IdToProto(facts.name_space));
  request.set_keys(IdToProto(KeyOf(n)));
  request.set_lease_millis(5000);
  return request;
}

std::shared_ptr<SharedMemory> WholeNodeTest::LendStaging(SessionPeer* session,
                                                         std::uint64_t id,
                                                         std::uint64_t n,
                                                         std::uint64_t bytes) {
  auto memory = machine_->memory()->Make(MemoryKindWanted::kStaging, "staging",
                                         AlignUp(bytes, kPageBytes));
  CHECK(memory.ok());
  auto mapping = (*memory)->Map(MapAccess::kReadWrite);
  CHECK(mapping.ok());
  const std::vector<std::byte> content = ContentOf(n, bytes);
  std::memcpy((*mapping)->bytes().data(), content.data(), bytes);
  const std::size_t before = session->got.size();
  session->AddStaging(id, *memory, (*memory)->bytes());
  EXPECT_TRUE(world_.executor()->RunUntil(
      [&] { return session->got.size() > before || session->closed(); }));
  return *memory;
}

Outcome WholeNodeTest::Write(SessionPeer* session, const NamespaceFacts& facts,
                             std::uint64_t n, std::uint64_t bytes) {
  const SessionId id = session->id();
  const auto reserved =
      Call<v1::ReserveResponse>("Reserve", ReserveOf(id, facts, n, bytes));
  CHECK(reserved.ok());
  const auto outcome = static_cast<Outcome>(reserved->outcomes()[0]);
  if (outcome != Outcome::kStored) return outcome;
  LendStaging(session, ++next_staging_, n, bytes);
  const auto committed = Call<v1::CommitResponse>(
      "Commit", CommitOf(id, reserved->reservation(), n, bytes));
  CHECK(committed.ok());
  v1::ClientMessage drop;
  drop.mutable_drop_staging()->set_staging(next_staging_);
  session->Send(drop);
  return static_cast<Outcome>(committed->outcomes()[0]);
}

Outcome WholeNodeTest::Read(SessionPeer* session, const NamespaceFacts& facts,
                            std::uint64_t n) {
  const auto opened =
      Call<v1::OpenReadResponse>("OpenRead", OpenOf(session->id(), facts, n));
  CHECK(opened.ok());
  if (opened->lease() != 0) {
    v1::ReleaseRequest release;
    *release.mutable_header() = HeaderOf(session->id());
    release.add_leases(opened->lease());
    CHECK(Call<v1::ReleaseResponse>("Release", release).ok());
  }
  return static_cast<Outcome>(opened->outcomes()[0]);
}

v1::NodeStatusResponse WholeNodeTest::Status() {
  v1::NodeStatusRequest request;
  *request.mutable_header() = HeaderOf({});
  request.mutable_header()->set_token(TokenOf(Role::kAdmin));
  const auto status = Call<v1::NodeStatusResponse>("Status", request, kTcpGrpc);
  CHECK(status.ok());
  return *status;
}

}  // namespace firnkv
