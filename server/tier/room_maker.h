// Where the next slot of a class comes from, and what leaves for it.
//
// In this order: a free slot or free units of the tenant's regions; a new
// region; the coldest block of the class; the coldest other slabs of the
// tenant; the coldest region of the tenant that has most. So an allocation
// fails only while nothing can leave: because it is leased, held, reserved, or
// the ancestor of a block that is.
//
// Classes and tenants do not keep what they once got. Each time that a class
// has evicted as much as a slab for want of room, it looks whether a slab of
// another class of the tenant is colder as a whole than its own coldest block,
// and takes it if so; each time that a tenant has evicted as much as a region,
// it looks at the regions of a tenant with more of them in the same way. What
// is taken is colder than what would have been evicted, so this ends in a
// balance and does not swing.
//
// A tenant takes regions only from tenants that have more of them than itself.
//
// Who may evict only what is colder than something
// (ReserveRequest::evict_below) gets what is free, a new region, or the coldest
// block of the class if that is cold enough; slabs and regions move for writers
// alone.
//
// Threading. None: the pool's mutex protects it.
//
// Ownership. `blocks` outlives it. Owned by DramPool.

#ifndef FIRNKV_SERVER_TIER_ROOM_MAKER_H_
#define FIRNKV_SERVER_TIER_ROOM_MAKER_H_

#include <cstdint>
#include <set>
#include <tuple>

#include "proto/base/id.h"
#include "server/tier/resident_blocks.h"
#include "server/tier/slot_space.h"

namespace firnkv {

class RoomMaker {
 public:
  enum class Growth : std::uint8_t {
    // A region may be made for the tenant.
    kPossible,
    // One is being made for it: wait.
    kUnderWay,
    kImpossible,
  };
  struct Answer {
    // The slot, reserved; null: not now.
    Slot* slot = nullptr;
    // Make a region for the tenant, then ask again.
    bool grow = false;
    // Retire this region of another tenant in favour of this one. May come with
    // a slot.
    Region* retire = nullptr;
  };

  RoomMaker(ResidentBlocks* blocks, std::uint64_t region_bytes)
      : blocks_(blocks), region_bytes_(region_bytes) {}

  // `may_retire`: the tenant is not waiting for another's region already.
  // `below`: only blocks colder than that leave.
  struct Means {
    Growth growth = Growth::kImpossible;
    bool may_retire = false;
    Warmth below = Warmth::kWarmest;
  };
  Answer Find(TenantId tenant, std::uint64_t slot_bytes, Means means);

  // The region to give up where the pool must shrink: the coldest one of the
  // tenant that has most. Null if there is none.
  Region* ToGiveUp() const;

 private:
  // Tenant, slot size, and whether another's region could be had for it.
  using Wanted = std::tuple<TenantId, std::uint64_t, bool>;

  // Whatever its warmth.
  Slot* TakeOtherSlab(TenantId tenant, std::uint64_t slot_bytes);
  Slot* TakeColderSlab(TenantId tenant, SlotSpace::SlotClass* slot_class);
  Region* FindColderRegion(TenantId tenant, SlotSpace::TenantSpace* space,
                           Warmth own_coldest);
  Slot* EvictOwn(TenantId tenant, std::uint64_t slot_bytes, Warmth below);
  // Of the tenant with most regions, if it has more than `tenant`.
  Region* FindDonor(TenantId tenant) const;
  Slot* EmptyAndTake(const SlotSpace::Window& window, std::uint64_t slot_bytes);

  ResidentBlocks* const blocks_;
  const std::uint64_t region_bytes_;
  // What could not be had as long as nothing changed: not looked for again.
  std::uint64_t hopeless_at_ = 0;
  std::set<Wanted> hopeless_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_ROOM_MAKER_H_
