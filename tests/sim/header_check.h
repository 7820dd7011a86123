// Between any two tasks of a schedule: whatever header a reader may find in a
// node's header tables tells the truth about the bytes beside it, and no
// generation of a node run ever stands for two contents (rules P3, P5, P6, P7).
// So a generation that was not bumped before a slot's bytes changed is seen
// even where checksums would save the readers.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SIM_HEADER_CHECK_H_
#define FIRNKV_TESTS_SIM_HEADER_CHECK_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/base/id.h"
#include "proto/base/slot_header.h"
#include "tests/sim/operations.h"
#include "tests/sim/oracle.h"
#include "tests/support/cluster.h"

namespace firnkv {

class HeaderCheck {
 public:
  // All outlive it.
  HeaderCheck(SimCluster* cluster, Oracle* oracle, const Operations* operations,
              int pace)
      : cluster_(cluster),
        oracle_(oracle),
        operations_(operations),
        pace_(pace) {}

  // Looks at every slot of every node.
  void Check();
  // From now on, until Stop, looks at one node or another now and then.
  void Start();
  void Stop() { stopped_ = true; }

  std::uint64_t headers_checked() const { return headers_checked_; }

 private:
  void Later();
  void CheckNode(int n);
  void CheckTable(int node, const SimMemory::Named& table);
  void CheckHeader(const std::string& where, NodeEpoch epoch,
                   const SlotHeader& header, absl::Span<const std::byte> bytes);

  SimCluster* const cluster_;
  Oracle* const oracle_;
  const Operations* const operations_;
  const int pace_;
  bool stopped_ = false;
  std::uint64_t headers_checked_ = 0;
  // What a generation of a node run stands for.
  absl::flat_hash_map<std::pair<NodeEpoch, Generation>,
                      std::pair<BlockId, std::uint32_t>>
      contents_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_HEADER_CHECK_H_
