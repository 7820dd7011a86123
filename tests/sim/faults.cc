#include "tests/sim/faults.h"

#include <utility>

#include "proto/base/text.h"

namespace firnkv {

void Faults::Next() {
  Later(absl::Milliseconds(10), absl::Milliseconds(500), [this] {
    Inject();
    Next();
  });
}

void Faults::Later(absl::Duration least, absl::Duration most,
                   std::function<void()> undo) {
  SimExecutor* world = cluster_->executor();
  world->root()->PostAfter(world->Between(least, most),
                           [this, undo = std::move(undo)] {
                             if (!stopped_) undo();
                           });
}

void Faults::Note(std::string_view what) {
  ++injected_;
  cluster_->executor()->Mix(what);
  cluster_->executor()->Note(StrCat("FAULT ", what));
}

std::string Faults::SomeHost() {
  const std::uint64_t which = Below(cluster_->nodes() + 1);
  if (which == 0) return SimCatalog::kHost;
  return StrCat("node", which);
}

void Faults::Inject() {
  switch (Below(21)) {
    case 0:
    case 1:
      return CrashNode();
    case 2:
    case 3:
      return PauseNode();
    case 4:
    case 5:
      return CrashWorker();
    case 6:
    case 7:
      return PauseWorker();
    case 8:
      return RestartWorker();
    case 9:
      return CrashCatalog();
    case 10:
      return PauseCatalog();
    case 11:
    case 12:
    case 13:
      return CutLink();
    case 14:
    case 15:
      return BadWeather();
    case 16:
      return ResetConnections();
    case 17:
      return ClearNamespace();
    case 18:
      return FailAllocations();
    case 19:
      return SetWallClock();
    default:
      return FlipBit();
  }
}

void Faults::CrashNode() {
  SimNode& node = SomeNode();
  if (!node.running()) return;
  Note(StrCat("crash of ", node.host()));
  node.Crash();
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 20 : 2),
        [this, &node] {
          cluster_->executor()->Note(StrCat("restart of ", node.host()));
          if (!node.running() && !node.Start().ok()) {
            oracle_->Violation(StrCat("NO RESTART: ", node.host()));
          }
        });
}

void Faults::PauseNode() {
  SimNode& node = SomeNode();
  if (!node.running() || node.paused()) return;
  Note(StrCat("pause of ", node.host()));
  node.Pause();
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 25 : 3), [&node] {
    if (node.running()) node.Resume();
  });
}

void Faults::CrashWorker() {
  SimWorker& worker = SomeWorker();
  if (!worker.running()) return;
  Note(StrCat("crash of ", worker.options().name));
  worker.Crash();
  Later(absl::Milliseconds(1), absl::Seconds(2), [&worker] { worker.Start(); });
}

void Faults::PauseWorker() {
  SimWorker& worker = SomeWorker();
  if (!worker.running() || worker.paused()) return;
  Note(StrCat("pause of ", worker.options().name));
  worker.Pause();
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 40 : 3),
        [&worker] {
          if (worker.running()) worker.Resume();
        });
}

void Faults::RestartWorker() {
  SimWorker& worker = SomeWorker();
  if (!worker.ready() || worker.paused()) return;
  Note(StrCat("close of ", worker.options().name));
  worker.Stop();
  Later(absl::Milliseconds(1), absl::Seconds(1), [&worker] { worker.Start(); });
}

void Faults::CrashCatalog() {
  SimCatalog& catalog = cluster_->Catalog();
  if (!catalog.running()) return;
  Note("crash of the catalog");
  catalog.Crash(Below(2) == 0 ? SimCatalog::Loss::kNothing
                              : SimCatalog::Loss::kUnsyncedTail);
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 20 : 2),
        [this, &catalog] {
          if (!catalog.running() && !catalog.Start().ok()) {
            oracle_->Violation("NO RESTART: the catalog");
          }
        });
}

void Faults::PauseCatalog() {
  SimCatalog& catalog = cluster_->Catalog();
  if (!catalog.running()) return;
  Note("pause of the catalog");
  catalog.Pause();
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 15 : 2),
        [&catalog] {
          if (catalog.running()) catalog.Resume();
        });
}

void Faults::CutLink() {
  const std::string a = SomeHost();
  const std::string b = SomeHost();
  if (a == b) return;
  Note(StrCat("cut between ", a, " and ", b));
  if (Below(3) == 0) {
    cluster_->world()->links()->CutOneWay(a, b);
  } else {
    cluster_->Partition(a, b);
  }
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 20 : 3),
        [this, a, b] { cluster_->Heal(a, b); });
}

void Faults::BadWeather() {
  Note("bad weather");
  SimLinks::Quality& quality = cluster_->world()->links()->quality();
  quality.slow_chance = Below(100);
  quality.drop_request_chance = Below(150);
  quality.drop_reply_chance = Below(150);
  quality.duplicate_chance = Below(150);
  quality.reset_chance = Below(20);
  quality.stall_chance = Below(40);
  Later(absl::Milliseconds(100), absl::Seconds(3),
        [this] { cluster_->world()->links()->quality() = FairWeather(); });
}

void Faults::ResetConnections() {
  const std::string a = SomeHost();
  const std::string b = SomeHost();
  Note(StrCat("connections reset between ", a, " and ", b));
  cluster_->world()->fabric()->Reset(a, b);
}

void Faults::ClearNamespace() {
  const std::size_t tenant = Below(cluster_->tenants());
  const std::size_t index = Below(cluster_->options().name_spaces.size());
  SimWorker& worker = cluster_->Worker(1 + Below(cluster_->nodes()), tenant);
  if (!worker.ready()) return;
  const NamespaceId id = worker.name_space(index).id;
  Note(StrCat("clear of ", cluster_->options().tenants[tenant], "'s ",
              worker.name_space(index).name));
  const std::size_t number = oracle_->BeginClear(id);
  cluster_->Admin().ClearNamespace(cluster_->options().tenants[tenant],
                                   worker.name_space(index).name,
                                   [this, id, number](absl::Status status) {
                                     if (status.ok()) {
                                       oracle_->EndClear(id, number);
                                     }
                                   });
}

void Faults::FailAllocations() {
  SimNode& node = SomeNode();
  if (!node.running()) return;
  Note(StrCat("no memory for ", node.host()));
  node.machine()->memory()->FailNext(1 + static_cast<int>(Below(3)));
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
  if (cluster_->executor()->seed() % 4 != 3 || !node.running()) return;
  Note(StrCat("memory of ", node.host(), " turns over"));
  operations_->ExpectCorruption();
  // Regions are mostly full: of a few bits one hits a block.
  for (int i = 0; i < 8; ++i) {
    node.machine()->memory()->FlipOneBit(cluster_->executor()->random());
  }
}

}  // namespace firnkv
