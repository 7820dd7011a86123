#include "tests/sim/faults.h"

#include <utility>

#include "proto/base/text.h"
#include "server/node/node.h"

namespace firnkv {

Faults::Faults(const Parts& parts) : parts_(parts) {
  SimWorld* world = parts_.cluster->world();
  world->control()->Watch(
      [this](const SimControl::Seen& seen) { OnCall(seen); });
  world->fabric()->Watch([this](const SimProcess* sender, std::size_t bytes) {
    OnSend(sender, bytes);
  });
}

void Faults::Stop() {
  stopped_ = true;
  trap_.reset();
  for (int n = 1; n <= parts_.cluster->nodes(); ++n) {
    SimNode& node = parts_.cluster->Node(n);
    if (node.running()) node.machine()->memory()->set_limit(UINT64_MAX);
  }
  SimCatalog& failing = parts_.cluster->Catalog();
  if (failing.running()) failing.store()->CrashAtWrite(0);
  if (failing.running() && failing.store()->killed()) {
    failing.Crash(SimCatalog::Loss::kNothing);
  }
  if (!original_.has_value()) return;
  // The copy must not be what the cluster goes on with.
  SimCatalog& catalog = parts_.cluster->Catalog();
  if (catalog.running()) catalog.Crash(SimCatalog::Loss::kNothing);
  parts_.oracle->NoteCatalogLoss();
  catalog.store()->Load(*std::exchange(original_, std::nullopt));
  // As where the original comes back by itself.
  parts_.admin->OnCatalogDoubled();
}

void Faults::Next() {
  Later(absl::Milliseconds(10), absl::Milliseconds(300) * parts_.pace, [this] {
    Inject();
    Next();
  });
}

void Faults::Later(absl::Duration least, absl::Duration most,
                   std::function<void()> undo) {
  SimExecutor* world = parts_.cluster->executor();
  world->root()->PostAfter(world->Between(least, most),
                           [this, undo = std::move(undo)] {
                             if (!stopped_) undo();
                           });
}

void Faults::Note(std::string_view what) {
  ++injected_;
  parts_.cluster->executor()->Mix(what);
  parts_.cluster->executor()->Note(StrCat("FAULT ", what));
}

std::string Faults::SomeHost() {
  const std::uint64_t which = Below(parts_.cluster->nodes() + 2);
  if (which == 0) return SimCatalog::kHost;
  if (which > static_cast<std::uint64_t>(parts_.cluster->nodes())) {
    return SimCluster::kAway;
  }
  return StrCat("node", which);
}

void Faults::Inject() {
  struct Kind {
    // Out of the sum.
    std::uint64_t weight;
    void (Faults::*inject)();
  };
  static constexpr Kind kKinds[] = {
      {8, &Faults::CrashNode},        {8, &Faults::PauseNode},
      {7, &Faults::CrashWorker},      {4, &Faults::CrashWorkersOfAHost},
      {7, &Faults::PauseWorker},      {4, &Faults::RestartWorker},
      {4, &Faults::BreakSessions},    {12, &Faults::Ambush},
      {5, &Faults::CrashCatalog},     {4, &Faults::PauseCatalog},
      {1, &Faults::LoseCatalog},      {1, &Faults::ReplaceCatalog},
      {1, &Faults::DoubleCatalog},    {3, &Faults::FailCatalogWrite},
      {12, &Faults::CutLink},         {8, &Faults::BadWeather},
      {4, &Faults::ResetConnections}, {6, &Faults::ClearNamespace},
      {4, &Faults::FailAllocations},  {3, &Faults::LimitMemory},
      {5, &Faults::ShrinkPool},       {4, &Faults::SetWallClock},
      {4, &Faults::FlipBit},          {4, &Faults::DrainNode},
  };
  static constexpr std::uint64_t kSum = [] {
    std::uint64_t sum = 0;
    for (const Kind& kind : kKinds) sum += kind.weight;
    return sum;
  }();
  std::uint64_t drawn = Below(kSum);
  for (const Kind& kind : kKinds) {
    if (drawn < kind.weight) return (this->*kind.inject)();
    drawn -= kind.weight;
  }
}

// --- Processes.

void Faults::CrashNode() {
  SimNode& node = SomeNode();
  if (!node.running()) return;
  Note(StrCat("crash of ", node.host()));
  node.Crash();
  StartLater(&node, absl::Milliseconds(1),
             absl::Seconds(Below(4) == 0 ? 20 : 2));
}

void Faults::StartLater(SimNode* node, absl::Duration least,
                        absl::Duration most) {
  Later(least, most, [this, node] {
    parts_.cluster->executor()->Note(StrCat("restart of ", node->host()));
    if (!node->running() && !node->Start().ok()) {
      parts_.oracle->Violation(StrCat("NO RESTART: ", node->host()));
    }
  });
}

// Short or planned, to its end or into another fault.
void Faults::DrainNode() {
  SimNode& node = SomeNode();
  if (!node.running() || node.paused() || node.draining()) return;
  const std::uint64_t bytes =
      Below(3) == 0 ? 0 : Below(parts_.cluster->options().pool_bytes);
  const absl::Duration deadline = absl::Milliseconds(100 + Below(4000));
  Note(StrCat("drain of ", node.host(), ": ", bytes, " bytes in ",
              absl::FormatDuration(deadline)));
  node.Drain(bytes, deadline);
  StartLater(&node, deadline, deadline + absl::Seconds(4));
}

void Faults::ResumeLater(SimNode* node) {
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 25 : 3), [node] {
    if (node->running()) node->Resume();
  });
}

