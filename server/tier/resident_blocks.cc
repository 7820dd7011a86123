#include "server/tier/resident_blocks.h"

#include <algorithm>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

// Keys of a batch whose index entries are fetched from memory beforehand.
constexpr std::size_t kAhead = 8;

}  // namespace

ResidentBlocks::ResidentBlocks(const PoolOptions& options, const Clock* clock,
                               PoolEvents* events)
    : clock_(clock),
      events_(events),
      space_(options.epoch, options.region_bytes),
      leases_(options.leases, clock) {}

// --- Reading.

bool ResidentBlocks::IsExpired(const PoolNamespace& name_space,
                               const Slot& slot) const {
  if (name_space.retention <= absl::ZeroDuration()) return false;
  const absl::Time stored = absl::FromUnixNanos(slot.header->commit_time_nanos);
  return clock_->WallNow() - stored > name_space.retention;
}

ResidentBlocks::Looked ResidentBlocks::Look(const PoolNamespace& name_space,
                                            ClearEpoch epoch,
                                            const BlockKey& key) {
  const BlockNumber number = index_.Find({name_space.id, key});
  if (number == BlockNumber::kNone) return {};
  const BlockIndex::Entry& entry = index_[number];
  if (entry.resident != nullptr) {
    if (entry.resident->header->clear_epoch != epoch) {
      Retire(entry.resident, Reason::kCleared);
    } else if (IsExpired(name_space, *entry.resident)) {
      Retire(entry.resident, Reason::kExpired);
      return {.outcome = Outcome::kExpired};
    } else {
      return {.outcome = Outcome::kHit, .slot = entry.resident};
    }
  }
  if (entry.writers > 0 && clock_->Now() < entry.written_until) {
    return {.outcome = Outcome::kBeingWritten};
  }
  return {};
}

OpenAnswer ResidentBlocks::Open(const OpenRequest& request) {
  OpenAnswer answer;
  answer.clear_epoch = LearnEpoch(*request.name_space);
  answer.blocks.resize(request.keys.size());
  std::vector<Slot*> run;
  std::vector<LeaseTable::Wanted> wanted;
  std::vector<std::size_t> hits;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    if (i + kAhead < request.keys.size()) {
      index_.Prefetch({request.name_space->id, request.keys[i + kAhead]});
    }
    const Looked looked =
        Look(*request.name_space, answer.clear_epoch, request.keys[i]);
    answer.blocks[i].outcome = looked.outcome;
    if (looked.outcome == Outcome::kHit) {
      run.push_back(looked.slot);
      wanted.push_back({.slot = looked.slot->id});
      hits.push_back(i);
      counts_.copied_hits += looked.slot->copied ? 1 : 0;
    } else if (request.span == ReadSpan::kLeadingRun) {
      break;
    }
  }
  if (run.empty()) return answer;
  const LeaseTable::GrantOutcome granted =
      leases_.Grant({.session = request.session,
                     .tenant = request.name_space->tenant,
                     // Who renews may not be a member any more (rule C4).
                     .renewable = !request.name_space->strict_clear},
                    request.use, absl::MakeSpan(wanted), request.lease);
  if (!std::holds_alternative<LeaseTable::Granted>(granted)) {
    // A resident slot is not retiring, so this is the table's bound.
    for (const std::size_t i : hits) {
      answer.blocks[i].outcome = Outcome::kCongested;
    }
    return answer;
  }
  answer.lease = std::get<LeaseTable::Granted>(granted);
  for (std::size_t i = 0; i < hits.size(); ++i) {
    CHECK(wanted[i].granted);
    Opened& opened = answer.blocks[hits[i]];
    opened.copy = run[i]->copy();
    opened.length = run[i]->header->length;
  }
  TouchSlots(run);
  return answer;
}

