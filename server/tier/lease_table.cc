#include "server/tier/lease_table.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"

namespace firnkv {

LeaseTable::LeaseTable(const Options& options, const Clock* clock)
    : options_(options), clock_(clock) {}

bool LeaseTable::HasRoom(const Holder& holder, std::size_t slots) const {
  const auto session = sessions_.find(holder.session);
  const auto tenant = tenants_.find(holder.tenant);
  const std::size_t own =
      session == sessions_.end() ? 0 : session->second.leased_slots;
  const std::size_t all = tenant == tenants_.end() ? 0 : tenant->second;
  return leased_slots_ + slots <= options_.max_leased_slots &&
         own + slots <= options_.max_leased_slots_a_session &&
         all + slots <= options_.max_leased_slots_a_tenant;
}

LeaseTable::GrantOutcome LeaseTable::Grant(const Holder& holder, LeaseUse use,
                                           absl::Span<Wanted> wanted,
                                           absl::Duration duration) {
  CHECK(duration > absl::ZeroDuration());
  absl::Duration valid_for = std::min(duration, options_.longest);
  if (use == LeaseUse::kView) {
    valid_for = std::min(valid_for, options_.longest_view);
  }
  const BootTime now = clock_->Now();
  if (!HasRoom(holder, wanted.size())) return Refused::kTableFull;
  Lease lease;
  lease.session = holder.session;
  lease.tenant = holder.tenant;
  lease.use = use;
  lease.renewable = holder.renewable;
  lease.ends_at = now + valid_for;
  lease.view_ends_at = now + options_.longest_view;
  lease.slots.reserve(wanted.size());
  for (Wanted& one : wanted) {
    SlotState& state = slots_[one.slot];
    if (state.retiring) continue;
    ++state.live_leases;
    one.granted = true;
    lease.slots.push_back(one.slot);
  }
  if (lease.slots.empty()) return Refused::kNothingToLease;

  CountViews(&lease);
  const LeaseId id{next_id_++};
  lease.charged_slots = lease.slots.size();
  leased_slots_ += lease.charged_slots;
  tenants_[holder.tenant] += lease.charged_slots;
  SessionState& state = sessions_[holder.session];
  state.leased_slots += lease.charged_slots;
  state.leases.insert(id);
  by_end_.emplace(lease.ends_at, id);
  leases_.emplace(id, std::move(lease));
  return Granted{id, valid_for};
}

void LeaseTable::CountViews(Lease* lease) {
  if (lease->use != LeaseUse::kView) return;
  for (const SlotId slot : lease->slots) lease->regions.push_back(slot.region);
  std::sort(lease->regions.begin(), lease->regions.end());
  lease->regions.erase(
      std::unique(lease->regions.begin(), lease->regions.end()),
      lease->regions.end());
  for (const std::uint64_t region : lease->regions) ++views_[region];
}

LeaseTable::RenewOutcome LeaseTable::Renew(SessionId session, LeaseId id,
                                           absl::Duration duration) {
  const BootTime now = clock_->Now();
  const auto it = leases_.find(id);
  if (it == leases_.end() || it->second.session != session ||
      it->second.slots.empty() || it->second.ends_at <= now) {
    return RenewOutcome::kEnded;
  }
  Lease& lease = it->second;
  if (!lease.renewable) return RenewOutcome::kSlotRetiring;
  for (const SlotId slot : lease.slots) {
    if (slots_.at(slot).retiring) return RenewOutcome::kSlotRetiring;
  }
  BootTime ends_at = now + std::min(duration, options_.longest);
  // A view's promise does not outlive its hard age.
  if (lease.use == LeaseUse::kView) {
    ends_at = std::min(ends_at, lease.view_ends_at);
  }
  if (ends_at > lease.ends_at) {
    by_end_.erase({lease.ends_at, id});
    by_end_.emplace(ends_at, id);
    lease.ends_at = ends_at;
  }
  return RenewOutcome::kRenewed;
}

void LeaseTable::Release(SessionId session, LeaseId id, Ended* ended) {
  const auto it = leases_.find(id);
  if (it != leases_.end() && it->second.session == session) End(it, ended);
}

void LeaseTable::EndSession(SessionId session, Ended* ended) {
  for (auto it = sessions_.find(session); it != sessions_.end();
       it = sessions_.find(session)) {
    End(leases_.find(*it->second.leases.begin()), ended);
  }
}

LeaseTable::RetireOutcome LeaseTable::BeginRetire(SlotId slot) {
  SlotState& state = slots_[slot];
  CHECK(!state.retiring);
  state.retiring = true;
  return state.live_leases == 0 ? RetireOutcome::kReclaimable
                                : RetireOutcome::kStillLeased;
}

bool LeaseTable::IsReclaimable(SlotId slot) const {
  const auto it = slots_.find(slot);
  CHECK(it != slots_.end() && it->second.retiring);
  return it->second.live_leases == 0;
}

void LeaseTable::EndRetire(SlotId slot) {
  const auto it = slots_.find(slot);
  CHECK(it != slots_.end() && it->second.retiring);
  CHECK(it->second.live_leases == 0);
  slots_.erase(it);
}

bool LeaseTable::IsLeased(SlotId slot) const {
  const auto it = slots_.find(slot);
  return it != slots_.end() && it->second.live_leases > 0;
}

bool LeaseTable::HasViews(std::uint64_t region) const {
  return views_.contains(region);
}

void LeaseTable::Sweep(std::size_t budget, Ended* ended) {
  const BootTime now = clock_->Now();
  for (std::size_t i = 0;
       i < budget && !by_end_.empty() && by_end_.begin()->first <= now; ++i) {
    const LeaseId id = by_end_.begin()->second;
    const auto it = leases_.find(id);
    Lease& lease = it->second;
    const bool view_goes_on = lease.use == LeaseUse::kView &&
                              !lease.slots.empty() && lease.view_ends_at > now;
    if (!view_goes_on) {
      if (lease.use == LeaseUse::kView) {
        ended->overdue_views.push_back(lease.session);
      }
      End(it, ended);
      continue;
    }
    EndSlots(&lease, ended);
    by_end_.erase({lease.ends_at, id});
    lease.ends_at = lease.view_ends_at;
    by_end_.emplace(lease.ends_at, id);
  }
}

BootTime LeaseTable::NextEnd() const {
  return by_end_.empty() ? BootTime::Infinite() : by_end_.begin()->first;
}

void LeaseTable::EndSlots(Lease* lease, Ended* ended) {
  if (lease->slots.empty()) return;
  ++ended->leases;
  for (const SlotId id : lease->slots) {
    const auto slot = slots_.find(id);
    CHECK(slot != slots_.end() && slot->second.live_leases > 0);
    if (--slot->second.live_leases > 0) continue;
    if (slot->second.retiring) {
      ended->reclaimable.push_back(id);
    } else {
      slots_.erase(slot);
    }
  }
  lease->slots.clear();
  lease->slots.shrink_to_fit();
}

void LeaseTable::End(Leases::iterator lease, Ended* ended) {
  CHECK(lease != leases_.end());
  EndSlots(&lease->second, ended);
  for (const std::uint64_t region : lease->second.regions) {
    const auto views = views_.find(region);
    CHECK(views != views_.end() && views->second > 0);
    if (--views->second == 0) views_.erase(views);
  }
  const auto session = sessions_.find(lease->second.session);
  CHECK(session != sessions_.end());
  session->second.leases.erase(lease->first);
  session->second.leased_slots -= lease->second.charged_slots;
  leased_slots_ -= lease->second.charged_slots;
  const auto tenant = tenants_.find(lease->second.tenant);
  CHECK(tenant != tenants_.end());
  tenant->second -= lease->second.charged_slots;
  if (tenant->second == 0) tenants_.erase(tenant);
  if (session->second.leases.empty()) sessions_.erase(session);
  by_end_.erase({lease->second.ends_at, lease->first});
  leases_.erase(lease);
}

}  // namespace firnkv
