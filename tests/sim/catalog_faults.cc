// What goes wrong with the catalog (faults.h).

#include <utility>

#include "proto/base/text.h"
#include "tests/sim/faults.h"

namespace firnkv {

void Faults::StartCatalog() {
  SimCatalog& catalog = parts_.cluster->Catalog();
  if (!catalog.running() && !catalog.Start().ok()) {
    parts_.oracle->Violation("NO RESTART: the catalog");
  }
}

void Faults::CrashCatalog() {
  SimCatalog& catalog = parts_.cluster->Catalog();
  if (!catalog.running()) return;
  Note("crash of the catalog");
  if (Below(2) == 0) {
    catalog.Crash(SimCatalog::Loss::kNothing);
  } else {
    catalog.Crash(SimCatalog::Loss::kUnsyncedTail);
    parts_.answers->CheckRegistrationsAreDurable();
    parts_.oracle->NoteCatalogLoss();
  }
  // Backups of directories are made when somebody thinks of it.
  if (Below(2) == 0 && !parts_.admin->repairing() && !original_.has_value()) {
    old_catalog_ = catalog.store()->Snapshot();
    has_old_catalog_ = true;
  }
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 20 : 2),
        [this] { StartCatalog(); });
}

void Faults::PauseCatalog() {
  SimCatalog& catalog = parts_.cluster->Catalog();
  if (!catalog.running()) return;
  Note("pause of the catalog");
  catalog.Pause();
  Later(absl::Milliseconds(1), absl::Seconds(Below(4) == 0 ? 15 : 2),
        [&catalog] {
          if (catalog.running()) catalog.Resume();
        });
}

void Faults::FailCatalogWrite() {
  SimCatalog& catalog = parts_.cluster->Catalog();
  if (!catalog.running() || original_.has_value()) return;
  Note("a write of the catalog will fail");
  catalog.store()->CrashAtWrite(
      1 + Below(10),
      Below(2) == 0 ? SimStore::LastWrite::kLost : SimStore::LastWrite::kLands);
  AwaitFailedWrite(catalog.life());
}

void Faults::AwaitFailedWrite(int life) {
  Later(absl::Milliseconds(1), absl::Milliseconds(200), [this, life] {
    SimCatalog& catalog = parts_.cluster->Catalog();
    if (!catalog.running() || catalog.life() != life) return;
    if (!catalog.store()->killed()) return AwaitFailedWrite(life);
    parts_.cluster->executor()->Note("the catalog ends after a failed write");
    catalog.Crash(SimCatalog::Loss::kNothing);
    Later(absl::Milliseconds(1), absl::Seconds(2), [this] { StartCatalog(); });
  });
}

void Faults::LoseCatalog() {
  SimCatalog& catalog = parts_.cluster->Catalog();
  if (!catalog.running() || !parts_.admin->has_backup() ||
      parts_.admin->repairing() || original_.has_value()) {
    return;
  }
  Note("the catalog's disk is lost");
  parts_.oracle->NoteCatalogLoss();
  catalog.Crash(SimCatalog::Loss::kEverything);
  has_old_catalog_ = false;
  parts_.admin->OnCatalogLost();
  Later(absl::Milliseconds(1), absl::Seconds(2), [this] { StartCatalog(); });
}

void Faults::ReplaceCatalog() {
  SimCatalog& catalog = parts_.cluster->Catalog();
  if (!catalog.running() || !has_old_catalog_ || parts_.admin->repairing() ||
      original_.has_value()) {
    return;
  }
  Note("an old catalog takes the place of the present one");
  parts_.oracle->NoteCatalogLoss();
  catalog.Crash(SimCatalog::Loss::kNothing);
  catalog.store()->Load(old_catalog_);
  has_old_catalog_ = false;
  parts_.admin->OnCatalogReplaced();
  Later(absl::Milliseconds(1), absl::Seconds(2), [this, &catalog] {
    // Each start counts an incarnation on: it may be above all that the nodes
    // have seen before any of them reaches it (rule A9).
    for (std::uint64_t more = Below(4); more > 0 && !catalog.running();
         --more) {
      StartCatalog();
      catalog.Crash(SimCatalog::Loss::kNothing);
    }
    StartCatalog();
  });
}

void Faults::DoubleCatalog() {
  SimCatalog& catalog = parts_.cluster->Catalog();
  if (!catalog.running() || !has_old_catalog_ || parts_.admin->repairing() ||
      original_.has_value()) {
    return;
  }
  Note("a copy of the catalog serves in its place");
  parts_.operations->ExpectDenials(true);
  parts_.oracle->NoteCatalogLoss();
  catalog.Crash(SimCatalog::Loss::kNothing);
  original_ = catalog.store()->Snapshot();
  catalog.store()->Load(old_catalog_);
  StartCatalog();
  Later(absl::Milliseconds(500), absl::Seconds(8), [this, &catalog] {
    if (!original_.has_value()) return;
    parts_.cluster->executor()->Note("the original catalog serves again");
    parts_.oracle->NoteCatalogLoss();
    if (catalog.running()) catalog.Crash(SimCatalog::Loss::kNothing);
    catalog.store()->Load(*std::exchange(original_, std::nullopt));
    StartCatalog();
    // A node that the copy has told something is refused by the original.
    parts_.admin->OnCatalogDoubled();
  });
}

}  // namespace firnkv
