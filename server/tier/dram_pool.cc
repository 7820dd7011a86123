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
  std::vector<std::uint64_t> regions;
  for (const auto& [serial, region] : blocks_->space()->regions()) {
    regions.push_back(serial);
    region->left_mapped |= region->mapped_by.contains(session);
  }
  for (const auto& [serial, still] : still_mapped_) regions.push_back(serial);
  for (const std::uint64_t serial : regions) ForgetMapping(session, serial);
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
        MayWait(waiter->request.name_space.tenant)) {
      waiters_.push_back(std::move(waiter));
    }
    Settle();
  }
  if (waiter != nullptr) std::move(waiter->done)(std::move(waiter->answer));
}

bool DramPool::MayWait(TenantId tenant) const {
  const auto own = std::count_if(
      waiters_.begin(), waiters_.end(), [tenant](const auto& other) {
        return other->request.name_space.tenant == tenant;
      });
  return waiters_.size() < options_.max_waiting_batches &&
         static_cast<std::size_t>(own) < options_.max_waiting_batches_a_tenant;
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
    const auto there = blocks_->FindForWriter(request, request.blocks[i]);
    if (!there) continue;
    answer.blocks[i] = *there;
    run.push_back(there->copy);
  }
  blocks_->Touch(run, request.conversation);
}

bool DramPool::Advance(Waiter* waiter) {
  const std::vector<ReservedBlock>& blocks = waiter->answer.blocks;
  // What is there already must not make room for the rest: its writer was told
  // that it need not be written (rule S9).
  if (waiter->next < blocks.size()) {
    for (const ReservedBlock& block : blocks) {
      if (block.outcome == Outcome::kAlreadyThere) {
        blocks_->Spare(block.copy.slot);
      }
    }
  }
  const bool decided = AdvanceSparing(waiter);
  blocks_->SpareNone();
  return decided;
}

bool DramPool::AdvanceSparing(Waiter* waiter) {
  const ReserveRequest& request = waiter->request;
  ReserveAnswer& answer = waiter->answer;
  for (; waiter->next < answer.blocks.size(); ++waiter->next) {
    ReservedBlock& out = answer.blocks[waiter->next];
    const ReserveBlock& block = request.blocks[waiter->next];
    if (out.outcome == Outcome::kAlreadyThere) continue;
    // Perhaps somebody else has written it while this one waited.
    if (const auto there = blocks_->FindForWriter(request, block)) {
      out = *there;
      blocks_->Spare(there->copy.slot);
      blocks_->Touch(absl::MakeConstSpan(&there->copy, 1),
                     EvictionPolicy::ConversationState::kUnknown);
      continue;
    }
    Slot* const slot = MakeRoom(
        request.name_space.tenant,
        SlotSpace::SlotBytesFor(block.length, request.name_space.block_bytes),
        request.evict_below);
    if (slot == nullptr) return false;
    const ClearEpoch epoch = request.source_epoch == ClearEpoch::kUnknown
                                 ? blocks_->LearnEpoch(request.name_space)
                                 : request.source_epoch;
    out.copy = blocks_->Occupy(slot, request, epoch, block);
    out.outcome = Outcome::kStored;
  }
  return true;
}

Slot* DramPool::MakeRoom(TenantId tenant, std::uint64_t slot_bytes,
                         Warmth below) {
  RoomMaker::Means means;
  means.below = below;
  if (growing_.contains(tenant)) {
    means.growth = RoomMaker::Growth::kUnderWay;
  } else if (TotalBytes() + options_.region_bytes <= target_bytes_ &&
             parts_.clock->Now() >= growth_paused_until_) {
    means.growth = RoomMaker::Growth::kPossible;
  }
  means.may_retire = below == Warmth::kWarmest && !AwaitsRegion(tenant) &&
                     !RegionIsSpareSoon();
  const RoomMaker::Answer answer = room_->Find(tenant, slot_bytes, means);
  if (answer.grow) StartGrowth(tenant);
  if (answer.retire != nullptr) {
    in_favour_of_.emplace(answer.retire->serial(), tenant);
    Retire(answer.retire);
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
  overdue_.views.insert(overdue_.views.end(), ended.overdue_views.begin(),
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
    for (const auto& [serial, still] : still_mapped_) {
      if (still.patience_until > parts_.clock->Now()) {
        wanted = std::min(wanted, still.patience_until);
      }
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
                              std::vector<std::uint32_t> pieces,
                              std::int64_t source_nanos) {
  CHECK(target.hold.held());
  MutexLock lock(&mutex_);
  const CommitResult result =
      blocks_->Commit(target.hold.GiveUp(), std::move(pieces), source_nanos);
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

Outcome DramPool::Verify(const BlockId& block, Generation generation,
                         std::uint64_t* bytes) {
  HeldBlock held;
  {
    MutexLock lock(&mutex_);
    held = blocks_->HoldCopy(block, generation, this);
  }
  if (held.outcome != Outcome::kHit) return Outcome::kMiss;
  if (bytes != nullptr) *bytes = held.bytes.size();
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

OverdueSessions DramPool::Sweep(std::size_t budget) {
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
  for (Region* region : empty) Retire(region);
  AddOverdueMappings();
  Settle();
  return std::exchange(overdue_, {});
}

// --- Looking.

Warmth DramPool::NextWarmth() const {
  MutexLock lock(&mutex_);
  return blocks_->NextWarmth();
}

bool DramPool::EachResident(
    std::uint32_t* cursor, std::size_t budget,
    absl::FunctionRef<void(const SlotHeader&)> each) const {
  return EachWarm(cursor, budget,
                  [each](const SlotHeader& header, Warmth) { each(header); });
}

bool DramPool::EachWarm(
    std::uint32_t* cursor, std::size_t budget,
    absl::FunctionRef<void(const SlotHeader&, Warmth)> each) const {
  MutexLock lock(&mutex_);
  return blocks_->EachWarm(cursor, budget, each);
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

}  // namespace firnkv
