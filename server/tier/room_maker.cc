#include "server/tier/room_maker.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "proto/base/check.h"

namespace firnkv {
namespace {

// Where a class would only be better off with a slab, and need not have it.
constexpr std::size_t kWindowsToLookAt = 8;

}  // namespace

RoomMaker::Answer RoomMaker::Find(TenantId tenant, std::uint64_t slot_bytes,
                                  Means means) {
  SlotSpace* const space = blocks_->space();
  if (Slot* const slot = space->Take(tenant, slot_bytes)) return {.slot = slot};
  switch (means.growth) {
    case Growth::kPossible:
      return {.grow = true};
    case Growth::kUnderWay:
      return {};
    case Growth::kImpossible:
      break;
  }
  if (hopeless_at_ != blocks_->changes()) {
    hopeless_at_ = blocks_->changes();
    hopeless_.clear();
  }
  const Wanted wanted{tenant, slot_bytes, means.may_retire};
  if (hopeless_.contains(wanted)) return {};

  Answer answer;
  SlotSpace::SlotClass* const own = space->FindClass(tenant, slot_bytes);
  if (means.below != Warmth::kWarmest) {
    // Not hopeless for the next one, who may be let evict warmer blocks.
    if (own != nullptr) {
      answer.slot = EvictOwn(tenant, slot_bytes, means.below);
    }
    return answer;
  }
  if (own != nullptr) {
    SlotSpace::TenantSpace* const tenant_space = space->FindTenant(tenant);
    if (means.may_retire && tenant_space->evicted_bytes >= region_bytes_) {
      answer.retire = FindColderRegion(tenant, tenant_space,
                                       blocks_->ColdestOf(own->group));
    }
    answer.slot = TakeColderSlab(tenant, own);
    if (answer.slot == nullptr) {
      answer.slot = EvictOwn(tenant, slot_bytes, means.below);
    }
    if (answer.slot != nullptr) return answer;
  }
  if (Slot* const slot = TakeOtherSlab(tenant, slot_bytes)) {
    answer.slot = slot;
    return answer;
  }
  if (means.may_retire) answer.retire = FindDonor(tenant);
  hopeless_.insert(wanted);
  return answer;
}

Slot* RoomMaker::TakeOtherSlab(TenantId tenant, std::uint64_t slot_bytes) {
  SlotSpace* const space = blocks_->space();
  const SlotSpace::TenantSpace* const tenant_space = space->FindTenant(tenant);
  if (tenant_space == nullptr) return nullptr;
  // With no other class there is nobody to take from.
  const auto& classes = tenant_space->classes;
  if (classes.size() == classes.count(slot_bytes)) return nullptr;
  const std::optional<SlotSpace::Window> window = space->ColdestWindow(
      tenant, slot_bytes, /*most=*/SIZE_MAX,
      [this](const Slot& slot) { return blocks_->CanLeave(slot); });
  return window ? EmptyAndTake(*window, slot_bytes) : nullptr;
}

Slot* RoomMaker::TakeColderSlab(TenantId tenant,
                                SlotSpace::SlotClass* slot_class) {
  const std::uint64_t slab_bytes =
      Region::UnitsFor(slot_class->slot_bytes, region_bytes_) *
      (region_bytes_ / Region::kUnits);
  if (slot_class->evicted_bytes < slab_bytes) return nullptr;
  slot_class->evicted_bytes = 0;
  // With a single class there is nobody to take from.
  if (blocks_->space()->FindTenant(tenant)->classes.size() < 2) return nullptr;
  const std::optional<SlotSpace::Window> window =
      blocks_->space()->ColdestWindow(
          tenant, slot_class->slot_bytes, kWindowsToLookAt,
          [this](const Slot& slot) { return blocks_->CanLeave(slot); });
  if (!window || window->warmth >= blocks_->ColdestOf(slot_class->group)) {
    return nullptr;
  }
  return EmptyAndTake(*window, slot_class->slot_bytes);
}

Region* RoomMaker::FindColderRegion(TenantId tenant,
                                    SlotSpace::TenantSpace* space,
                                    Warmth own_coldest) {
  space->evicted_bytes = 0;
  Region* const region = FindDonor(tenant);
  if (region == nullptr) return nullptr;
  // After the move the giver still has as many as the taker.
  const auto& tenants = blocks_->space()->tenants();
  if (tenants.at(region->tenant()).regions.size() < space->regions.size() + 2) {
    return nullptr;
  }
  const Warmth warmth = blocks_->space()->WarmthOfRegion(*region);
  return warmth < own_coldest ? region : nullptr;
}

Slot* RoomMaker::EvictOwn(TenantId tenant, std::uint64_t slot_bytes,
                          Warmth below) {
  SlotSpace* const space = blocks_->space();
  const EvictionGroup group = space->FindClass(tenant, slot_bytes)->group;
  const std::uint64_t evicted =
      blocks_->Evict(absl::MakeConstSpan(&group, 1), {slot_bytes, below});
  if (evicted == 0) return nullptr;
  Slot* const slot = space->Take(tenant, slot_bytes);
  // Nobody had the victim, so its slot, or its slab's units, are free.
  CHECK(slot != nullptr);
  space->FindClass(tenant, slot_bytes)->evicted_bytes += evicted;
  space->FindTenant(tenant)->evicted_bytes += evicted;
  return slot;
}

Slot* RoomMaker::EmptyAndTake(const SlotSpace::Window& window,
                              std::uint64_t slot_bytes) {
  for (Slab* slab : blocks_->space()->SlabsIn(window)) {
    blocks_->EmptySlab(slab);
  }
  return blocks_->space()->TakeIn(window, slot_bytes);
}

Region* RoomMaker::FindDonor(TenantId tenant) const {
  const SlotSpace& space = *blocks_->space();
  const auto own = space.tenants().find(tenant);
  std::size_t most =
      own == space.tenants().end() ? 0 : own->second.regions.size();
  const SlotSpace::TenantSpace* donor = nullptr;
  for (const auto& [other, other_space] : space.tenants()) {
    if (other == tenant || other_space.regions.size() <= most) continue;
    most = other_space.regions.size();
    donor = &other_space;
  }
  if (donor == nullptr) return nullptr;
  return space.ColdestRegion(
      *donor, [this](const Slot& slot) { return blocks_->CanLeave(slot); });
}

Region* RoomMaker::ToGiveUp() const {
  // Nobody's: every tenant with a region has more.
  return FindDonor(TenantId{});
}

}  // namespace firnkv
