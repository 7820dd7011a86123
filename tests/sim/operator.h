// The human with the CLI: clears namespaces and waits until that is done, keeps
// a backup of the catalog, and when the catalog's disk was lost or an old one
// was put in its place, restores it and accepts the restore (rule A9), again
// until every node is a member.
//
// Threading. One thread only. Everything it is given outlives it.

#ifndef FIRNKV_TESTS_SIM_OPERATOR_H_
#define FIRNKV_TESTS_SIM_OPERATOR_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "tests/sim/operations.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"

namespace firnkv {

class Operator {
 public:
  Operator(SimCluster* cluster, Oracle* oracle, Operations* operations)
      : cluster_(cluster), oracle_(oracle), operations_(operations) {}

  // Has a backup of what there is now, by and by.
  void Start() { Backup(); }
  bool has_backup() const { return !backup_.empty(); }

  // The catalog comes up empty, or with an old state: goes on until all nodes
  // that run are members again.
  void OnCatalogLost() { BeginRepair(Repair::kRestore); }
  void OnCatalogReplaced() { BeginRepair(Repair::kAccept); }
  // The original serves again: accepts it where a node stays out.
  void OnCatalogDoubled() { BeginRepair(Repair::kWatch); }
  // While it repairs nobody clears: a clear made at a catalog that the nodes
  // refuse would be one that nobody has to obey.
  bool repairing() const { return repair_ != Repair::kNone; }

  // `firnkv namespace clear --wait` of the tenant's namespace.
  void Clear(std::size_t tenant, const std::string& name,
             NamespaceId name_space);

 private:
  enum class Repair { kNone, kRestore, kAccept, kWatch };

  void Backup();
  void BeginRepair(Repair repair);
  // One step, and the next one some time later.
  void Mend();
  void OnMended(Repair next, const absl::Status& status);
  bool EveryNodeIsAMember() const;
  void AwaitClear(std::size_t tenant, const std::string& name,
                  NamespaceId name_space, std::size_t number,
                  std::uint64_t repairs);
  void After(absl::Duration delay, Task step);

  SimCluster* const cluster_;
  Oracle* const oracle_;
  Operations* const operations_;
  std::string backup_;
  Repair repair_ = Repair::kNone;
  // Counts them: a clear that one came between is not waited for any more.
  std::uint64_t repairs_ = 0;
  // The incarnation that the last accept began.
  std::uint64_t accepted_ = 0;
  int looks_ = 0;
  // In a row, each with every node a member.
  int good_looks_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_OPERATOR_H_
