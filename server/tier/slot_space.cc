#include "server/tier/slot_space.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

template <typename Each>
void EachSlabIn(const SlotSpace::Window& window, Each each) {
  for (std::uint32_t unit = window.first_unit;
       unit < window.first_unit + window.units;) {
    Slab* const slab = window.region->SlabAt(unit);
    unit = slab == nullptr ? unit + 1 : slab->first_unit + slab->units;
    if (slab != nullptr) each(slab);
  }
}

}  // namespace

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
  if (from == SlotState::kResident) {
    slab->warmth -= static_cast<std::uint64_t>(slot->warmth);
    slot->warmth = Warmth::kNone;
    --slab->resident;
  }
  if (to == SlotState::kResident) ++slab->resident;
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

void SlotSpace::SetWarmth(Slot* slot, Warmth warmth) {
  CHECK(slot->state == SlotState::kResident);
  slot->slab->warmth += static_cast<std::uint64_t>(warmth) -
                        static_cast<std::uint64_t>(slot->warmth);
  slot->warmth = warmth;
}

Warmth SlotSpace::Tally::mean() const {
  if (blocks == 0) return Warmth::kNone;
  return Warmth{
      static_cast<std::uint64_t>(warmth / static_cast<double>(blocks))};
}

void SlotSpace::Tally::Add(const Slab& slab) {
  warmth += static_cast<double>(slab.warmth);
  blocks += slab.resident;
}

bool SlotSpace::AllCanLeave(const Slab& slab, CanLeave can_leave) {
  return std::all_of(slab.slots.begin(), slab.slots.end(),
                     [can_leave](const Slot& slot) {
                       return slot.state == SlotState::kFree || can_leave(slot);
                     });
}

std::optional<SlotSpace::Window> SlotSpace::ColdestWindow(
    TenantId tenant, std::uint64_t slot_bytes, std::size_t most,
    CanLeave can_leave) const {
  const auto space = tenants_.find(tenant);
  if (space == tenants_.end()) return std::nullopt;
  const std::uint32_t units = Region::UnitsFor(slot_bytes, region_bytes_);
  std::vector<Window> windows;
  for (const auto& [serial, region] : space->second.regions) {
    for (std::uint32_t first = 0; first + units <= Region::kUnits; ++first) {
      Window window{
          .region = region, .first_unit = first, .units = units, .warmth = {}};
      Tally tally;
      EachSlabIn(window, [&tally](Slab* slab) { tally.Add(*slab); });
      window.warmth = tally.mean();
      windows.push_back(window);
    }
  }
  // The coldest at the front of a heap; the first one where they are equal.
  const auto warmer = [](const Window& a, const Window& b) {
    return std::make_tuple(a.warmth, a.region->serial(), a.first_unit) >
           std::make_tuple(b.warmth, b.region->serial(), b.first_unit);
  };
  std::make_heap(windows.begin(), windows.end(), warmer);
  for (std::size_t i = 0; i < most && !windows.empty(); ++i) {
    const std::vector<Slab*> slabs = SlabsIn(windows.front());
    if (std::all_of(slabs.begin(), slabs.end(), [can_leave](const Slab* slab) {
          return AllCanLeave(*slab, can_leave);
        })) {
      return windows.front();
    }
    std::pop_heap(windows.begin(), windows.end(), warmer);
    windows.pop_back();
  }
  return std::nullopt;
}

Region* SlotSpace::ColdestRegion(const TenantSpace& tenant,
                                 CanLeave can_leave) const {
  std::vector<std::pair<Warmth, Region*>> regions;
  for (const auto& [serial, region] : tenant.regions) {
    regions.emplace_back(WarmthOfRegion(*region), region);
  }
  std::stable_sort(
      regions.begin(), regions.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [warmth, region] : regions) {
    bool all_can_leave = true;
    region->EachSlab([&](Slab* slab) {
      all_can_leave = all_can_leave && AllCanLeave(*slab, can_leave);
    });
    if (all_can_leave) return region;
  }
  return regions.empty() ? nullptr : regions.front().second;
}

Warmth SlotSpace::WarmthOfRegion(const Region& region) const {
  Tally tally;
  region.EachSlab([&tally](Slab* slab) { tally.Add(*slab); });
  return tally.mean();
}

std::vector<Slab*> SlotSpace::SlabsIn(const Window& window) const {
  std::vector<Slab*> slabs;
  EachSlabIn(window, [&slabs](Slab* slab) { slabs.push_back(slab); });
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
