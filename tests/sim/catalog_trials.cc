// Trials that are about the catalog and its members (trials.h).

#include <optional>

#include "proto/base/request.h"
#include "proto/base/text.h"
#include "proto/base/token.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "server/node/node.h"
#include "tests/sim/trials.h"

namespace firnkv {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(3);

}  // namespace

// Until they have heard of whatever catalog there is now: a node that was
// refused tries again after 5 s.
void Trials::AwaitMembers() {
  Await("every node a member", [this] {
    for (int n = 1; n <= parts_.cluster->nodes(); ++n) {
      const Node* const node = parts_.cluster->Node(n).node();
      if (node->link_state() != CatalogLink::State::kRegistered ||
          !node->settled()) {
        return false;
      }
    }
    return true;
  });
  parts_.cluster->RunFor(absl::Seconds(6));
}

void Trials::RestartCatalog(const SimStore::Families* state) {
  SimCatalog& catalog = parts_.cluster->Catalog();
  catalog.Crash(SimCatalog::Loss::kNothing);
  if (state != nullptr) {
    parts_.oracle->NoteCatalogLoss();
    catalog.store()->Load(*state);
  }
  if (!catalog.Start().ok()) Violation("NO RESTART", "the catalog");
}

// --- A second run.

absl::Status Trials::RegisterAs(int node, NodeEpoch epoch,
                                NodeEpoch predecessor) {
  const SimNode& real = parts_.cluster->Node(node);
  v1::RegisterRequest request;
  RequestHeader header{.remaining = kTimeout};
  header.token = MintToken(
      {.cluster = real.memory().cluster,
       .tenant = {},
       .role = Role::kNode,
       .session = {},
       .expires = real.machine()->seams().clock->WallNow() + kTokenLife},
      parts_.cluster->secret());
  ToProto(header, request.mutable_header());
  ToProto(Handshake{.cluster = real.memory().cluster,
                    .test_vector = HandshakeTestVector()},
          request.mutable_handshake());
  NodeAddress address = real.node()->address();
  address.epoch = epoch;
  ToProto(address, request.mutable_node());
  request.set_predecessor_epoch(static_cast<std::uint64_t>(predecessor));
  ToProto(real.memory().seen, request.mutable_seen());
  request.set_version("impostor");
  std::optional<absl::Status> status;
  const auto channel =
      real.machine()->seams().control->Connect(SimCatalog::kAddress);
  channel->StartCall("/firnkv.v1.CatalogService/Register",
                     request.SerializeAsString(), kTimeout,
                     [&](const absl::StatusOr<std::string>& answer) {
                       status = answer.status();
                     });
  parts_.cluster->RunUntil([&] { return status.has_value(); });
  return status.value_or(absl::InternalError("no answer"));
}

void Trials::ASecondRun() {
  scene_ = "a second run";
  const int number = 1 + Someone(parts_.cluster->nodes());
  SimNode& node = parts_.cluster->Node(number);
  const NodeEpoch epoch = node.node()->address().epoch;
  SeededRandom* const random = parts_.cluster->executor()->random();
  const absl::Status stranger = RegisterAs(
      number, NodeEpoch{random->NonZero64()}, NodeEpoch{random->NonZero64()});
  if (!absl::IsAlreadyExists(stranger)) {
    Violation("A SECOND LIVE RUN IS TAKEN", stranger.ToString());
  }
  // Who has the data directory may.
  const absl::Status heir =
      RegisterAs(number, NodeEpoch{random->NonZero64()}, epoch);
  if (!heir.ok()) return Violation("AN HEIR IS REFUSED", heir.ToString());
  if (!Await("the end of a superseded run",
             [&] { return node.superseded(); })) {
    return;
  }
  parts_.cluster->RunFor(absl::Milliseconds(10));
  ExpectNoService(number);
  node.Crash();
  // The other run's lease has to end first.
  if (!node.Start().ok()) return Violation("NO RESTART", node.host());
  AwaitMembers();
}