void Faults::ResumeLater(SimWorker* worker) {
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 40 : 3), [worker] {
    if (worker->running()) worker->Resume();
  });
}

void Faults::PauseNode() {
  SimNode& node = SomeNode();
  if (!node.running() || node.paused()) return;
  Note(StrCat("pause of ", node.host()));
  node.Pause();
  ResumeLater(&node);
}

void Faults::CrashWorker() {
  SimWorker& worker = SomeWorker();
  if (!worker.running()) return;
  Note(StrCat("crash of ", worker.options().name));
  worker.Crash();
  Later(absl::Milliseconds(1), absl::Seconds(2), [&worker] { worker.Start(); });
}

void Faults::CrashWorkersOfAHost() {
  const int node = SomeNodeNumber();
  Note(StrCat("crash of all workers of node", node));
  for (int tenant = 0; tenant < parts_.cluster->tenants(); ++tenant) {
    SimWorker& worker = parts_.cluster->Worker(node, tenant);
    worker.Crash();
    Later(absl::Milliseconds(200), absl::Seconds(2),
          [&worker] { worker.Start(); });
  }
  CheckSessionsAreOver(node);
}

void Faults::CheckSessionsAreOver(int node) {
  const SimNode& at = parts_.cluster->Node(node);
  if (!at.running() || at.paused()) return;
  // A worker that was to start again does so meanwhile, perhaps.
  const auto lives = [this, node] {
    std::uint64_t sum = 0;
    for (int tenant = 0; tenant < parts_.cluster->tenants(); ++tenant) {
      sum += parts_.cluster->Worker(node, tenant).life();
    }
    return sum;
  };
  Later(absl::Milliseconds(50), absl::Milliseconds(100),
        [this, node, &at, lives, before = lives(), life = at.life(),
         pauses = at.pauses()] {
          // A pause that had been planned before may have come in between.
          if (lives() != before || !at.running() || at.paused() ||
              at.life() != life || at.pauses() != pauses) {
            return;
          }
          const PoolSnapshot pool = at.Snapshot();
          // Workers away hold no leases, but write here too; and copies from
          // other nodes come on their own.
          const bool others = parts_.cluster->options().remote_workers > 0 ||
                              at.node()->copies_under_way() > 0;
          if (pool.leases == 0 &&
              (others || pool.reserved_slots + pool.waiting_batches == 0)) {
            return;
          }
          parts_.oracle->Violation(StrCat(
              "LEFT OVER: node", node, " has ", pool.leases, " leases, ",
              pool.reserved_slots, " reserved slots, ", pool.waiting_batches,
              " waiting batches of sessions that are over"));
        });
}

void Faults::PauseWorker() {
  SimWorker& worker = SomeWorker();
  if (!worker.running() || worker.paused()) return;
  Note(StrCat("pause of ", worker.options().name));
  worker.Pause();
  ResumeLater(&worker);
}

void Faults::RestartWorker() {
  SimWorker& worker = SomeWorker();
  if (!worker.ready() || worker.paused()) return;
  Note(StrCat("close of ", worker.options().name));
  worker.Stop();
  Later(absl::Milliseconds(1), absl::Seconds(1), [&worker] { worker.Start(); });
}

void Faults::BreakSessions() {
  SimWorker& worker = SomeWorker();
  if (!worker.running()) return;
  Note(StrCat("the session of ", worker.options().name, " breaks"));
  worker.machine()->sockets()->BreakAll();
}

void Faults::Ambush() {
  static constexpr std::string_view kMethods[] = {
      "/firnkv.v1.NodeService/Commit",     "/firnkv.v1.NodeService/OpenRead",
      "/firnkv.v1.NodeService/Reserve",    "/firnkv.v1.CatalogService/Announce",
      "/firnkv.v1.CatalogService/Locate",  "",
      "/firnkv.v1.CatalogService/Register"};
  Trap trap;
  trap.method = kMethods[Below(std::size(kMethods))];
  if (Below(2) == 0) {
    trap.node = &SomeNode();
    if (!trap.node->running()) return;
    trap.process = trap.node->machine()->process()->number();
  } else {
    trap.worker = &SomeWorker();
    if (!trap.worker->running()) return;
    trap.process = trap.worker->process()->number();
  }
  Note(StrCat("an ambush in ", trap.method.empty() ? "a send" : trap.method));
  trap_ = std::move(trap);
}

void Faults::OnCall(const SimControl::Seen& seen) {
  if (!trap_.has_value() || trap_->method != seen.method ||
      (trap_->process != seen.caller->number() &&
       trap_->process != seen.server->number())) {
    return;
  }
  Spring();
}

