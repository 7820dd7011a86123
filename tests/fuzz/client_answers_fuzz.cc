// What the SDK makes of its peers' answers: the node's messages of the local
// session, and control answers of node and catalog. A call ends once, and what
// it ends with is of the size that was asked for.

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "client/catalog_client.h"
#include "client/frame_calls.h"
#include "client/node_client.h"
#include "client/session_messages.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/session_frame.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "proto/node.pb.h"
#include "proto/session.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/proto/samples.h"
#include "tests/support/sim_executor.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t {
  kSessionMessage,
  kOpenRead,
  kReserve,
  kCommit,
  kExists,
  kNodeRemove,
  kCatalogConnect,
  kOpenNamespace,
  kLocate,
  kCatalogRemove,
  kParts,
};

// Added to a part: the answer is a frame's body without its checksum.
constexpr std::uint8_t kFramed = 0x80;

constexpr std::size_t kKeys = 3;
const ClusterId kCluster = CountingId<ClusterId>(1);

std::vector<BlockKey> Keys() {
  std::vector<BlockKey> keys;
  for (std::uint8_t i = 0; i < kKeys; ++i) {
    keys.push_back(CountingId<BlockKey>(static_cast<std::uint8_t>(0x20 + i)));
  }
  return keys;
}

std::string ConnectAnswer() {
  Handshake handshake;
  handshake.cluster = kCluster;
  handshake.test_vector = HandshakeTestVector();
  v1::ConnectResponse answer;
  ToProto(handshake, answer.mutable_handshake());
  answer.set_agreed_protocol(1);
  return answer.SerializeAsString();
}

// Answers the handshake of a catalog truly, and everything else with `bytes`.
class Answers : public ControlConnector {
 public:
  Answers(std::string bytes, bool shakes_hands)
      : bytes_(std::move(bytes)), shakes_hands_(shakes_hands) {}
  std::unique_ptr<ControlChannel> Connect(std::string_view) override {
    return std::make_unique<Channel>(this);
  }

 private:
  class Channel : public ControlChannel {
   public:
    explicit Channel(const Answers* owner) : owner_(*owner) {}
    void StartCall(std::string_view method, std::string, absl::Duration,
                   ControlReply done) override {
      const bool connect = method.find("/Connect") != std::string_view::npos;
      std::move(done)(connect && owner_.shakes_hands_ ? ConnectAnswer()
                                                      : owner_.bytes_);
    }

   private:
    const Answers& owner_;
  };
  const std::string bytes_;
  const bool shakes_hands_;
};

// Answers every call of the session with a frame of that body.
class FrameAnswers : public CallLine {
 public:
  FrameAnswers(std::string body, Executor* executor, FrameCalls* calls)
      : body_(std::move(body)), executor_(executor), calls_(calls) {}
  absl::Status SendPacket(std::uint64_t, std::string packet) override {
    const absl::StatusOr<CallFrame> call = DecodeCallPacket(packet);
    CHECK(call.ok());
    const auto answer =
        static_cast<FrameType>(static_cast<std::uint16_t>(call->type) + 1);
    executor_->Post([this, answer, request = call->request] {
      (void)calls_->OnFrame(EncodeCallPacket(answer, request, body_));
    });
    return absl::OkStatus();
  }
  bool ReceiveHere(std::uint64_t,
                   absl::FunctionRef<LocalSocket::Taken(std::string_view)>,
                   absl::FunctionRef<bool()>) override {
    return false;
  }
  void StopReceiving(std::uint64_t) override {}

 private:
  const std::string body_;
  Executor* const executor_;
  FrameCalls* const calls_;
};

struct World {
  World(std::string_view bytes, bool shakes_hands, bool framed)
      : answers(std::string(bytes), shakes_hands),
        node(Filled(&seams), &counters),
        frames(WithCrc(std::string(bytes)), &executor, node.frames()),
        catalog(&seams, &counters, [] { return std::string("token"); }) {
    context.deadline = executor.Now() + absl::Seconds(1);
    node.Attach(CountingId<SessionId>(3), "unix:node",
                framed ? &frames : nullptr, 0);
    catalog.SetAddress("catalog", kCluster);
  }

  // Before anything is made over them.
  Seams* Filled(Seams* some) {
    some->clock = executor.clock();
    some->executor = &executor;
    some->random = &random;
    some->control = &answers;
    return some;
  }

