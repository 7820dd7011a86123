#include "server/tier/slot_space.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"

namespace firnkv {

std::uint64_t SlotSpace::SlotBytesFor(std::uint64_t length,
                                      std::uint64_t declared_bytes) {
  if (declared_bytes != 0) return AlignUp(declared_bytes, kPageBytes);
  // 4, 5, 6 or 7 quarters of a power of two, and whole pages.
  const std::uint64_t pages = DivideUp(length, kPageBytes);
  const std::uint64_t quarter =
      std::max<std::uint64_t>(1, std::bit_floor(pages) / 4);
  return AlignUp(pages, quarter) * kPageBytes;
}

Region* SlotSpace::AddRegion(RegionId id, TenantId tenant,
                             std::unique_ptr<RegionMemory> memory) {
  auto region =
      std::make_unique<Region>(id, tenant, region_bytes_, std::move(memory));
  Region* const added = region.get();
  CHECK(regions_.emplace(id.serial, std::move(region)).second);
  tenants_[tenant].regions.emplace(id.serial, added);
  live_region_bytes_ += region_bytes_;
  return added;
}

void SlotSpace::BeginRetire(Region* region) {
  CHECK(!region->retiring);
  region->retiring = true;
  live_region_bytes_ -= region_bytes_;
  TenantSpace& tenant = tenants_.at(region->tenant());
  tenant.regions.erase(region->serial());
  region->EachSlab([&](Slab* slab) {
    tenant.classes.at(slab->slot_bytes)
        .open.erase({region->serial(), slab->first_unit});
  });
  ForgetIfGone(region->tenant());
}

std::unique_ptr<Region> SlotSpace::RemoveRegion(std::uint64_t serial) {
  const auto it = regions_.find(serial);
  CHECK(it != regions_.end() && it->second->retiring);
  CHECK(it->second->free_units() == Region::kUnits);
  std::unique_ptr<Region> region = std::move(it->second);
  regions_.erase(it);
  return region;
}

Region* SlotSpace::FindRegion(std::uint64_t serial) const {
  const auto it = regions_.find(serial);
  return it == regions_.end() ? nullptr : it->second.get();
}

Slot* SlotSpace::Find(SlotId id) const {
  Region* const region = FindRegion(id.region);
  return region == nullptr ? nullptr : region->Find(id.page);
}

Slot* SlotSpace::Take(TenantId tenant, std::uint64_t slot_bytes) {
  const auto space = tenants_.find(tenant);
  if (space == tenants_.end()) return nullptr;
  const auto it = space->second.classes.find(slot_bytes);
  if (it != space->second.classes.end() && !it->second.open.empty()) {
    const auto [serial, unit] = *it->second.open.begin();
    return TakeFrom(&it->second, regions_.at(serial)->SlabAt(unit));
  }
  const std::uint32_t units = Region::UnitsFor(slot_bytes, region_bytes_);
  for (const auto& [serial, region] : space->second.regions) {
    if (region->free_units() < units) continue;
    SlotClass& slot_class = ClassOf(tenant, slot_bytes);
    Slab* const slab = region->AddSlab(slot_bytes, slot_class.group);
    if (slab != nullptr) return OpenSlab(&slot_class, slab);
    if (slot_class.slabs == 0) {
      spare_groups_.push_back(slot_class.group);
      space->second.classes.erase(slot_bytes);
    }
  }
  return nullptr;
}

Slot* SlotSpace::TakeIn(const Window& window, std::uint64_t slot_bytes) {
  SlotClass& slot_class = ClassOf(window.region->tenant(), slot_bytes);
  return OpenSlab(&slot_class,
                  window.region->AddSlabAt(window.first_unit, slot_bytes,
                                           slot_class.group));
}

SlotSpace::SlotClass& SlotSpace::ClassOf(TenantId tenant,
                                         std::uint64_t slot_bytes) {
  auto& classes = tenants_[tenant].classes;
  const auto it = classes.find(slot_bytes);
  if (it != classes.end()) return it->second;
  SlotClass& made = classes[slot_bytes];
  made.slot_bytes = slot_bytes;
  if (spare_groups_.empty()) {
    made.group = EvictionGroup{next_group_++};
  } else {
    made.group = spare_groups_.back();
    spare_groups_.pop_back();
  }
  return made;
}

Slot* SlotSpace::OpenSlab(SlotClass* slot_class, Slab* slab) {
  ++slot_class->slabs;
  ++slabs_;
  slab_rest_bytes_ += slab->units * slab->region->unit_bytes() -
                      slab->slots.size() * slab->slot_bytes;
  const auto free = static_cast<std::size_t>(SlotState::kFree);
  bytes_[free] += slab->slots.size() * slab->slot_bytes;
  slots_[free] += slab->slots.size();
  slot_class->open.emplace(slab->region->serial(), slab->first_unit);
  return TakeFrom(slot_class, slab);
}

Slot* SlotSpace::TakeFrom(SlotClass* slot_class, Slab* slab) {
  CHECK(!slab->free.empty());
  Slot* const slot = &slab->slots[slab->free.back()];
  slab->free.pop_back();
  if (slab->free.empty()) {
    slot_class->open.erase({slab->region->serial(), slab->first_unit});
  }
  // A slot that was used before got its generation when it was reclaimed.
  if (slot->generation == Generation::kNone) {
    slot->generation = NextGeneration();
  }
  Move(slot, SlotState::kReserved, {});
  return slot;
}

void SlotSpace::Move(Slot* slot, SlotState to, BootTime now) {
  const SlotState from = slot->state;
  switch (to) {
    case SlotState::kReserved:
      CHECK(from == SlotState::kFree);
      break;
    case SlotState::kResident:
      CHECK(from == SlotState::kReserved);
      break;
    case SlotState::kRetiring:
      CHECK(from == SlotState::kReserved || from == SlotState::kResident);
      break;
    case SlotState::kFree:
      CHECK(from == SlotState::kRetiring);
      CHECK(slot->holds == 0);
      break;
  }
  Slab* const slab = slot->slab;
  slot->state = to;
  bytes_[static_cast<std::size_t>(from)] -= slab->slot_bytes;
  slots_[static_cast<std::size_t>(from)] -= 1;
  bytes_[static_cast<std::size_t>(to)] += slab->slot_bytes;
  slots_[static_cast<std::size_t>(to)] += 1;
  if (from == SlotState::kFree) ++slab->region->used_slots;
  if (to != SlotState::kFree) return;

  slab->free.push_back(static_cast<std::uint32_t>(slot - slab->slots.data()));
  if (--slab->region->used_slots == 0) slab->region->empty_since = now;
  if (slab->free.size() == slab->slots.size()) {
    RemoveSlab(slab);
  } else if (!slab->region->retiring) {
    FindClass(slab->region->tenant(), slab->slot_bytes)
        ->open.emplace(slab->region->serial(), slab->first_unit);
  }
}

void SlotSpace::RemoveSlab(Slab* slab) {
  Region* const region = slab->region;
  const TenantId tenant = region->tenant();
  auto& classes = tenants_.at(tenant).classes;
  const auto it = classes.find(slab->slot_bytes);
  it->second.open.erase({region->serial(), slab->first_unit});
  const auto free = static_cast<std::size_t>(SlotState::kFree);
  bytes_[free] -= slab->slots.size() * slab->slot_bytes;
  slots_[free] -= slab->slots.size();
  slab_rest_bytes_ -= slab->units * region->unit_bytes() -
                      slab->slots.size() * slab->slot_bytes;
  --slabs_;
  region->RemoveSlab(slab);
  if (--it->second.slabs > 0) return;
  spare_groups_.push_back(it->second.group);
  classes.erase(it);
  ForgetIfGone(tenant);
}

void SlotSpace::ForgetIfGone(TenantId tenant) {
  const auto it = tenants_.find(tenant);
  if (it->second.regions.empty() && it->second.classes.empty()) {
    tenants_.erase(it);
  }
}

SlotSpace::SlotClass* SlotSpace::FindClass(TenantId tenant,
                                           std::uint64_t slot_bytes) {
  TenantSpace* const space = FindTenant(tenant);
  if (space == nullptr) return nullptr;
  const auto it = space->classes.find(slot_bytes);
  return it == space->classes.end() ? nullptr : &it->second;
}

SlotSpace::TenantSpace* SlotSpace::FindTenant(TenantId tenant) {
  const auto it = tenants_.find(tenant);
  return it == tenants_.end() ? nullptr : &it->second;
}

std::vector<EvictionGroup> SlotSpace::Groups() const {
  std::vector<EvictionGroup> groups;
  for (const auto& [tenant, space] : tenants_) {
    for (const auto& [bytes, one] : space.classes) groups.push_back(one.group);
  }
  return groups;
}

Warmth SlotSpace::Tally::mean() const {
  return blocks == 0 ? Warmth::kNone
                     : Warmth{static_cast<std::uint64_t>(
                           warmth / static_cast<double>(blocks))};
}

void SlotSpace::Tally::Add(const Tally& other) {
  warmth += other.warmth;
  blocks += other.blocks;
  all_can_leave = all_can_leave && other.all_can_leave;
}

SlotSpace::Tally SlotSpace::TallyOf(const Slab& slab, WarmthOf warmth_of) {
  Tally tally;
  for (const Slot& slot : slab.slots) {
    if (slot.state == SlotState::kFree) continue;
    const std::optional<Warmth> warmth = warmth_of(slot);
    if (!warmth) {
      tally.all_can_leave = false;
      continue;
    }
    tally.warmth += static_cast<double>(static_cast<std::uint64_t>(*warmth));
    ++tally.blocks;
  }
  return tally;
}

std::optional<SlotSpace::Window> SlotSpace::ColdestWindow(
    TenantId tenant, std::uint64_t slot_bytes, WarmthOf warmth_of) const {
  const auto space = tenants_.find(tenant);
  if (space == tenants_.end()) return std::nullopt;
  const std::uint32_t units = Region::UnitsFor(slot_bytes, region_bytes_);
  std::optional<Window> coldest;
  for (const auto& [serial, region] : space->second.regions) {
    // By the unit at which a slab starts.
    std::array<Tally, Region::kUnits> tallies;
    region->EachSlab([&](Slab* slab) {
      tallies[slab->first_unit] = TallyOf(*slab, warmth_of);
    });
    for (std::uint32_t first = 0; first + units <= Region::kUnits; ++first) {
      Tally tally;
      for (std::uint32_t unit = first; unit < first + units;) {
        const Slab* const slab = region->SlabAt(unit);
        if (slab != nullptr) tally.Add(tallies[slab->first_unit]);
        unit = slab == nullptr ? unit + 1 : slab->first_unit + slab->units;
      }
      if (!tally.all_can_leave) continue;
      if (coldest && coldest->warmth <= tally.mean()) continue;
      coldest = Window{.region = region,
                       .first_unit = first,
                       .units = units,
                       .warmth = tally.mean()};
    }
  }
  return coldest;
}

Region* SlotSpace::ColdestRegion(const TenantSpace& tenant,
                                 WarmthOf warmth_of) const {
  Region* coldest = nullptr;
  Tally least;
  for (const auto& [serial, region] : tenant.regions) {
    Tally tally;
    region->EachSlab([&](Slab* slab) { tally.Add(TallyOf(*slab, warmth_of)); });
    const bool better = coldest == nullptr ||
                        (tally.all_can_leave && !least.all_can_leave) ||
                        (tally.all_can_leave == least.all_can_leave &&
                         tally.mean() < least.mean());
    if (!better) continue;
    coldest = region;
    least = tally;
  }
  return coldest;
}

Warmth SlotSpace::WarmthOfRegion(const Region& region,
                                 WarmthOf warmth_of) const {
  Tally tally;
  region.EachSlab([&](Slab* slab) { tally.Add(TallyOf(*slab, warmth_of)); });
  return tally.mean();
}

std::vector<Slab*> SlotSpace::SlabsIn(const Window& window) const {
  std::vector<Slab*> slabs;
  for (std::uint32_t unit = window.first_unit;
       unit < window.first_unit + window.units;) {
    Slab* const slab = window.region->SlabAt(unit);
    if (slab != nullptr) slabs.push_back(slab);
    unit = slab == nullptr ? unit + 1 : slab->first_unit + slab->units;
  }
  return slabs;
}

std::uint64_t SlotSpace::unused_unit_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [serial, region] : regions_) {
    bytes += region->free_units() * region->unit_bytes();
  }
  return bytes;
}

}  // namespace firnkv
