// A catalog as a simulated process: the real one over a store that survives it.
//
// Threading. One thread only.
//
// Ownership. Owns store and catalog; the world outlives it.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_CATALOG_H_
#define FIRNKV_TESTS_SUPPORT_SIM_CATALOG_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/token.h"
#include "tests/support/sim_store.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class Catalog;

class SimCatalog {
 public:
  static constexpr char kHost[] = "catalog";
  static constexpr char kAddress[] = "catalog:7400";

  // `grace` of CatalogOptions; zero is its default.
  SimCatalog(SimWorld* world, const ClusterSecret& secret,
             absl::Duration grace = absl::ZeroDuration());
  ~SimCatalog();

  absl::Status Start();
  enum class Loss {
    // The process is killed: what was logged is there.
    kNothing,
    // Power goes: the tail that was not synced is lost, as far as the seed
    // says.
    kUnsyncedTail,
    // The disk goes: it comes back as the catalog of a new cluster.
    kEverything,
  };
  void Crash(Loss loss);
  void Pause() { machine_->process()->Pause(); }
  void Resume() { machine_->process()->Resume(); }

  bool running() const { return machine_ != nullptr; }
  // Counts its runs.
  int life() const { return life_; }
  Catalog* catalog() const { return catalog_.get(); }
  SimStore* store() { return &store_; }
  SimMachine* machine() const { return machine_; }

 private:
  SimWorld* const world_;
  const ClusterSecret secret_;
  const absl::Duration grace_;
  SimStore store_;
  int life_ = 0;
  SimMachine* machine_ = nullptr;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<SimControl::Serving> serving_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_CATALOG_H_
