// Which flash segments go when room is needed, and which of their records are
// worth writing once more. A pure decision: no I/O, no clock, no threads, no
// randomness. An interface, since the trace replay and the planner compare
// orders.
//
// Does not know: where segments lie, how they are read, what there is room for.
//
// Threading. Const: from any thread.

#ifndef FIRNKV_SERVER_POLICY_SEGMENT_ORDER_H_
#define FIRNKV_SERVER_POLICY_SEGMENT_ORDER_H_

#include <cstdint>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/id.h"

namespace firnkv {

// What is known of a sealed segment.
struct SegmentFacts {
  std::uint32_t segment = 0;
  std::uint64_t lap = 0;
  TenantId tenant;
  // Of records that are still in the index.
  std::uint64_t live_bytes = 0;
  std::uint64_t live_records = 0;
  // Of its records, since it was sealed or recovered.
  std::uint64_t reads = 0;
  BootTime sealed_at;
  // Zero: never.
  BootTime last_read;
};

class SegmentOrder {
 public:
  virtual ~SegmentOrder() = default;
  // The same segments, first who goes first.
  virtual std::vector<SegmentFacts> Order(
      std::vector<SegmentFacts> segments) const = 0;
  // Whether a record of a segment that goes, read so often (counted up to 15),
  // is worth its bytes of the endurance budget.
  virtual bool WorthKeeping(unsigned reads) const = 0;
};

// Empty segments go first, then by the last use (reading, else sealing), then
// those with fewer live bytes. Keeps what was read at least
// `reads_worth_keeping` times; 0 keeps nothing.
class ColdestSegmentFirst : public SegmentOrder {
 public:
  explicit ColdestSegmentFirst(unsigned reads_worth_keeping = 2)
      : reads_worth_keeping_(reads_worth_keeping) {}
  std::vector<SegmentFacts> Order(
      std::vector<SegmentFacts> segments) const override;
  bool WorthKeeping(unsigned reads) const override {
    return reads_worth_keeping_ > 0 && reads >= reads_worth_keeping_;
  }

 private:
  const unsigned reads_worth_keeping_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_POLICY_SEGMENT_ORDER_H_
