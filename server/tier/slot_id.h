// Where a block lies in the DRAM pool: a slot is one allocation in a region,
// named by the page at which it starts, which is also the index of its header
// in the region's header table.
//
// Plain values. A SlotId alone says nothing about what is in the slot: the
// generation does, and whoever keeps a SlotId keeps the generation with it.

#ifndef FIRNKV_SERVER_TIER_SLOT_ID_H_
#define FIRNKV_SERVER_TIER_SLOT_ID_H_

#include <compare>
#include <cstdint>
#include <utility>

#include "proto/base/id.h"
#include "proto/base/limits.h"

namespace firnkv {

struct SlotId {
  // Serial of the region within this run of the node (RegionId without its
  // epoch); never reused. Zero names none.
  std::uint64_t region = 0;
  // First page of the slot within the region.
  std::uint32_t page = 0;

  std::uint64_t offset() const { return page * kPageBytes; }
  friend auto operator<=>(const SlotId&, const SlotId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const SlotId& id) {
    return H::combine(std::move(h), id.region, id.page);
  }
};

// A slot with what it is about: stale once the slot's generation is another.
struct SlotCopy {
  SlotId slot;
  Generation generation = Generation::kNone;
  friend auto operator<=>(const SlotCopy&, const SlotCopy&) = default;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_SLOT_ID_H_
