#include "server/tier/dram_pool.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "server/tier/reserve_check.h"
#include "server/tier/resident_blocks.h"
#include "server/tier/room_maker.h"

namespace firnkv {
namespace {

// Leases that one step ends, so that a step stays in the microseconds.
constexpr std::size_t kLeasesAStep = 1024;

}  // namespace

struct DramPool::Waiter {
  ReserveRequest request;
  ReserveDone done;
  ReserveAnswer answer;
  // Blocks before this one are decided; later ones if they are kAlreadyThere.
  std::size_t next = 0;
};

DramPool::DramPool(const PoolOptions& options, const Parts& parts)
    : options_(options),
      parts_(parts),
      largest_block_(std::min(kLargestBlockBytes, options.region_bytes / 4 /
                                                      kPageBytes * kPageBytes)),
      arena_({.region_bytes = options.region_bytes,
              .reserve_bytes = options.reserve_bytes},
             parts.memory, parts.limits),
      blocks_(
          std::make_unique<ResidentBlocks>(options, parts.clock, parts.events)),
      room_(std::make_unique<RoomMaker>(blocks_.get(), options.region_bytes)),
      target_bytes_(options.target_bytes) {
  CHECK(options.region_bytes > 0 &&
        options.region_bytes % (Region::kUnits * kPageBytes) == 0);
  CHECK(options.epoch != NodeEpoch::kNone);
}

DramPool::~DramPool() {
  scope_.Close();
  CancelWaiting();
  MutexLock lock(&mutex_);
  if (timer_ != TimerId::kNone) parts_.executor->Cancel(timer_);
  PoolSnapshot snapshot;
  blocks_->Fill(&snapshot);
  CHECK(snapshot.holds == 0);
}

void DramPool::CancelWaiting() {
  std::deque<std::unique_ptr<Waiter>> waiters;
  {
    MutexLock lock(&mutex_);
    waiters.swap(waiters_);
  }
  for (const std::unique_ptr<Waiter>& waiter : waiters) {
    CancelRest(waiter.get());
    std::move(waiter->done)(std::move(waiter->answer));
  }
}

void DramPool::CancelRest(Waiter* waiter) {
  for (std::size_t i = waiter->next; i < waiter->answer.blocks.size(); ++i) {
    ReservedBlock& block = waiter->answer.blocks[i];
    if (block.outcome != Outcome::kAlreadyThere) {
      block.outcome = Outcome::kCancelled;
    }
  }
}

// --- Reading.

OpenAnswer DramPool::Open(const OpenRequest& request) {
  MutexLock lock(&mutex_);
  OpenAnswer answer = blocks_->Open(request);
  SettleWaiters();
  return answer;
}

HeldAnswer DramPool::OpenHeld(const HeldRequest& request) {
  MutexLock lock(&mutex_);
  HeldAnswer answer = blocks_->OpenHeld(request, this);
  SettleWaiters();
  return answer;
}

std::vector<Found> DramPool::Contains(const PoolNamespace& name_space,
                                      absl::Span<const BlockKey> keys,
                                      ReadSpan span) {
  MutexLock lock(&mutex_);
  std::vector<Found> found = blocks_->Contains(name_space, keys, span);
  SettleWaiters();
  return found;
}

void DramPool::Release(SessionId session, absl::Span<const LeaseId> leases) {
  MutexLock lock(&mutex_);
  LeaseTable::Ended ended;
  for (const LeaseId id : leases) {
    blocks_->leases()->Release(session, id, &ended);
  }
  blocks_->Reclaim(ended);
  Settle();
}

std::vector<LeaseTable::RenewOutcome> DramPool::Renew(
    SessionId session, absl::Span<const LeaseId> leases,
    absl::Duration duration) {
  std::vector<LeaseTable::RenewOutcome> outcomes;
  outcomes.reserve(leases.size());
  MutexLock lock(&mutex_);
  for (const LeaseId id : leases) {
    outcomes.push_back(blocks_->leases()->Renew(session, id, duration));
  }
  return outcomes;
}

void DramPool::EndSession(SessionId session) {
  MutexLock lock(&mutex_);
  LeaseTable::Ended ended;
  blocks_->leases()->EndSession(session, &ended);
  blocks_->Reclaim(ended);
  for (const auto& [serial, region] : blocks_->space()->regions()) {
    region->mapped_by.erase(session);
  }
  for (auto it = still_mapped_.begin(); it != still_mapped_.end();) {
    it->second.erase(session);
    it = it->second.empty() ? still_mapped_.erase(it) : std::next(it);
  }
  // What it waits for has nobody to go to; what it was given already goes back
  // by the completion (rule S3).
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    if ((*it)->request.session != session) {
      ++it;
      continue;
    }
    CancelRest(it->get());
    PostDone(std::move(*it));
    it = waiters_.erase(it);
  }
  Settle();
}