void Trials::ExpectNoService(int node) {
  const SimNode& gone = parts_.cluster->Node(node);
  parts_.reckoning->ExpectZero(node, "firnkv_node_sessions",
                               "A SUPERSEDED RUN SERVES ON");
  parts_.reckoning->ExpectZero(node, "firnkv_node_stream_connections",
                               "A SUPERSEDED RUN SERVES ON");
  bool answered = false;
  gone.node()->services()[0]->Handle(
      "/firnkv.v1.NodeService/Connect", ControlPeer{}, "",
      [&](const absl::StatusOr<std::string>& answer) {
        answered = true;
        if (!absl::IsUnavailable(answer.status())) {
          Violation("A SUPERSEDED RUN SERVES ON", answer.status().ToString());
        }
      });
  if (!answered) Violation("NO ANSWER", gone.host());
}

// --- A doubled catalog.

void Trials::ADoubledCatalog() {
  scene_ = "a doubled catalog";
  SimCatalog& catalog = parts_.cluster->Catalog();
  const SimStore::Families copy = catalog.store()->Snapshot();
  // The copy comes up with the original's number, or with a lower one.
  const int starts = 1 + Someone(2);
  for (int i = 0; i < starts; ++i) {
    RestartCatalog(nullptr);
    parts_.cluster->RunFor(absl::Seconds(4));
  }
  const SimStore::Families original = catalog.store()->Snapshot();
  RestartCatalog(&copy);
  parts_.cluster->RunFor(absl::Seconds(7));
  RestartCatalog(&original);
  AwaitMembers();
}

// --- A power cut.

void Trials::APowerCut() {
  scene_ = "a power cut";
  if (parts_.operations->corruption_expected()) return;
  const std::vector<PlannedBlock>& all =
      parts_.keys->singles(KeySpace::kStrict);
  for (int n = 1; n <= parts_.cluster->nodes(); ++n) {
    SimWorker* const writer = &parts_.cluster->Worker(n, Someone(2));
    bool removed = false;
    parts_.operations->Remove(
        writer, KeySpace::kStrict, all, absl::Seconds(5),
        [&](const std::vector<Outcome>&) { removed = true; });
    if (!Await("the end of a remove", [&] { return removed; })) return;
    Store(writer, KeySpace::kStrict,
          std::vector<PlannedBlock>(all.begin() + n, all.begin() + n + 8));
  }
  SimCatalog& catalog = parts_.cluster->Catalog();
  catalog.Crash(SimCatalog::Loss::kUnsyncedTail);
  parts_.answers->CheckRegistrationsAreDurable();
  parts_.oracle->NoteCatalogLoss();
  if (!catalog.Start().ok()) return Violation("NO RESTART", "the catalog");
  // A heartbeat, a registration, a comparison and a repair; not so long that
  // the comparison of every minute would do it.
  parts_.cluster->RunFor(absl::Seconds(7));
  AwaitMembers();
}

// --- The end of a grace.

void Trials::ANodeComesBackAsItsGraceEnds() {
  scene_ = "the end of a grace";
  const int number = 1 + Someone(parts_.cluster->nodes());
  const std::string host = parts_.cluster->Node(number).host();
  SimCatalog& catalog = parts_.cluster->Catalog();
  parts_.cluster->Partition(host, SimCatalog::kHost);
  // Its lease ends within 7.5 to 10 s, its grace 12 s later: while the catalog
  // stands still, and the node knocks at its door.
  parts_.cluster->RunFor(absl::Seconds(17));
  catalog.Pause();
  parts_.cluster->RunFor(absl::Milliseconds(5500));
  // It has not given this call up when it is heard.
  parts_.cluster->Heal(host, SimCatalog::kHost);
  parts_.cluster->RunFor(absl::Milliseconds(1500));
  catalog.Resume();
  parts_.cluster->RunFor(absl::Seconds(6));
  AwaitMembers();
}

// --- A node that leaves.

void Trials::ANodeLeaves() {
  scene_ = "a node that leaves";
  const int number = 1 + Someone(parts_.cluster->nodes());
  SimNode& node = parts_.cluster->Node(number);
  const std::uint64_t bytes =
      Someone(2) * parts_.cluster->options().pool_bytes / 2;
  if (!node.Drain(bytes, absl::Seconds(8))) {
    return Violation("NO DRAIN", node.host());
  }
  if (!Await("the end of a drain", [&] { return !node.running(); })) return;
  // Not after its lease: that is longer.
  parts_.reckoning->CheckIndexNamesNothingOf(number);
  if (!node.Start().ok()) return Violation("NO RESTART", node.host());
  AwaitMembers();
}

}  // namespace firnkv