HeldAnswer ResidentBlocks::OpenHeld(const HeldRequest& request,
                                    HoldKeeper* keeper) {
  HeldAnswer answer;
  answer.clear_epoch = LearnEpoch(*request.name_space);
  answer.blocks.resize(request.keys.size());
  std::vector<Slot*> run;
  std::uint64_t bytes = 0;
  for (const HeldRequest::Key& key : request.keys) {
    const Looked looked =
        Look(*request.name_space, answer.clear_epoch, key.key);
    HeldBlock& block = answer.blocks[answer.decided];
    block.outcome = looked.outcome;
    if (looked.outcome == Outcome::kHit) {
      const SlotHeader& header = *looked.slot->header;
      if (header.length > key.room) {
        block.outcome = Outcome::kWrongSize;
      } else if (!run.empty() && bytes + header.length > request.max_bytes) {
        block.outcome = Outcome::kSkipped;
        break;
      } else {
        bytes += header.length;
        run.push_back(looked.slot);
        block.hold = TakeHold(looked.slot, keeper);
        block.header = header;
        block.bytes = looked.slot->slab->region->BytesOf(*looked.slot)
                          .first(header.length);
      }
    }
    ++answer.decided;
    if (block.outcome != Outcome::kHit &&
        request.span == ReadSpan::kLeadingRun) {
      answer.decided = request.keys.size();
      break;
    }
  }
  TouchSlots(run);
  return answer;
}

std::vector<Found> ResidentBlocks::Contains(const PoolNamespace& name_space,
                                            absl::Span<const BlockKey> keys,
                                            ReadSpan span) {
  const ClearEpoch epoch = LearnEpoch(name_space);
  std::vector<Found> found(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Looked looked = Look(name_space, epoch, keys[i]);
    found[i].outcome = looked.outcome;
    if (looked.outcome == Outcome::kHit) {
      found[i].length = looked.slot->header->length;
      found[i].generation = looked.slot->generation;
    } else if (span == ReadSpan::kLeadingRun) {
      break;
    }
  }
  return found;
}

void ResidentBlocks::TouchSlots(const std::vector<Slot*>& run) {
  if (run.empty()) return;
  std::vector<BlockNumber> numbers;
  numbers.reserve(run.size());
  for (const Slot* slot : run) numbers.push_back(slot->block);
  policy_.OnTouched(clock_->Now(), numbers);
  for (Slot* slot : run) Rewarm(slot);
}

void ResidentBlocks::Rewarm(Slot* slot) {
  space_.SetWarmth(slot, policy_.WarmthOf(slot->block));
}

Hold ResidentBlocks::TakeHold(Slot* slot, HoldKeeper* keeper) {
  ++slot->holds;
  ++holds_;
  return Hold(keeper, slot->copy());
}

void ResidentBlocks::EndHold(SlotCopy copy) {
  Slot* const slot = space_.Find(copy.slot);
  // A held slot is not reused: the generation is still the hold's (rule P8).
  CHECK(slot != nullptr && slot->generation == copy.generation);
  CHECK(slot->holds > 0);
  --slot->holds;
  --holds_;
  ++changes_;
  ReclaimIfFree(slot);
}

void ResidentBlocks::Reclaim(const LeaseTable::Ended& ended) {
  changes_ += ended.leases;
  for (const SlotId id : ended.reclaimable) {
    Slot* const slot = space_.Find(id);
    CHECK(slot != nullptr);
    ReclaimIfFree(slot);
  }
}

// --- Writing.

ClearEpoch ResidentBlocks::LearnEpoch(const PoolNamespace& facts) {
  SetClearEpoch(facts.id, facts.clear_epoch);
  return namespaces_[facts.id].epoch;
}