  SimExecutor executor;
  SeededRandom random{1};
  Answers answers;
  Seams seams;
  ClientCounters counters;
  CallContext context;
  NodeClient node;
  FrameAnswers frames;
  CatalogClient catalog;
};

// A completion that may run once, and must.
template <typename Answer>
class Once {
 public:
  auto done() {
    return [this](absl::StatusOr<Answer> answer) {
      CHECK(!answer_.has_value());
      answer_ = std::move(answer);
    };
  }
  // Null where the answer was refused.
  const Answer* Take(World* world) {
    world->executor.RunFor(absl::Seconds(2));
    CHECK(answer_.has_value());
    return answer_->ok() ? &**answer_ : nullptr;
  }

 private:
  std::optional<absl::StatusOr<Answer>> answer_;
};

void TryOpenRead(World* world) {
  Once<NodeClient::OpenReadAnswer> once;
  world->node.StartOpenRead(world->context,
                            {.name_space = CountingId<NamespaceId>(0x10),
                             .clear_epoch = ClearEpoch{1},
                             .keys = Keys(),
                             .leading_run = false,
                             .lease = absl::Seconds(5)},
                            once.done());
  const auto* const answer = once.Take(world);
  if (answer == nullptr) return;
  CHECK(answer->grants.size() == kKeys);
  for (const NodeClient::Grant& grant : answer->grants) {
    CHECK(grant.outcome >= Outcome::kHit &&
          grant.outcome <= Outcome::kStaleLocation);
    if (grant.outcome != Outcome::kHit) {
      CHECK(grant.extents.empty());
      continue;
    }
    CHECK(answer->lease != 0 && grant.generation != Generation::kNone);
    CHECK(grant.length > 0 && grant.length <= kLargestBlockBytes);
    std::uint64_t sum = 0;
    for (const Extent& extent : grant.extents) {
      CHECK(extent.length > 0 && extent.length <= grant.length);
      sum += extent.length;
    }
    CHECK(sum == grant.length);
  }
}

void TryReserve(World* world) {
  Once<NodeClient::ReserveAnswer> once;
  NodeClient::ReserveCall call;
  call.name_space = CountingId<NamespaceId>(0x10);
  for (const BlockKey& key : Keys()) call.blocks.push_back({key, {}, 4096});
  world->node.StartReserve(world->context, call, once.done());
  const auto* const answer = once.Take(world);
  if (answer == nullptr) return;
  CHECK(answer->outcomes.size() == kKeys);
  for (const Outcome outcome : answer->outcomes) {
    CHECK(outcome != Outcome::kUnset);
    if (outcome == Outcome::kStored) CHECK(answer->reservation != 0);
  }
}

void TryCommit(World* world) {
  Once<NodeClient::CommitAnswer> once;
  NodeClient::CommitCall call;
  call.session = CountingId<SessionId>(3);
  call.reservation = 9;
  call.blocks.resize(kKeys);
  world->node.StartCommit(world->context, call, once.done());
  const auto* const answer = once.Take(world);
  if (answer != nullptr) CHECK(answer->outcomes.size() == kKeys);
}

void TryExists(World* world) {
  Once<NodeClient::ExistsAnswer> once;
  world->node.StartExists(world->context,
                          {.name_space = CountingId<NamespaceId>(0x10),
                           .clear_epoch = ClearEpoch{1},
                           .keys = Keys(),
                           .leading_run = true},
                          once.done());
  const auto* const answer = once.Take(world);
  if (answer != nullptr) CHECK(answer->found.size() == kKeys);
}

void TryNodeRemove(World* world) {
  Once<std::vector<Outcome>> once;
  world->node.StartRemove(world->context, CountingId<NamespaceId>(0x10), Keys(),
                          once.done());
  const auto* const answer = once.Take(world);
  if (answer != nullptr) CHECK(answer->size() == kKeys);
}

void TryOpenNamespace(World* world) {
  Once<CatalogClient::Opened> once;
  world->catalog.StartOpenNamespace(
      world->context, {.name = "granite", .contract = SampleContract()},
      once.done());
  const auto* const answer = once.Take(world);
  if (answer != nullptr) CHECK(!answer->facts.name_space.IsZero());
}