void DramPool::EndHold(SlotCopy copy) {
  MutexLock lock(&mutex_);
  blocks_->EndHold(copy);
  Settle();
}

// --- Writing.

void DramPool::StartReserve(ReserveRequest request, ReserveDone done) {
  ReserveAnswer refusal;
  refusal.status = CheckReserve(request, largest_block_);
  if (!refusal.status.ok()) {
    std::move(done)(std::move(refusal));
    return;
  }
  auto waiter = std::make_unique<Waiter>();
  waiter->request = std::move(request);
  waiter->done = std::move(done);
  {
    MutexLock lock(&mutex_);
    Begin(waiter.get());
    const bool decided = Advance(waiter.get());
    if (!decided && parts_.clock->Now() < waiter->request.deadline &&
        waiters_.size() < options_.max_waiting_batches) {
      waiters_.push_back(std::move(waiter));
    }
    Settle();
  }
  if (waiter != nullptr) std::move(waiter->done)(std::move(waiter->answer));
}

void DramPool::Begin(Waiter* waiter) {
  const ReserveRequest& request = waiter->request;
  ReserveAnswer& answer = waiter->answer;
  answer.clear_epoch = blocks_->LearnEpoch(request.name_space);
  answer.blocks.resize(request.blocks.size());
  if (request.source_epoch != ClearEpoch::kUnknown &&
      request.source_epoch != answer.clear_epoch) {
    for (ReservedBlock& block : answer.blocks)
      block.outcome = Outcome::kCleared;
    waiter->next = answer.blocks.size();
    return;
  }
  std::vector<SlotCopy> run;
  for (std::size_t i = 0; i < request.blocks.size(); ++i) {
    const auto there =
        blocks_->FindForWriter(request.name_space, request.blocks[i]);
    if (!there) continue;
    answer.blocks[i] = *there;
    run.push_back(there->copy);
  }
  blocks_->Touch(run, request.conversation);
}

bool DramPool::Advance(Waiter* waiter) {
  const ReserveRequest& request = waiter->request;
  ReserveAnswer& answer = waiter->answer;
  for (; waiter->next < answer.blocks.size(); ++waiter->next) {
    ReservedBlock& out = answer.blocks[waiter->next];
    const ReserveBlock& block = request.blocks[waiter->next];
    if (out.outcome == Outcome::kAlreadyThere) continue;
    // Perhaps somebody else has written it while this one waited.
    if (const auto there = blocks_->FindForWriter(request.name_space, block)) {
      out = *there;
      blocks_->Touch(absl::MakeConstSpan(&there->copy, 1),
                     EvictionPolicy::ConversationState::kUnknown);
      continue;
    }
    Slot* const slot = MakeRoom(
        request.name_space.tenant,
        SlotSpace::SlotBytesFor(block.length, request.name_space.block_bytes));
    if (slot == nullptr) return false;
    const ClearEpoch epoch = request.source_epoch == ClearEpoch::kUnknown
                                 ? blocks_->LearnEpoch(request.name_space)
                                 : request.source_epoch;
    out.copy = blocks_->Occupy(slot, request.name_space, epoch, block,
                               request.reserved_until);
    out.outcome = Outcome::kStored;
  }
  return true;
}

Slot* DramPool::MakeRoom(TenantId tenant, std::uint64_t slot_bytes) {
  RoomMaker::Means means;
  if (growing_.contains(tenant)) {
    means.growth = RoomMaker::Growth::kUnderWay;
  } else if (TotalBytes() + options_.region_bytes <= target_bytes_ &&
             parts_.clock->Now() >= growth_paused_until_) {
    means.growth = RoomMaker::Growth::kPossible;
  }
  means.may_retire = std::none_of(
      in_favour_of_.begin(), in_favour_of_.end(),
      [&tenant](const auto& entry) { return entry.second == tenant; });
  const RoomMaker::Answer answer = room_->Find(tenant, slot_bytes, means);
  if (answer.grow) StartGrowth(tenant);
  if (answer.retire != nullptr) {
    in_favour_of_.emplace(answer.retire->serial(), tenant);
    blocks_->RetireRegion(answer.retire);
  }
  return answer.slot;
}