std::optional<ReservedBlock> ResidentBlocks::FindForWriter(
    const ReserveRequest& request, const ReserveBlock& block) {
  const PoolNamespace& name_space = request.name_space;
  const Looked looked =
      Look(name_space, namespaces_[name_space.id].epoch, block.key);
  if (looked.slot == nullptr) return std::nullopt;
  const SlotHeader& header = *looked.slot->header;
  const bool copied = request.source_epoch != ClearEpoch::kUnknown;
  if (!copied &&
      (header.place != block.place || header.length != block.length)) {
    Retire(looked.slot, Reason::kReplaced);
    return std::nullopt;
  }
  return ReservedBlock{.outcome = Outcome::kAlreadyThere,
                       .copy = looked.slot->copy()};
}

void ResidentBlocks::Touch(absl::Span<const SlotCopy> run,
                           EvictionPolicy::ConversationState conversation) {
  std::vector<BlockNumber> numbers;
  std::vector<Slot*> slots;
  for (const SlotCopy& copy : run) {
    Slot* const slot = space_.Find(copy.slot);
    if (slot == nullptr || slot->copy() != copy ||
        slot->state != SlotState::kResident) {
      continue;
    }
    slots.push_back(slot);
    numbers.push_back(slot->block);
  }
  const BootTime now = clock_->Now();
  policy_.OnTouched(now, numbers);
  policy_.OnHint({.at = now, .state = conversation, .run = numbers});
  for (Slot* slot : slots) Rewarm(slot);
}

SlotCopy ResidentBlocks::Occupy(Slot* slot, const ReserveRequest& request,
                                ClearEpoch epoch, const ReserveBlock& block) {
  CHECK(slot->state == SlotState::kReserved && slot->header == nullptr);
  const PoolNamespace& name_space = request.name_space;
  const BootTime until = request.reserved_until;
  slot->copied = request.source_epoch != ClearEpoch::kUnknown;
  slot->header = std::make_unique<SlotHeader>();
  slot->header->block = {name_space.id, block.key};
  slot->header->digest = name_space.digest;
  slot->header->clear_epoch = epoch;
  slot->header->place = block.place;
  slot->header->length = block.length;
  slot->header->generation = slot->generation;
  slot->reserved_until = until;
  slot->block = index_.Know(slot->header->block);
  BlockIndex::Entry& entry = index_[slot->block];
  ++entry.writers;
  entry.written_until =
      entry.writers == 1 ? until : std::max(entry.written_until, until);
  return slot->copy();
}

Slot* ResidentBlocks::FindReserved(SlotCopy reserved) const {
  Slot* const slot = space_.Find(reserved.slot);
  if (slot == nullptr || slot->state != SlotState::kReserved ||
      slot->generation != reserved.generation) {
    return nullptr;
  }
  return slot;
}

CommitResult ResidentBlocks::Judge(Slot* slot) {
  if (clock_->Now() >= slot->reserved_until) {
    return {.outcome = Outcome::kReservationOver};
  }
  const SlotHeader& header = *slot->header;
  if (header.clear_epoch != namespaces_[header.block.name_space].epoch) {
    return {.outcome = Outcome::kCleared};
  }
  Slot* const resident = index_[slot->block].resident;
  if (resident == nullptr) return {.outcome = Outcome::kStored};
  if (resident->header->clear_epoch != header.clear_epoch) {
    Retire(resident, Reason::kCleared);
    return {.outcome = Outcome::kStored};
  }
  if (!slot->copied && (resident->header->place != header.place ||
                        resident->header->length != header.length)) {
    Retire(resident, Reason::kReplaced);
    return {.outcome = Outcome::kStored};
  }
  ++counts_.lost_commit_races;
  TouchSlots({resident});
  return {.outcome = Outcome::kAlreadyThere,
          .generation = resident->generation};
}

std::variant<CopyTarget, CommitResult> ResidentBlocks::BeginCopy(
    SlotCopy reserved, HoldKeeper* keeper) {
  Slot* const slot = FindReserved(reserved);
  if (slot == nullptr) return CommitResult{};
  // Two copies into one slot would mix.
  CHECK(slot->holds == 0);
  const CommitResult result = Judge(slot);
  if (result.outcome != Outcome::kStored) {
    EndWriter(slot);
    return result;
  }
  return CopyTarget{
      .hold = TakeHold(slot, keeper),
      .bytes = slot->slab->region->BytesOf(*slot).first(slot->header->length)};
}

