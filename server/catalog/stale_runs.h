// Which runs will never count again, asked of the membership once a run.
//
// Valid within one step of the strand: registrations and inventories change
// nowhere else, so a verdict cannot grow old in between (rule A3).

#ifndef FIRNKV_SERVER_CATALOG_STALE_RUNS_H_
#define FIRNKV_SERVER_CATALOG_STALE_RUNS_H_

#include "absl/container/flat_hash_map.h"
#include "server/catalog/membership.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

class StaleRuns {
 public:
  // `membership` outlives it.
  explicit StaleRuns(const Membership* membership) : membership_(membership) {}

  bool operator()(const Run& run) const {
    const auto [it, added] = known_.try_emplace(run, false);
    if (added) {
      it->second = membership_->Judge({run})[0] == Verdict::kStale;
    }
    return it->second;
  }

 private:
  const Membership* const membership_;
  // What has been asked already.
  mutable absl::flat_hash_map<Run, bool> known_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_STALE_RUNS_H_