void Faults::OnSend(const SimProcess* sender, std::size_t bytes) {
  constexpr std::size_t kLarge = 4096;
  if (!trap_.has_value() || !trap_->method.empty() || bytes < kLarge ||
      trap_->process != sender->number()) {
    return;
  }
  Spring();
}

void Faults::Spring() {
  const Trap trap = *std::exchange(trap_, std::nullopt);
  const std::uint64_t tasks = 1 + Below(12);
  if (trap.node != nullptr && trap.node->running()) {
    parts_.cluster->executor()->Note(
        StrCat("pause of ", trap.node->host(), " in ", tasks, " tasks"));
    trap.node->PauseAfter(tasks);
    ResumeLater(trap.node);
  }
  if (trap.worker != nullptr && trap.worker->running()) {
    parts_.cluster->executor()->Note(StrCat(
        "pause of ", trap.worker->options().name, " in ", tasks, " tasks"));
    trap.worker->PauseAfter(tasks);
    ResumeLater(trap.worker);
  }
}

// --- Between hosts.

void Faults::CutLink() {
  const std::string a = SomeHost();
  const std::string b = SomeHost();
  if (a == b) return;
  Note(StrCat("cut between ", a, " and ", b));
  if (Below(3) == 0) {
    parts_.cluster->world()->links()->CutOneWay(a, b);
  } else {
    parts_.cluster->Partition(a, b);
  }
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 20 : 3),
        [this, a, b] { parts_.cluster->Heal(a, b); });
}

void Faults::BadWeather() {
  Note("bad weather");
  SimLinks::Quality& quality = parts_.cluster->world()->links()->quality();
  quality.slow_chance = Below(100);
  quality.drop_request_chance = Below(150);
  quality.drop_reply_chance = Below(150);
  quality.duplicate_chance = Below(150);
  quality.reset_chance = Below(20);
  quality.stall_chance = Below(40);
  // Longer than any lease, now and then.
  if (Below(4) == 0) quality.stall = absl::Seconds(15);
  Later(absl::Milliseconds(100), absl::Seconds(3), [this] {
    parts_.cluster->world()->links()->quality() = FairWeather();
  });
}

void Faults::ResetConnections() {
  const std::string a = SomeHost();
  const std::string b = SomeHost();
  Note(StrCat("connections reset between ", a, " and ", b));
  parts_.cluster->world()->fabric()->Reset(a, b);
}

// --- In them.

void Faults::ClearNamespace() {
  const std::size_t tenant = Below(parts_.cluster->tenants());
  const std::size_t index = Below(parts_.cluster->options().name_spaces.size());
  SimWorker& worker = parts_.cluster->Worker(SomeNodeNumber(), tenant);
  if (!worker.ready() || parts_.admin->repairing() || original_.has_value()) {
    return;
  }
  Note(StrCat("clear of ", parts_.cluster->options().tenants[tenant], "'s ",
              worker.name_space(index).name));
  parts_.admin->Clear(tenant, worker.name_space(index).name,
                      worker.name_space(index).id);
}

void Faults::FailAllocations() {
  SimNode& node = SomeNode();
  if (!node.running()) return;
  Note(StrCat("no memory for ", node.host()));
  node.machine()->memory()->FailNext(1 + static_cast<int>(Below(3)));
}

void Faults::LimitMemory() {
  SimNode& node = SomeNode();
  if (!node.running()) return;
  Note(StrCat("no more memory for ", node.host(), " for a while"));
  SimMemory* const memory = node.machine()->memory();
  memory->set_limit(memory->bytes_made());
  Later(absl::Milliseconds(100), absl::Seconds(3),
        [memory] { memory->set_limit(UINT64_MAX); });
}

void Faults::ShrinkPool() {
  SimNode& node = SomeNode();
  if (!node.running()) return;
  const SimCluster::Options& options = parts_.cluster->options();
  const std::uint64_t regions =
      Below(options.pool_bytes / options.region_bytes + 1);
  Note(StrCat("set-dram of ", node.host(), " to ", regions, " regions"));
  node.node()->SetDramTarget(regions * options.region_bytes);
  Later(absl::Milliseconds(1), absl::Seconds(3), [&node, &options] {
    if (node.running()) node.node()->SetDramTarget(options.pool_bytes);
  });
}

void Faults::SetWallClock() {
  SimNode& node = SomeNode();
  if (!node.running()) return;
  Note(StrCat("wall clock of ", node.host(), " set"));
  // Within what tokens bear (kTokenSkew).
  node.machine()->process()->sim_clock()->SetWallOffset(
      absl::Seconds(static_cast<std::int64_t>(Below(40)) - 20));
}

void Faults::FlipBit() {
  // In some schedules only, so that in the others kCorrupt is a finding.
  SimNode& node = SomeNode();
  if (parts_.cluster->executor()->seed() % 4 != 3 || !node.running()) return;
  Note(StrCat("memory of ", node.host(), " turns over"));
  parts_.operations->ExpectCorruption();
  // Regions are mostly full: of a few bits one hits a block.
  for (int i = 0; i < 8; ++i) {
    node.machine()->memory()->FlipOneBit(parts_.cluster->executor()->random());
  }
}

}  // namespace firnkv
