// The pool's regions: how they come, how they go (rules P6 and P11), and who
// maps them.

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "server/tier/dram_pool.h"
#include "server/tier/resident_blocks.h"
#include "server/tier/room_maker.h"

namespace firnkv {

// --- A region's life.

std::uint64_t DramPool::TotalBytes() const {
  const SlotSpace& space = *blocks_->space();
  return space.live_region_bytes() + space.retiring_region_bytes() +
         (growing_.size() + still_mapped_.size()) * options_.region_bytes;
}

std::uint64_t DramPool::NominalBytes() const {
  return other_mapped_bytes_ + still_mapped_.size() * options_.region_bytes;
}

std::uint64_t DramPool::ComingBytes() const {
  const BootTime now = parts_.clock->Now();
  const auto soon = std::count_if(
      still_mapped_.begin(), still_mapped_.end(),
      [now](const auto& entry) { return now < entry.second.patience_until; });
  return blocks_->space()->retiring_region_bytes() +
         static_cast<std::uint64_t>(soon) * options_.region_bytes;
}

bool DramPool::AwaitsRegion(TenantId tenant) const {
  const BootTime now = parts_.clock->Now();
  return std::any_of(in_favour_of_.begin(), in_favour_of_.end(),
                     [&](const auto& entry) {
                       mutex_.AssertHeld();
                       if (entry.second != tenant) return false;
                       const auto still = still_mapped_.find(entry.first);
                       return still == still_mapped_.end() ||
                              now < still->second.patience_until;
                     });
}

bool DramPool::RegionIsSpareSoon() const {
  const BootTime now = parts_.clock->Now();
  const auto spare = std::count_if(
      still_mapped_.begin(), still_mapped_.end(), [&](const auto& entry) {
        mutex_.AssertHeld();
        return now < entry.second.patience_until &&
               !in_favour_of_.contains(entry.first);
      });
  // Those that are one too many already, after a lower target, do not count.
  return spare > 0 && TotalBytes() + options_.region_bytes <=
                          target_bytes_ + static_cast<std::uint64_t>(spare) *
                                              options_.region_bytes;
}

void DramPool::StartGrowth(TenantId tenant) {
  if (growing_.contains(tenant)) return;
  const RegionId id = blocks_->space()->NextRegionId();
  growing_.emplace(tenant, id.serial);
  parts_.executor->Post(scope_.Wrap([this, tenant, id] { Grow(tenant, id); }));
}

void DramPool::Grow(TenantId tenant, RegionId id) {
  std::uint64_t nominal_bytes = 0;
  {
    MutexLock lock(&mutex_);
    nominal_bytes = NominalBytes();
    // Those that began before may take what is free now. Only those, else two
    // that need the last bytes would wait for each other.
    for (const auto& [other, serial] : growing_) {
      if (serial < id.serial) nominal_bytes += arena_.step_bytes();
    }
  }
  auto made = arena_.Make(id, nominal_bytes);
  bool added = false;
  {
    MutexLock lock(&mutex_);
    growing_.erase(tenant);
    // The target may have come down meanwhile.
    added = made.ok() && TotalBytes() + options_.region_bytes <= target_bytes_;
    if (added) {
      Region* const region =
          blocks_->space()->AddRegion(id, tenant, *std::move(made));
      region->empty_since = parts_.clock->Now();
      region->made_announced = parts_.hooks == nullptr;
      ++regions_made_;
    } else {
      ++growth_refusals_;
      growth_paused_until_ = parts_.clock->Now() + options_.growth_pause;
    }
    Settle();
  }
  if (!added || parts_.hooks == nullptr) return;
  parts_.hooks->OnRegionMade(tenant, id.serial);
  MutexLock lock(&mutex_);
  // Still there: it is not retired before it was announced.
  blocks_->space()->FindRegion(id.serial)->made_announced = true;
  Settle();
}

absl::Status DramPool::CheckTarget(std::uint64_t bytes) const {
  std::uint64_t taken_bytes = 0;
  std::uint64_t nominal_bytes = 0;
  {
    MutexLock lock(&mutex_);
    const SlotSpace& space = *blocks_->space();
    taken_bytes = space.live_region_bytes() + space.retiring_region_bytes();
    nominal_bytes = NominalBytes();
  }
  return arena_.CheckTarget(bytes, taken_bytes, nominal_bytes);
}

void DramPool::SetTarget(std::uint64_t bytes) {
  MutexLock lock(&mutex_);
  target_bytes_ = bytes;
  ShrinkToTarget();
  Settle();
}

void DramPool::ShrinkToTarget() {
  // What retires already will be gone.
  while (blocks_->space()->live_region_bytes() > target_bytes_) {
    Region* const region = room_->ToGiveUp();
    CHECK(region != nullptr);
    Retire(region);
  }
}

void DramPool::Retire(Region* region) {
  region->retiring_since = parts_.clock->Now();
  blocks_->RetireRegion(region);
}

void DramPool::CheckMemory(std::uint64_t other_mapped_bytes) {
  std::uint64_t nominal_bytes = 0;
  {
    MutexLock lock(&mutex_);
    other_mapped_bytes_ = other_mapped_bytes;
    nominal_bytes = NominalBytes();
  }
  const Arena::Pressure pressure = arena_.Look(nominal_bytes);
  std::uint64_t missing = pressure.missing_bytes;
  MutexLock lock(&mutex_);
  // Somebody's allocation failed between two looks, whatever is free now that
  // its process is gone.
  if (out_of_memory_.has_value() && pressure.out_of_memory > *out_of_memory_) {
    missing = std::max(missing, arena_.step_bytes());
  }
  out_of_memory_ = pressure.out_of_memory;
  if (missing == 0) return;
  growth_paused_until_ = parts_.clock->Now() + options_.growth_pause;
  for (std::uint64_t bytes = ComingBytes(); bytes < missing;
       bytes += arena_.step_bytes()) {
    Region* const region = room_->ToGiveUp();
    if (region == nullptr) break;
    Retire(region);
  }
  Settle();
}

bool DramPool::IsQuiet(const Region& region) const {
  if (region.used_slots > 0) return false;
  if (!options_.huge_pages) return true;
  return region.mapped_by.empty() &&
         !blocks_->leases()->HasViews(region.serial());
}

void DramPool::AdvanceRetirements() {
  if (blocks_->space()->retiring_region_bytes() == 0) return;
  for (const auto& [serial, region] : blocks_->space()->regions()) {
    if (!region->retiring || !region->made_announced) continue;
    const std::uint64_t id = serial;
    if (!region->retirement_posted) {
      region->retirement_posted = true;
      const TenantId tenant = region->tenant();
      parts_.executor->Post(
          scope_.Wrap([this, tenant, id] { AnnounceRetirement(tenant, id); }));
    } else if (region->retirement_announced && !region->finishing &&
               IsQuiet(*region)) {
      region->finishing = true;
      parts_.executor->Post(scope_.Wrap([this, id] { FinishRetirement(id); }));
    }
  }
}

void DramPool::AnnounceRetirement(TenantId tenant, std::uint64_t region) {
  if (parts_.hooks != nullptr) parts_.hooks->OnRegionRetiring(tenant, region);
  MutexLock lock(&mutex_);
  blocks_->space()->FindRegion(region)->retirement_announced = true;
  Settle();
}

void DramPool::FinishRetirement(std::uint64_t serial) {
  // Rule P6. By now all slots have retired, their leases and holds have ended,
  // and each got its next generation in the header table when it was reclaimed.
  Region* region = nullptr;
  bool may_punch = false;
  {
    MutexLock lock(&mutex_);
    region = blocks_->space()->FindRegion(serial);
    CHECK(region->finishing && IsQuiet(*region));
    // Rule P9: who reads a punched huge page takes a free one, and dies where
    // there is none. What a session left mapped goes with its last mapping.
    // Until then it is memory in use, which the limits see (rule P11).
    may_punch = !options_.huge_pages || !region->left_mapped;
  }
  const TenantId tenant = region->tenant();
  if (parts_.hooks != nullptr) {
    parts_.hooks->ReplaceIoRegistration(serial);
    parts_.hooks->DeregisterTransports(serial);
  }
  // Only this task touches the region's memory now. A failed punch costs
  // memory for as long as somebody maps it, which is counted below; nothing is
  // served from it.
  if (may_punch) arena_.Punch(region->memory()).IgnoreError();
  std::unique_ptr<Region> gone;
  {
    MutexLock lock(&mutex_);
    gone = blocks_->space()->RemoveRegion(serial);
    ++regions_retired_;
    const auto it = in_favour_of_.find(serial);
    if (!gone->mapped_by.empty()) {
      still_mapped_.emplace(
          serial, StillMapped{.sessions = std::move(gone->mapped_by),
                              .retiring_since = gone->retiring_since,
                              .patience_until = parts_.clock->Now() +
                                                options_.unmap_patience});
    } else if (it != in_favour_of_.end()) {
      const TenantId next = it->second;
      in_favour_of_.erase(it);
      if (TotalBytes() + options_.region_bytes <= target_bytes_) {
        StartGrowth(next);
      }
    }
    Settle();
  }
  gone.reset();
  if (parts_.hooks != nullptr) parts_.hooks->OnRegionGone(tenant, serial);
}

// --- Regions and sessions.

std::vector<std::uint64_t> DramPool::RegionsOf(TenantId tenant) const {
  std::vector<std::uint64_t> regions;
  MutexLock lock(&mutex_);
  const auto it = blocks_->space()->tenants().find(tenant);
  if (it == blocks_->space()->tenants().end()) return regions;
  for (const auto& [serial, region] : it->second.regions) {
    regions.push_back(serial);
  }
  return regions;
}

absl::StatusOr<RegionFiles> DramPool::MapRegion(TenantId tenant,
                                                SessionId session,
                                                std::uint64_t serial) {
  MutexLock lock(&mutex_);
  Region* const region = blocks_->space()->FindRegion(serial);
  if (region == nullptr || region->retiring || region->tenant() != tenant) {
    return absl::NotFoundError(StrCat("region ", serial));
  }
  region->mapped_by.insert(session);
  return RegionFiles{.slots = region->memory()->slots_for_readers,
                     .headers = region->memory()->headers_for_readers,
                     .region_bytes = region->bytes()};
}

void DramPool::NoteUnmapped(SessionId session, std::uint64_t serial) {
  MutexLock lock(&mutex_);
  ForgetMapping(session, serial);
  Settle();
}

void DramPool::ForgetMapping(SessionId session, std::uint64_t serial) {
  if (Region* const region = blocks_->space()->FindRegion(serial)) {
    region->mapped_by.erase(session);
  }
  const auto it = still_mapped_.find(serial);
  if (it == still_mapped_.end()) return;
  it->second.sessions.erase(session);
  if (!it->second.sessions.empty()) return;
  still_mapped_.erase(it);
  // Whoever waits for it finds room for a region now.
  in_favour_of_.erase(serial);
}

void DramPool::AddOverdueMappings() {
  const absl::Duration longest =
      std::max(options_.leases.longest, options_.leases.longest_view) +
      options_.unmap_grace;
  const BootTime now = parts_.clock->Now();
  absl::flat_hash_set<SessionId> late;
  for (const auto& [serial, region] : blocks_->space()->regions()) {
    if (!region->retiring || now < region->retiring_since + longest) continue;
    late.insert(region->mapped_by.begin(), region->mapped_by.end());
  }
  for (const auto& [serial, still] : still_mapped_) {
    if (now < still.retiring_since + longest) continue;
    late.insert(still.sessions.begin(), still.sessions.end());
  }
  overdue_.mappings.assign(late.begin(), late.end());
  // In an order that a simulation repeats.
  std::sort(overdue_.mappings.begin(), overdue_.mappings.end());
}

}  // namespace firnkv
