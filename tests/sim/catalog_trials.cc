// Trials that are about the catalog and its members (trials.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
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

// By which a call speaks for the node.
RequestHeader HeaderOf(const SimNode& node, const ClusterSecret& secret) {
  RequestHeader header{.remaining = kTimeout};
  header.token = MintToken(
      {.cluster = node.memory().cluster,
       .tenant = {},
       .role = Role::kNode,
       .session = {},
       .expires = node.machine()->seams().clock->WallNow() + kTokenLife},
      secret);
  return header;
}

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

// --- A strict clear.

void Trials::AStrictClearUnderAView() {
  scene_ = "a strict clear under a view";
  if (parts_.operations->corruption_expected()) return;
  const int tenant = Someone(2);
  SimWorker* const worker =
      &parts_.cluster->Worker(1 + Someone(parts_.cluster->nodes()), tenant);
  const std::vector<PlannedBlock>& all =
      parts_.keys->singles(KeySpace::kStrict);
  const std::vector<PlannedBlock> some(all.begin(), all.begin() + 4);
  if (!Store(worker, KeySpace::kStrict, some)) return;
  std::vector<Outcome> verdicts;
  Look(worker, some, 4, &verdicts);
  const NamespaceHandle& handle = worker->name_space(KeySpace::kStrict);
  if (!Clear(tenant, handle) || !AwaitClear(tenant, handle)) return;
  if (verdicts.empty()) {
    Violation("A CLEAR DOES NOT WAIT", "somebody looks under a lease");
  }
  Await("the end of a view", [&] { return !verdicts.empty(); });
}

void Trials::AStrictClearBehindACut() {
  scene_ = "a strict clear behind a cut";
  if (parts_.operations->corruption_expected()) return;
  const int number = 1 + Someone(parts_.cluster->nodes());
  const std::string host = parts_.cluster->Node(number).host();
  const int tenant = Someone(2);
  SimWorker* const worker = &parts_.cluster->Worker(number, tenant);
  const std::vector<PlannedBlock>& all =
      parts_.keys->singles(KeySpace::kStrict);
  const std::vector<PlannedBlock> some(all.begin(), all.begin() + 4);
  if (!Store(worker, KeySpace::kStrict, some)) return;
  parts_.cluster->Partition(host, SimCatalog::kHost);
  // Its lease, of 10 s, has ended: nobody waits for the node.
  parts_.cluster->RunFor(absl::Seconds(12));
  const NamespaceHandle& handle = worker->name_space(KeySpace::kStrict);
  if (!Clear(tenant, handle) || !AwaitClear(tenant, handle)) return;
  // The node has heard nothing, and the oracle judges what it says.
  parts_.reckoning->Read(worker, KeySpace::kStrict, some,
                         ReadWant::kEveryBlock);
  parts_.cluster->Heal(host, SimCatalog::kHost);
  AwaitMembers();
}

bool Trials::AwaitClear(int tenant, const NamespaceHandle& handle) {
  constexpr int kLooks = 10;
  for (int i = 0; i < kLooks; ++i) {
    std::optional<std::size_t> pending;
    parts_.cluster->Admin().Clear(
        parts_.cluster->options().tenants[tenant], handle.name,
        SimAdmin::ClearMode::kReportOnly, [&](const SimAdmin::Cleared& report) {
          pending = report.status.ok() ? report.pending : SIZE_MAX;
        });
    if (!Await("who is pending", [&] { return pending.has_value(); })) {
      return false;
    }
    if (*pending == 0) return true;
    parts_.cluster->RunFor(absl::Seconds(1));
  }
  Violation("NEVER", "a clear that nobody is pending of");
  return false;
}

// --- A second run.

std::string Trials::RegisterMessage(int node, NodeEpoch epoch,
                                    NodeEpoch predecessor) const {
  const SimNode& real = parts_.cluster->Node(node);
  v1::RegisterRequest request;
  ToProto(HeaderOf(real, parts_.cluster->secret()), request.mutable_header());
  ToProto(Handshake{.cluster = real.memory().cluster,
                    .test_vector = HandshakeTestVector()},
          request.mutable_handshake());
  NodeAddress address = real.node()->address();
  address.epoch = epoch;
  ToProto(address, request.mutable_node());
  request.set_predecessor_epoch(static_cast<std::uint64_t>(predecessor));
  ToProto(real.memory().seen, request.mutable_seen());
  request.set_version("impostor");
  return request.SerializeAsString();
}