void TryLocate(World* world) {
  Once<CatalogClient::LocateAnswer> once;
  world->catalog.StartLocate(world->context,
                             {.name_space = CountingId<NamespaceId>(0x10),
                              .clear_epoch = ClearEpoch{1},
                              .keys = Keys(),
                              .anchors = Keys(),
                              .leading_run = false},
                             once.done());
  const auto* const answer = once.Take(world);
  if (answer == nullptr) return;
  CHECK(answer->found.size() == kKeys);
  for (const auto& found : answer->found) {
    CHECK((found.outcome == Outcome::kHit) == !found.locations.empty());
    for (const auto& location : found.locations) {
      CHECK(std::any_of(answer->nodes.begin(), answer->nodes.end(),
                        [&](const NodeAddress& node) {
                          return node.node == location.node &&
                                 node.epoch == location.epoch;
                        }));
    }
  }
}

void TryCatalogRemove(World* world) {
  Once<CatalogClient::Removed> once;
  world->catalog.StartRemove(world->context, CountingId<NamespaceId>(0x10),
                             Keys(), once.done());
  const auto* const answer = once.Take(world);
  if (answer != nullptr) CHECK(answer->outcomes.size() == kKeys);
}

void TrySessionMessage(std::string_view bytes) {
  const auto message = DecodeFromNode(bytes);
  if (!message.ok()) return;
  if (const auto* welcome = std::get_if<SessionWelcome>(&*message)) {
    CHECK(!welcome->session.IsZero() && welcome->epoch != NodeEpoch::kNone);
    CHECK(welcome->token.size() <= kMaxTokenBytes);
    CHECK(welcome->token_life >= absl::ZeroDuration());
  }
  if (const auto* refused = std::get_if<SessionRefused>(&*message)) {
    CHECK(!refused->reason.ok());
    CHECK(refused->reason.message().size() <= kMaxReasonBytes);
  }
  if (const auto* token = std::get_if<TokenIs>(&*message)) {
    CHECK(token->token.size() <= kMaxTokenBytes);
  }
}

// --- Seeds.

std::vector<std::string> SessionSeeds() {
  std::vector<std::string> seeds;
  v1::NodeMessage message;
  const auto put = [&] {
    seeds.push_back(Seed(kSessionMessage, message.SerializeAsString()));
    message.Clear();
  };
  v1::SessionWelcome& welcome = *message.mutable_welcome();
  Handshake handshake;
  handshake.cluster = kCluster;
  handshake.test_vector = HandshakeTestVector();
  ToProto(handshake, welcome.mutable_handshake());
  welcome.set_agreed_protocol(1);
  welcome.set_session(IdToProto(CountingId<SessionId>(3)));
  welcome.set_tenant(IdToProto(CountingId<TenantId>(2)));
  welcome.set_tenant_name("alice");
  welcome.set_node(IdToProto(CountingId<NodeId>(0x30)));
  welcome.set_epoch(0x99);
  welcome.set_mapping(true);
  welcome.set_stream_address("host:7411");
  welcome.set_token("token");
  welcome.set_token_life_seconds(3600);
  welcome.set_max_staging_bytes(1 << 20);
  welcome.set_max_stagings(8);
  welcome.set_control_address("unix:/run/node.control");
  put();
  message.mutable_refused()->set_code(7);
  message.mutable_refused()->set_reason("not yours");
  put();
  message.mutable_descriptor_is()->set_region(1);
  message.mutable_descriptor_is()->set_what(1);
  message.mutable_descriptor_is()->set_bytes(4096);
  put();
  message.mutable_descriptor_refused()->set_reason("no");
  put();
  message.mutable_staging_accepted()->set_staging(1);
  put();
  message.mutable_staging_refused()->set_reason("no");
  put();
  message.mutable_region_retired()->set_region(1);
  put();
  message.mutable_token_is()->set_token("token");
  put();
  return seeds;
}

std::string OpenReadSeed() {
  v1::OpenReadResponse answer;
  answer.set_outcomes(std::string("\1\2\1", kKeys));
  answer.set_lease(5);
  answer.set_lease_millis(5000);
  for (int i = 0; i < 2; ++i) {
    answer.add_generations(7);
    answer.add_lengths(8192);
    answer.add_extent_counts(1);
    answer.add_extent_regions(1);
    answer.add_extent_offsets(4096);
    answer.add_extent_lengths(8192);
  }
  answer.set_clear_epoch(1);
  return Seed(kOpenRead, answer.SerializeAsString());
}

