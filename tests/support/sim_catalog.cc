#include "tests/support/sim_catalog.h"

#include "proto/base/text.h"
#include "server/catalog/catalog.h"

namespace firnkv {

SimCatalog::SimCatalog(SimWorld* world, const ClusterSecret& secret,
                       absl::Duration grace)
    : world_(world), secret_(secret), grace_(grace) {}

SimCatalog::~SimCatalog() {
  if (running()) Crash(Loss::kNothing);
}

absl::Status SimCatalog::Start() {
  machine_ = world_->NewMachine(StrCat("catalog.", ++life_), kHost);
  CatalogOptions options;
  if (grace_ > absl::ZeroDuration()) options.membership.grace = grace_;
  catalog_ =
      std::make_unique<Catalog>(options, &store_, machine_->seams(), secret_);
  const absl::Status started = catalog_->Start();
  if (!started.ok()) {
    world_->executor()->Note(StrCat("catalog: ", started.ToString()));
    Crash(Loss::kNothing);
    return started;
  }
  serving_ = world_->control()->Serve(kAddress, machine_->process(),
                                      catalog_->services());
  return absl::OkStatus();
}

void SimCatalog::Crash(Loss loss) {
  // First the world loses it, then it is taken apart: nothing that it does on
  // the way out reaches anybody or the disk.
  machine_->process()->Kill();
  store_.Kill();
  serving_.reset();
  catalog_.reset();
  machine_ = nullptr;
  switch (loss) {
    case Loss::kNothing:
      store_.Reopen();
      return;
    case Loss::kUnsyncedTail:
      store_.PowerCut(world_->executor()->random());
      return;
    case Loss::kEverything:
      store_.Wipe();
      return;
  }
}

}  // namespace firnkv