absl::Status Trials::RegisterAs(int node, NodeEpoch epoch,
                                NodeEpoch predecessor) {
  const SimNode& real = parts_.cluster->Node(node);
  std::optional<absl::Status> status;
  const auto channel =
      real.machine()->seams().control->Connect(SimCatalog::kAddress);
  channel->StartCall("/firnkv.v1.CatalogService/Register",
                     RegisterMessage(node, epoch, predecessor), kTimeout,
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
  parts_.cluster->Heal(host, SimCatalog::kHost);
  KnockAtADoorThatStandsStill(number);
  parts_.cluster->RunFor(absl::Seconds(6));
  AwaitMembers();
}

// The node itself knocks every few seconds, and would seldom be in time.
void Trials::KnockAtADoorThatStandsStill(int node) {
  constexpr int kKnocks = 4;
  const SimNode& real = parts_.cluster->Node(node);
  const NodeEpoch epoch = real.node()->address().epoch;
  int answers = 0;
  std::string registration;
  const auto channel =
      real.machine()->seams().control->Connect(SimCatalog::kAddress);
  for (int i = 0; i < kKnocks; ++i) {
    channel->StartCall("/firnkv.v1.CatalogService/Register",
                       RegisterMessage(node, epoch, epoch), kTimeout,
                       [&](const absl::StatusOr<std::string>& answer) {
                         ++answers;
                         v1::RegisterResponse response;
                         if (answer.ok() && response.ParseFromString(*answer)) {
                           registration = response.registration();
                         }
                       });
    parts_.cluster->RunFor(absl::Milliseconds(300));
  }
  parts_.cluster->Catalog().Resume();
  if (!Await("answers to knocks", [&] { return answers == kKnocks; })) return;
  if (registration.empty()) return;
  // The node itself may have registered since; but nobody's lease has ended.
  const absl::Status beat = KeepAliveAs(node, registration);
  if (absl::StrContains(beat.message(), "the lease of")) {
    Violation("A MEMBER IS REAPED", beat.ToString());
  }
}

absl::Status Trials::KeepAliveAs(int node, const std::string& registration) {
  const SimNode& real = parts_.cluster->Node(node);
  const NodeAddress address = real.node()->address();
  v1::KeepAliveRequest request;
  ToProto(HeaderOf(real, parts_.cluster->secret()), request.mutable_header());
  request.set_node(IdToProto(address.node));
  request.set_epoch(static_cast<std::uint64_t>(address.epoch));
  request.set_registration(registration);
  ToProto(real.memory().seen, request.mutable_seen());
  std::optional<absl::Status> status;
  const auto channel =
      real.machine()->seams().control->Connect(SimCatalog::kAddress);
  channel->StartCall("/firnkv.v1.CatalogService/KeepAlive",
                     request.SerializeAsString(), kTimeout,
                     [&](const absl::StatusOr<std::string>& answer) {
                       status = answer.status();
                     });
  parts_.cluster->RunUntil([&] { return status.has_value(); });
  return status.value_or(absl::InternalError("no answer"));
}

// --- A node that leaves.

void Trials::ANodeLeaves() {
  scene_ = "a node that leaves";
  const int number = 1 + Someone(parts_.cluster->nodes());
  SimNode& node = parts_.cluster->Node(number);
  const std::uint64_t bytes =
      Someone(2) * parts_.cluster->options().pool_bytes / 2;
  const std::vector<PlannedBlock>& chain = parts_.keys->chains()[Someone(5)];
  const std::vector<PlannedBlock> cleared(chain.begin(), chain.begin() + 3);
  const bool clears = bytes > 0 && !parts_.operations->corruption_expected();
  if (clears && !ClearBehindTheBackOf(number, cleared)) return;
  if (!node.Drain(bytes, absl::Seconds(8))) {
    return Violation("NO DRAIN", node.host());
  }
  if (!Await("the end of a drain", [&] { return !node.running(); })) return;
  for (int n = 1; clears && n <= parts_.cluster->nodes(); ++n) {
    if (n == number) continue;
    // The oracle knows what may still be read.
    parts_.reckoning->Read(&parts_.cluster->Worker(n, Someone(2)),
                           KeySpace::kChained, cleared, ReadWant::kEveryBlock);
  }
  // Not after its lease: that is longer.
  parts_.reckoning->CheckIndexNamesNothingOf(number);
  if (!node.Start().ok()) return Violation("NO RESTART", node.host());
  AwaitMembers();
}

// Who was last here moves first. All others hear of the clear before the next
// heartbeat tells this node.
bool Trials::ClearBehindTheBackOf(int node,
                                  const std::vector<PlannedBlock>& blocks) {
  const int tenant = Someone(2);
  SimWorker* const writer = &parts_.cluster->Worker(node, tenant);
  if (!Store(writer, KeySpace::kChained, blocks) ||
      !Clear(tenant, writer->name_space(KeySpace::kChained))) {
    return false;
  }
  for (int n = 1; n <= parts_.cluster->nodes(); ++n) {
    if (n == node) continue;
    if (!ReadAfterAClear(&parts_.cluster->Worker(n, tenant), blocks)) {
      return false;
    }
  }
  return true;
}

}  // namespace firnkv