std::vector<std::string> FrameSeeds() {
  CallOpenedBody opened = SampleCallOpened();
  opened.blocks.push_back(opened.blocks.back());
  CallReservedBody reserved = SampleCallReserved();
  reserved.outcomes.assign(kKeys, Outcome::kStored);
  return {
      Seed(kOpenRead | kFramed, WithoutCrc(EncodeCallOpened(opened))),
      Seed(kReserve | kFramed, WithoutCrc(EncodeCallReserved(reserved))),
      Seed(kCommit | kFramed,
           WithoutCrc(EncodeCallCommitted(
               {.retry_after = absl::Milliseconds(20),
                .outcomes = std::vector<Outcome>(kKeys, Outcome::kStored)})))};
}

std::string LocateSeed() {
  v1::LocateResponse answer;
  answer.set_outcomes(std::string("\1\2\1", kKeys));
  const std::vector<LocationRow> rows = {
      {.node = 0, .tier = 0, .generation = Generation{8}, .length = 4096},
      {.node = 1, .tier = 0, .generation = Generation{8}, .length = 4096},
      {.node = 1, .tier = 0, .generation = Generation{9}, .length = 4096}};
  answer.add_location_counts(2);
  answer.add_location_counts(1);
  ToProto(rows, answer.mutable_locations());
  for (std::uint8_t i = 0; i < 2; ++i) {
    ToProto(NodeAddress{.node = CountingId<NodeId>(
                            static_cast<std::uint8_t>(0x30 + i)),
                        .epoch = NodeEpoch{0x99},
                        .stream_address = "host:7411",
                        .control_address = "host:7410",
                        .labels = {}},
            answer.add_nodes());
  }
  answer.set_clear_epoch(1);
  return Seed(kLocate, answer.SerializeAsString());
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds = SessionSeeds();
  const std::string outcomes("\1\2\1", kKeys);
  seeds.push_back(OpenReadSeed());
  for (std::string& seed : FrameSeeds()) seeds.push_back(std::move(seed));
  seeds.push_back(LocateSeed());
  v1::ReserveResponse reserve;
  reserve.set_outcomes(std::string("\16\17\11", kKeys));
  reserve.set_reservation(9);
  reserve.set_reservation_millis(30'000);
  seeds.push_back(Seed(kReserve, reserve.SerializeAsString()));
  v1::CommitResponse commit;
  commit.set_outcomes(std::string("\16\17\11", kKeys));
  seeds.push_back(Seed(kCommit, commit.SerializeAsString()));
  v1::ExistsResponse exists;
  exists.set_outcomes(outcomes);
  exists.add_lengths(4096);
  exists.add_lengths(8192);
  seeds.push_back(Seed(kExists, exists.SerializeAsString()));
  v1::NodeRemoveResponse remove;
  remove.set_outcomes(outcomes);
  seeds.push_back(Seed(kNodeRemove, remove.SerializeAsString()));
  v1::CatalogRemoveResponse removed;
  removed.set_outcomes(outcomes);
  removed.set_pending(2);
  seeds.push_back(Seed(kCatalogRemove, removed.SerializeAsString()));
  seeds.push_back(Seed(kCatalogConnect, ConnectAnswer()));
  NamespaceFacts facts;
  facts.name_space = CountingId<NamespaceId>(0x10);
  facts.tenant = CountingId<TenantId>(2);
  facts.name = "granite";
  facts.version = 1;
  facts.digest = MakeIdentityDigest(SampleContract());
  facts.clear_epoch = ClearEpoch{1};
  v1::OpenNamespaceResponse opened;
  ToProto(facts, opened.mutable_facts());
  seeds.push_back(Seed(kOpenNamespace, opened.SerializeAsString()));
  return seeds;
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  const std::uint8_t first = input.U8();
  const bool framed = (first & kFramed) != 0;
  const auto part = static_cast<std::uint8_t>((first & ~kFramed) % kParts);
  const std::string_view rest = input.Rest();
  if (part == kSessionMessage) {
    TrySessionMessage(rest);
    return 0;
  }
  World world(rest, part != kCatalogConnect, framed);
  switch (part) {
    case kOpenRead:
      TryOpenRead(&world);
      break;
    case kReserve:
      TryReserve(&world);
      break;
    case kCommit:
      TryCommit(&world);
      break;
    case kExists:
      TryExists(&world);
      break;
    case kNodeRemove:
      TryNodeRemove(&world);
      break;
    case kOpenNamespace:
      TryOpenNamespace(&world);
      break;
    case kCatalogConnect:
    case kLocate:
      TryLocate(&world);
      break;
    default:
      TryCatalogRemove(&world);
      break;
  }
  return 0;
}
