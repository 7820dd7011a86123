// One region of the pool: a piece of memory that belongs to one tenant for as
// long as it lives (rule C5), cut into 64 units; runs of units make slabs of
// slots of one size; an empty slab gives its units back.
//
// The region knows its slots' states and counts them; what a slot is about and
// when its state changes is decided in resident_blocks.h.
//
// Threading. None: the pool's mutex protects it. Bytes of a slot are touched
// outside the mutex by whoever has a hold.
//
// Ownership. Owned by SlotSpace. Slots and slabs stay where they are until
// their slab is empty and given back: pointers to them are good until then.

#ifndef FIRNKV_SERVER_TIER_REGION_H_
#define FIRNKV_SERVER_TIER_REGION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/slot_header.h"
#include "server/policy/eviction.h"
#include "server/tier/arena.h"
#include "server/tier/slot_id.h"

namespace firnkv {

class Region;
struct Slab;

enum class SlotState : std::uint8_t {
  kFree,
  // Taken by a reservation, unindexed.
  kReserved,
  // In the index, readable.
  kResident,
  // Out of the index; leases or holds are waited for.
  kRetiring,
};
inline constexpr std::size_t kSlotStates = 4;

struct Slot {
  SlotId id;
  Slab* slab = nullptr;
  SlotState state = SlotState::kFree;
  // Its bytes are, or will be, those of another node's copy, not a writer's.
  bool copied = false;
  // What is in it or will be next; given anew before each reuse (rule P7).
  Generation generation = Generation::kNone;
  std::uint32_t holds = 0;
  // Of a resident block; its share of its slab's sum.
  Warmth warmth = Warmth::kNone;
  BlockNumber block = BlockNumber::kNone;
  // Reserved: when the reservation ends.
  BootTime reserved_until;
  // Reserved, resident, retiring: what the node knows of the copy (rule P10:
  // it is never read back from the header table).
  std::unique_ptr<SlotHeader> header;

  SlotCopy copy() const { return {id, generation}; }
};

struct Slab {
  Region* region = nullptr;
  std::uint32_t first_unit = 0;
  std::uint32_t units = 0;
  std::uint64_t slot_bytes = 0;
  // Which the policy chooses victims from: (tenant, slot_bytes).
  EvictionGroup group{};
  // Resident slots, and the sum of their warmth: at most 2^14 slots of 2^49.
  std::uint32_t resident = 0;
  std::uint64_t warmth = 0;
  std::vector<Slot> slots;
  // Indexes of the free ones; the last is used next.
  std::vector<std::uint32_t> free;
};

class Region {
 public:
  static constexpr std::uint32_t kUnits = 64;

  // `bytes` is a multiple of kUnits pages.
  Region(RegionId id, TenantId tenant, std::uint64_t bytes,
         std::unique_ptr<RegionMemory> memory);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // How many units a slab of slots of this size takes: the fewest that leave at
  // most a sixteenth of it unused, or else, among up to a quarter of a region,
  // those that leave the smallest share.
  static std::uint32_t UnitsFor(std::uint64_t slot_bytes,
                                std::uint64_t region_bytes);

  // A new slab, all free, without generations; null where no run of free units
  // is long enough.
  Slab* AddSlab(std::uint64_t slot_bytes, EvictionGroup group);
  // The same in this very place, which is free.
  Slab* AddSlabAt(std::uint32_t first_unit, std::uint64_t slot_bytes,
                  EvictionGroup group);
  // Every slot of it is free.
  void RemoveSlab(Slab* slab);

  // Null unless a slot of a slab starts at `page`.
  Slot* Find(std::uint32_t page);
  absl::Span<std::byte> BytesOf(const Slot& slot) const;
  HeaderTableWriter& headers() { return headers_; }

  // The slab that has the unit, null if it is free.
  Slab* SlabAt(std::uint32_t unit) const { return slab_of_unit_[unit]; }
  template <typename Each>
  void EachSlab(Each each) const {
    for (std::uint32_t unit = 0; unit < kUnits;) {
      Slab* const slab = slab_of_unit_[unit];
      unit += slab == nullptr ? 1 : slab->units;
      if (slab != nullptr) each(slab);
    }
  }

  RegionId id() const { return id_; }
  std::uint64_t serial() const { return id_.serial; }
  TenantId tenant() const { return tenant_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t unit_bytes() const { return bytes_ / kUnits; }
  std::uint32_t free_units() const { return free_units_; }
  RegionMemory* memory() const { return memory_.get(); }
  std::unique_ptr<RegionMemory> TakeMemory() { return std::move(memory_); }

  // Slots that are not free. Zero: nothing is in the region.
  std::uint64_t used_slots = 0;
  // No slot is given out any more (rule P6).
  bool retiring = false;
  // Which hooks have run or were posted (pool_events.h has their order).
  bool made_announced = false;
  bool retirement_posted = false;
  bool retirement_announced = false;
  // Its last steps run on a task.
  bool finishing = false;
  // Since when nothing is in it, and since when it retires.
  BootTime empty_since;
  BootTime retiring_since;
  // Sessions that were given its descriptors and have not said that they
  // unmapped it.
  absl::flat_hash_set<SessionId> mapped_by;
  // One of them ended without that: its process may still have it mapped.
  bool left_mapped = false;

 private:
  std::uint32_t FindRun(std::uint32_t units) const;

  const RegionId id_;
  const TenantId tenant_;
  const std::uint64_t bytes_;
  std::unique_ptr<RegionMemory> memory_;
  HeaderTableWriter headers_;
  std::uint32_t free_units_ = kUnits;
  std::array<Slab*, kUnits> slab_of_unit_{};
  std::array<std::unique_ptr<Slab>, kUnits> slabs_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_REGION_H_