CommitResult ResidentBlocks::Commit(SlotCopy held,
                                    std::vector<std::uint32_t> pieces,
                                    std::int64_t source_nanos) {
  EndHold(held);
  Slot* const slot = FindReserved(held);
  if (slot == nullptr) return {};
  CHECK(pieces.size() == DivideUp(slot->header->length, kPieceBytes));
  CommitResult result = Judge(slot);
  if (result.outcome != Outcome::kStored) {
    EndWriter(slot);
    return result;
  }
  // A new one, so that of two copies of a block the one that was published
  // later has the higher one (rule A2), whichever was reserved first.
  slot->generation = space_.NextGeneration();
  slot->header->generation = slot->generation;
  slot->header->pieces = std::move(pieces);
  slot->header->commit_time_nanos = absl::ToUnixNanos(clock_->WallNow());
  if (source_nanos > 0) {
    // Copying makes no block younger, and another's clock that runs ahead does
    // not either.
    slot->header->commit_time_nanos =
        std::min(slot->header->commit_time_nanos, source_nanos);
  }
  result.generation = slot->generation;
  Publish(slot);
  // A region that has begun to retire meanwhile takes what it gets along.
  if (slot->slab->region->retiring) Retire(slot, Reason::kRegion);
  return result;
}

void ResidentBlocks::Publish(Slot* slot) {
  const SlotHeader& header = *slot->header;
  space_.Move(slot, SlotState::kResident, clock_->Now());
  BlockNumber parent = BlockNumber::kNone;
  if (!header.place.parent.IsZero()) {
    parent = index_.Know({header.block.name_space, header.place.parent});
  }
  BlockIndex::Entry& entry = index_[slot->block];
  CHECK(entry.resident == nullptr && entry.writers > 0);
  --entry.writers;
  entry.resident = slot;
  slot->slab->region->headers().Write(slot->id.page, header);
  policy_.OnStored({.at = clock_->Now(),
                    .block = slot->block,
                    .parent = parent,
                    .position = header.place.position,
                    .bytes = slot->slab->slot_bytes,
                    .group = slot->slab->group});
  Rewarm(slot);
  // The policy may not have taken it for a parent.
  if (parent != BlockNumber::kNone) ForgetIfUnused(parent);
  ++namespaces_[header.block.name_space].current_copies;
  block_bytes_ += header.length;
  ++counts_.commits;
  ++changes_;
  if (events_ != nullptr) events_->OnPublished(header);
}

void ResidentBlocks::EndReservation(SlotCopy reserved) {
  Slot* const slot = FindReserved(reserved);
  if (slot != nullptr) EndWriter(slot);
}

void ResidentBlocks::EndWriter(Slot* slot) {
  const BlockNumber number = slot->block;
  CHECK(index_[number].writers > 0);
  --index_[number].writers;
  BeginRetire(slot);
  ForgetIfUnused(number);
}

// --- Taking away.

void ResidentBlocks::Retire(Slot* slot, Reason reason) {
  CHECK(slot->state == SlotState::kResident);
  policy_.OnEvicted(clock_->Now(), slot->block);
  Withdraw(slot, reason);
}

