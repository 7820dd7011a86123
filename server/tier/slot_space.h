// The memory of the pool as slots: the regions of each tenant, the slabs of
// each slot class in them, and which slots are free.
//
// A slot class is (tenant, slot size): exactly the block size, page aligned,
// where the namespace declares one, otherwise one of four sizes a doubling, so
// that at most a fifth of a slot is padding. A slab that becomes empty gives
// its units back to its region at once, for any class; a region that stays
// empty goes back to the machine or to another tenant.
//
// Does not know: which block is in a slot, leases, who may evict what; when a
// region is made or given back.
//
// Threading. None: the pool's mutex protects it. Iteration is in a fixed order
// everywhere, so that a simulation replays.
//
// Owned by ResidentBlocks.

#ifndef FIRNKV_SERVER_TIER_SLOT_SPACE_H_
#define FIRNKV_SERVER_TIER_SLOT_SPACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "proto/base/id.h"
#include "server/policy/eviction.h"
#include "server/tier/region.h"

namespace firnkv {

class SlotSpace {
 public:
  struct SlotClass {
    std::uint64_t slot_bytes = 0;
    EvictionGroup group{};
    std::uint64_t slabs = 0;
    // (region, first unit) of slabs with a free slot.
    std::set<std::pair<std::uint64_t, std::uint32_t>> open;
    // Evicted for want of room since the class last looked at what others have.
    std::uint64_t evicted_bytes = 0;
  };
  struct TenantSpace {
    // Live regions by serial.
    std::map<std::uint64_t, Region*> regions;
    // By slot size; a class is here as long as it has slabs.
    std::map<std::uint64_t, SlotClass> classes;
    // As SlotClass::evicted_bytes.
    std::uint64_t evicted_bytes = 0;
  };
  // Where a slab could stand if its present slabs were emptied.
  struct Window {
    Region* region = nullptr;
    std::uint32_t first_unit = 0;
    std::uint32_t units = 0;
    // Mean warmth of the blocks that would have to leave; kNone: there are
    // none.
    Warmth warmth = Warmth::kNone;
  };
  // Whether what is in the slot, which is not free, can leave now.
  using CanLeave = absl::FunctionRef<bool(const Slot&)>;

  SlotSpace(NodeEpoch epoch, std::uint64_t region_bytes)
      : epoch_(epoch), region_bytes_(region_bytes) {}
  SlotSpace(const SlotSpace&) = delete;
  SlotSpace& operator=(const SlotSpace&) = delete;

  // The class of a block: `declared_bytes` is the namespace's block size or 0.
  static std::uint64_t SlotBytesFor(std::uint64_t length,
                                    std::uint64_t declared_bytes);

  // From one counter a run (rule P3).
  Generation NextGeneration() { return Generation{++last_generation_}; }
  // Never reused (rule P3).
  RegionId NextRegionId() { return {epoch_, ++last_serial_}; }

  // --- Regions.

  Region* AddRegion(RegionId id, TenantId tenant,
                    std::unique_ptr<RegionMemory> memory);
  // Gives no slot of it out any more. Its slabs go one by one as they become
  // empty.
  void BeginRetire(Region* region);
  // Forgets a retiring region in which nothing is any more. Every slot that
  // ever was in it got another generation when it was reclaimed (rule P6).
  std::unique_ptr<Region> RemoveRegion(std::uint64_t serial);
  Region* FindRegion(std::uint64_t serial) const;
  const std::map<std::uint64_t, std::unique_ptr<Region>>& regions() const {
    return regions_;
  }

  // --- Slots.

  // A free slot of the tenant's class, out of its slabs or of free units of its
  // regions; reserved from now on, with a generation of its own. Null: no room.
  Slot* Take(TenantId tenant, std::uint64_t slot_bytes);
  // The same out of the window, which has become free.
  Slot* TakeIn(const Window& window, std::uint64_t slot_bytes);
  Slot* Find(SlotId id) const;

  // The one place where a slot changes its state; the life in dram_pool.h is
  // asserted here. To kFree: the slot has got its next generation; its slab
  // goes when it was the last.
  void Move(Slot* slot, SlotState to, BootTime now);
  // The resident block was stored or touched.
  void SetWarmth(Slot* slot, Warmth warmth);

  // --- Looking for room.

  // Null where the tenant has no slab of that class.
  SlotClass* FindClass(TenantId tenant, std::uint64_t slot_bytes);
  TenantSpace* FindTenant(TenantId tenant);
  const std::map<TenantId, TenantSpace>& tenants() const { return tenants_; }
  // Every group that may have blocks.
  std::vector<EvictionGroup> Groups() const;

  // The coldest place for a slab of the class in the tenant's regions all of
  // whose blocks can leave. Costs O(slabs), and the slots of at most `most`
  // places that are looked at for leases and holds.
  std::optional<Window> ColdestWindow(TenantId tenant, std::uint64_t slot_bytes,
                                      std::size_t most,
                                      CanLeave can_leave) const;
  // The tenant's coldest region; those in which everything can leave come
  // before the others. Null if it has none.
  Region* ColdestRegion(const TenantSpace& tenant, CanLeave can_leave) const;
  // Mean over the region's blocks.
  Warmth WarmthOfRegion(const Region& region) const;
  // Slabs that overlap the window.
  std::vector<Slab*> SlabsIn(const Window& window) const;

  // --- Sums.

  std::uint64_t bytes(SlotState state) const {
    return bytes_[static_cast<std::size_t>(state)];
  }
  std::uint64_t slots(SlotState state) const {
    return slots_[static_cast<std::size_t>(state)];
  }
  // Regions that are not retiring, and those that are.
  std::uint64_t live_region_bytes() const { return live_region_bytes_; }
  std::uint64_t retiring_region_bytes() const {
    return regions_.size() * region_bytes_ - live_region_bytes_;
  }
  std::uint64_t slabs() const { return slabs_; }
  std::uint64_t unused_unit_bytes() const;
  std::uint64_t slab_rest_bytes() const { return slab_rest_bytes_; }

 private:
  // Blocks of some slabs. A sum over slabs may need more than 64 bits.
  struct Tally {
    double warmth = 0;
    std::uint64_t blocks = 0;
    Warmth mean() const;
    void Add(const Slab& slab);
  };

  Slot* TakeFrom(SlotClass* slot_class, Slab* slab);
  SlotClass& ClassOf(TenantId tenant, std::uint64_t slot_bytes);
  Slot* OpenSlab(SlotClass* slot_class, Slab* slab);
  void RemoveSlab(Slab* slab);
  // Of a tenant that has neither regions nor classes any more.
  void ForgetIfGone(TenantId tenant);
  static bool AllCanLeave(const Slab& slab, CanLeave can_leave);

  const NodeEpoch epoch_;
  const std::uint64_t region_bytes_;
  std::uint64_t last_generation_ = 0;
  std::uint64_t last_serial_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Region>> regions_;
  // Tenants with live regions, or with slabs in retiring ones.
  std::map<TenantId, TenantSpace> tenants_;
  std::vector<EvictionGroup> spare_groups_;
  std::uint32_t next_group_ = 0;
  std::uint64_t live_region_bytes_ = 0;
  std::uint64_t slabs_ = 0;
  std::uint64_t slab_rest_bytes_ = 0;
  std::array<std::uint64_t, kSlotStates> bytes_{};
  std::array<std::uint64_t, kSlotStates> slots_{};
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_SLOT_SPACE_H_