void DramPool::Settle() {
  const BootTime now = parts_.clock->Now();
  // A waiter that is served may end another's hope, never raise it: one pass.
  for (std::size_t i = 0; i < waiters_.size();) {
    if (!Advance(waiters_[i].get()) && now < waiters_[i]->request.deadline) {
      ++i;
      continue;
    }
    PostDone(std::move(waiters_[i]));
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  AdvanceRetirements();
  SetTimer();
}

void DramPool::SettleWaiters() {
  if (!waiters_.empty()) Settle();
}

void DramPool::PostDone(std::unique_ptr<Waiter> waiter) {
  // Does not refer to the pool: it runs also if the pool is gone by then.
  parts_.executor->Post([waiter = std::move(waiter)]() mutable {
    std::move(waiter->done)(std::move(waiter->answer));
  });
}

void DramPool::EndLeases(std::size_t budget) {
  LeaseTable::Ended ended;
  blocks_->leases()->Sweep(budget, &ended);
  blocks_->Reclaim(ended);
  overdue_views_.insert(overdue_views_.end(), ended.overdue_views.begin(),
                        ended.overdue_views.end());
}

void DramPool::SetTimer() {
  BootTime wanted = BootTime::Infinite();
  if (!waiters_.empty()) {
    for (const std::unique_ptr<Waiter>& waiter : waiters_) {
      wanted = std::min(wanted, waiter->request.deadline);
    }
    wanted = std::min(wanted, blocks_->leases()->NextEnd());
    if (growth_paused_until_ > parts_.clock->Now()) {
      wanted = std::min(wanted, growth_paused_until_);
    }
  }
  if (wanted >= timer_at_) return;
  if (timer_ != TimerId::kNone) parts_.executor->Cancel(timer_);
  timer_at_ = wanted;
  timer_ = parts_.executor->PostAt(wanted, scope_.Wrap([this] { OnTimer(); }));
}

void DramPool::OnTimer() {
  MutexLock lock(&mutex_);
  timer_ = TimerId::kNone;
  timer_at_ = BootTime::Infinite();
  EndLeases(kLeasesAStep);
  Settle();
}

std::variant<CopyTarget, CommitResult> DramPool::BeginCopy(SlotCopy reserved) {
  MutexLock lock(&mutex_);
  auto begun = blocks_->BeginCopy(reserved, this);
  if (std::holds_alternative<CommitResult>(begun)) Settle();
  return begun;
}

CommitResult DramPool::Commit(CopyTarget target,
                              std::vector<std::uint32_t> pieces) {
  CHECK(target.hold.held());
  MutexLock lock(&mutex_);
  const CommitResult result =
      blocks_->Commit(target.hold.GiveUp(), std::move(pieces));
  Settle();
  return result;
}

void DramPool::EndReservation(absl::Span<const SlotCopy> reserved) {
  MutexLock lock(&mutex_);
  for (const SlotCopy& copy : reserved) blocks_->EndReservation(copy);
  Settle();
}

// --- Taking away.

std::vector<Outcome> DramPool::Remove(NamespaceId name_space,
                                      absl::Span<const BlockKey> keys) {
  std::vector<Outcome> outcomes;
  outcomes.reserve(keys.size());
  MutexLock lock(&mutex_);
  for (const BlockKey& key : keys) {
    Slot* const slot = blocks_->FindResident({name_space, key});
    outcomes.push_back(slot == nullptr ? Outcome::kMiss : Outcome::kHit);
    if (slot != nullptr) {
      blocks_->Retire(slot, ResidentBlocks::Reason::kRemoved);
    }
  }
  Settle();
  return outcomes;
}

Outcome DramPool::Drop(const BlockId& block, Generation generation) {
  MutexLock lock(&mutex_);
  Slot* const slot = blocks_->FindResident(block);
  if (slot == nullptr || slot->generation != generation) return Outcome::kMiss;
  blocks_->Retire(slot, ResidentBlocks::Reason::kRemoved);
  Settle();
  return Outcome::kHit;
}

Outcome DramPool::Verify(const BlockId& block, Generation generation) {
  HeldBlock held;
  {
    MutexLock lock(&mutex_);
    held = blocks_->HoldCopy(block, generation, this);
  }
  if (held.outcome != Outcome::kHit) return Outcome::kMiss;
  if (PieceChecksums(held.bytes) == held.header.pieces) return Outcome::kHit;
  MutexLock lock(&mutex_);
  Slot* const slot = blocks_->FindResident(block);
  // It may have left meanwhile: the hold kept its bytes, not its place.
  if (slot != nullptr && slot->generation == generation) {
    blocks_->Retire(slot, ResidentBlocks::Reason::kCorrupt);
  }
  return Outcome::kCorrupt;
}

void DramPool::SetClearEpoch(NamespaceId name_space, ClearEpoch epoch) {
  MutexLock lock(&mutex_);
  blocks_->SetClearEpoch(name_space, epoch);
}

std::uint64_t DramPool::ClearPending(NamespaceId name_space) const {
  MutexLock lock(&mutex_);
  return blocks_->ClearPending(name_space);
}

std::uint64_t DramPool::Evict(std::uint64_t bytes) {
  MutexLock lock(&mutex_);
  const std::uint64_t evicted =
      blocks_->Evict(blocks_->space()->Groups(), bytes);
  Settle();
  return evicted;
}

std::vector<SessionId> DramPool::Sweep(std::size_t budget) {
  MutexLock lock(&mutex_);
  EndLeases(budget);
  blocks_->SweepCleared(budget);
  const BootTime now = parts_.clock->Now();
  std::vector<Region*> empty;
  for (const auto& [serial, region] : blocks_->space()->regions()) {
    if (!region->retiring && region->used_slots == 0 &&
        region->empty_since + options_.empty_region_linger <= now) {
      empty.push_back(region.get());
    }
  }
  for (Region* region : empty) blocks_->RetireRegion(region);
  Settle();
  return std::exchange(overdue_views_, {});
}

// --- Looking.

bool DramPool::EachResident(
    std::uint32_t* cursor, std::size_t budget,
    absl::FunctionRef<void(const SlotHeader&)> each) const {
  MutexLock lock(&mutex_);
  return blocks_->EachResident(cursor, budget, each);
}

PoolSnapshot DramPool::Snapshot() const {
  MutexLock lock(&mutex_);
  PoolSnapshot snapshot;
  blocks_->Fill(&snapshot);
  snapshot.target_bytes = target_bytes_;
  snapshot.mapped_after_retirement_bytes =
      still_mapped_.size() * options_.region_bytes;
  snapshot.region_bytes = snapshot.live_region_bytes +
                          snapshot.retiring_region_bytes +
                          snapshot.mapped_after_retirement_bytes;
  snapshot.waiting_batches = waiters_.size();
  snapshot.regions_made = regions_made_;
  snapshot.regions_retired = regions_retired_;
  snapshot.growth_refusals = growth_refusals_;
  return snapshot;
}

// --- A region's life.

std::uint64_t DramPool::TotalBytes() const {
  const SlotSpace& space = *blocks_->space();
  return space.live_region_bytes() + space.retiring_region_bytes() +
         (growing_.size() + still_mapped_.size()) * options_.region_bytes;
}

std::uint64_t DramPool::NominalBytes() const {
  return other_mapped_bytes_ + still_mapped_.size() * options_.region_bytes;
}

void DramPool::StartGrowth(TenantId tenant) {
  if (!growing_.insert(tenant).second) return;
  const RegionId id = blocks_->space()->NextRegionId();
  parts_.executor->Post(scope_.Wrap([this, tenant, id] { Grow(tenant, id); }));
}

void DramPool::Grow(TenantId tenant, RegionId id) {
  std::uint64_t nominal_bytes = 0;
  {
    MutexLock lock(&mutex_);
    nominal_bytes = NominalBytes();
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
    blocks_->RetireRegion(region);
  }
}

void DramPool::CheckMemory(std::uint64_t other_mapped_bytes) {
  std::uint64_t nominal_bytes = 0;
  {
    MutexLock lock(&mutex_);
    other_mapped_bytes_ = other_mapped_bytes;
    nominal_bytes = NominalBytes();
  }
  const std::uint64_t missing = arena_.MissingBytes(nominal_bytes);
  if (missing == 0) return;
  MutexLock lock(&mutex_);
  growth_paused_until_ = parts_.clock->Now() + options_.growth_pause;
  const std::uint64_t coming = blocks_->space()->retiring_region_bytes();
  for (std::uint64_t bytes = coming; bytes < missing;
       bytes += arena_.step_bytes()) {
    Region* const region = room_->ToGiveUp();
    if (region == nullptr) break;
    blocks_->RetireRegion(region);
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
  {
    MutexLock lock(&mutex_);
    region = blocks_->space()->FindRegion(serial);
    CHECK(region->finishing && IsQuiet(*region));
  }
  const TenantId tenant = region->tenant();
  if (parts_.hooks != nullptr) {
    parts_.hooks->ReplaceIoRegistration(serial);
    parts_.hooks->DeregisterTransports(serial);
  }
  // Only this task touches the region's memory now. A failed punch costs
  // memory for as long as somebody maps it, which is counted below; nothing is
  // served from it.
  arena_.Punch(region->memory()).IgnoreError();
  std::unique_ptr<Region> gone;
  {
    MutexLock lock(&mutex_);
    gone = blocks_->space()->RemoveRegion(serial);
    if (!gone->mapped_by.empty()) {
      still_mapped_.emplace(serial, std::move(gone->mapped_by));
    }
    ++regions_retired_;
    const auto it = in_favour_of_.find(serial);
    if (it != in_favour_of_.end()) {
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
  if (Region* const region = blocks_->space()->FindRegion(serial)) {
    region->mapped_by.erase(session);
  }
  const auto it = still_mapped_.find(serial);
  if (it != still_mapped_.end()) {
    it->second.erase(session);
    if (it->second.empty()) still_mapped_.erase(it);
  }
  Settle();
}

}  // namespace firnkv