void ResidentBlocks::Withdraw(Slot* slot, Reason reason) {
  switch (reason) {
    case Reason::kEvicted:
    case Reason::kRegion:
      ++counts_.evicted_blocks;
      counts_.evicted_bytes += slot->slab->slot_bytes;
      break;
    case Reason::kRemoved:
      ++counts_.removed_blocks;
      break;
    case Reason::kCleared:
      ++counts_.cleared_blocks;
      break;
    case Reason::kExpired:
      ++counts_.expired_blocks;
      break;
    case Reason::kCorrupt:
      ++counts_.corrupt_copies;
      break;
    case Reason::kReplaced:
      ++counts_.replaced_copies;
      break;
  }
  const BlockNumber number = slot->block;
  BlockIndex::Entry& entry = index_[number];
  CHECK(entry.resident == slot);
  entry.resident = nullptr;
  block_bytes_ -= slot->header->length;
  if (events_ != nullptr) events_->OnWithdrawn(*slot->header);
  const BlockId id = entry.id;
  const BlockKey parent = slot->header->place.parent;
  BeginRetire(slot);
  ForgetIfUnused(number);
  if (parent.IsZero()) return;
  const BlockNumber above = index_.Find({id.name_space, parent});
  if (above != BlockNumber::kNone) ForgetIfUnused(above);
}

void ResidentBlocks::BeginRetire(Slot* slot) {
  space_.Move(slot, SlotState::kRetiring, clock_->Now());
  leases_.BeginRetire(slot->id);
  ReclaimIfFree(slot);
}

void ResidentBlocks::ReclaimIfFree(Slot* slot) {
  if (slot->state != SlotState::kRetiring || slot->holds > 0 ||
      !leases_.IsReclaimable(slot->id)) {
    return;
  }
  leases_.EndRetire(slot->id);
  const bool was_published = slot->header->commit_time_nanos != 0;
  if (was_published) {
    NamespaceState& state = namespaces_[slot->header->block.name_space];
    std::uint64_t& copies = slot->header->clear_epoch == state.epoch
                                ? state.current_copies
                                : state.older_copies;
    CHECK(copies > 0);
    --copies;
  }
  slot->header.reset();
  slot->block = BlockNumber::kNone;
  // Before anybody can write to it again (rule P7).
  slot->generation = space_.NextGeneration();
  slot->slab->region->headers().Bump(slot->id.page, slot->generation);
  space_.Move(slot, SlotState::kFree, clock_->Now());
  ++changes_;
}

void ResidentBlocks::ForgetIfUnused(BlockNumber number) {
  const BlockIndex::Entry& entry = index_[number];
  if (entry.resident == nullptr && entry.writers == 0 &&
      !policy_.HasChildren(number)) {
    index_.Forget(number);
  }
}

Slot* ResidentBlocks::FindResident(const BlockId& block) const {
  const BlockNumber number = index_.Find(block);
  return number == BlockNumber::kNone ? nullptr : index_[number].resident;
}

HeldBlock ResidentBlocks::HoldCopy(const BlockId& block, Generation generation,
                                   HoldKeeper* keeper) {
  HeldBlock held;
  held.outcome = Outcome::kMiss;
  Slot* const slot = FindResident(block);
  if (slot == nullptr || slot->generation != generation) return held;
  held.outcome = Outcome::kHit;
  held.header = *slot->header;
  held.bytes = slot->slab->region->BytesOf(*slot).first(held.header.length);
  held.hold = TakeHold(slot, keeper);
  return held;
}

void ResidentBlocks::SetClearEpoch(NamespaceId name_space, ClearEpoch epoch) {
  NamespaceState& state = namespaces_[name_space];
  if (epoch <= state.epoch) return;
  state.epoch = epoch;
  state.older_copies += std::exchange(state.current_copies, 0);
  if (state.older_copies > 0) sweep_left_ = sweep_end_ = index_.end();
}

std::uint64_t ResidentBlocks::ClearPending(NamespaceId name_space) const {
  const auto it = namespaces_.find(name_space);
  return it == namespaces_.end() ? 0 : it->second.older_copies;
}

void ResidentBlocks::SweepCleared(std::size_t budget) {
  for (; budget > 0 && sweep_left_ > 0; --budget, --sweep_left_) {
    // Round what there was at the clear: only that is of an older epoch.
    if (++sweep_at_ >= sweep_end_) sweep_at_ = 0;
    Slot* const slot = index_.At(sweep_at_).resident;
    if (slot == nullptr) continue;
    const SlotHeader& header = *slot->header;
    if (header.clear_epoch < namespaces_[header.block.name_space].epoch) {
      Retire(slot, Reason::kCleared);
    }
  }
}

// --- Room.

bool ResidentBlocks::CanLeave(const Slot& slot) const {
  return slot.state == SlotState::kResident && slot.holds == 0 &&
         !leases_.IsLeased(slot.id) && !spared_.contains(slot.id);
}

std::uint64_t ResidentBlocks::Evict(absl::Span<const EvictionGroup> groups,
                                    EvictionPolicy::Room room) {
  const auto cannot_leave = [this](BlockNumber number) {
    return !CanLeave(*index_[number].resident);
  };
  std::vector<BlockNumber> victims;
  const std::uint64_t evicted =
      policy_.TakeVictimsOf(groups, room, cannot_leave, &victims);
  for (const BlockNumber number : victims) {
    Withdraw(index_[number].resident, Reason::kEvicted);
  }
  return evicted;
}

void ResidentBlocks::EmptySlab(Slab* slab) {
  // The last retirement gives the slab back.
  std::vector<Slot*> blocks;
  for (Slot& slot : slab->slots) {
    if (slot.state == SlotState::kResident) blocks.push_back(&slot);
  }
  for (Slot* slot : blocks) Retire(slot, Reason::kEvicted);
}

void ResidentBlocks::RetireRegion(Region* region) {
  space_.BeginRetire(region);
  std::vector<Slot*> blocks;
  region->EachSlab([&blocks](Slab* slab) {
    for (Slot& slot : slab->slots) {
      if (slot.state == SlotState::kResident) blocks.push_back(&slot);
    }
  });
  for (Slot* slot : blocks) Retire(slot, Reason::kRegion);
}

// --- Looking.

bool ResidentBlocks::EachWarm(
    std::uint32_t* cursor, std::size_t budget,
    absl::FunctionRef<void(const SlotHeader&, Warmth)> each) const {
  for (; budget > 0 && *cursor < index_.end(); --budget, ++*cursor) {
    const Slot* const slot = index_.At(*cursor).resident;
    if (slot == nullptr) continue;
    const SlotHeader& header = *slot->header;
    const auto state = namespaces_.find(header.block.name_space);
    if (header.clear_epoch != state->second.epoch) continue;
    each(header, policy_.WarmthOf(slot->block));
  }
  return *cursor < index_.end();
}

void ResidentBlocks::Fill(PoolSnapshot* snapshot) const {
  *snapshot = counts_;
  snapshot->live_region_bytes = space_.live_region_bytes();
  snapshot->retiring_region_bytes = space_.retiring_region_bytes();
  snapshot->free_slot_bytes = space_.bytes(SlotState::kFree);
  snapshot->reserved_bytes = space_.bytes(SlotState::kReserved);
  snapshot->resident_bytes = space_.bytes(SlotState::kResident);
  snapshot->retiring_bytes = space_.bytes(SlotState::kRetiring);
  snapshot->unused_unit_bytes = space_.unused_unit_bytes();
  snapshot->slab_rest_bytes = space_.slab_rest_bytes();
  snapshot->slabs = space_.slabs();
  snapshot->blocks = space_.slots(SlotState::kResident);
  snapshot->block_bytes = block_bytes_;
  snapshot->known_blocks = index_.known();
  snapshot->reserved_slots = space_.slots(SlotState::kReserved);
  snapshot->retiring_slots = space_.slots(SlotState::kRetiring);
  snapshot->leases = leases_.leases();
  snapshot->leased_slots = leases_.leased_slots();
  snapshot->holds = holds_;
  snapshot->unswept_entries = sweep_left_;
  for (const auto& [tenant, space] : space_.tenants()) {
    if (space.regions.empty()) continue;
    snapshot->regions += space.regions.size();
    snapshot->regions_by_tenant.emplace_back(tenant, space.regions.size());
  }
}

}  // namespace firnkv
