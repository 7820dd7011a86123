// The pool's state and every step that changes it, for one caller at a time:
// the index, the slots, the leases, the eviction order and the clear epochs of
// namespaces. DramPool (dram_pool.h) puts a mutex around it, lets batches wait,
// and makes and gives back regions.
//
// Invariants:
//   1. A block is in the index exactly if one slot is resident for it, and that
//      slot's header names the block (rule C1).
//   2. A slot is free only if no lease and no hold names it and its generation
//      was bumped since it was last published (rule P7).
//   3. Only resident slots are known to the policy; their group is the slab's.
//   4. Events are reported in the step that changes the index (rule A2).
//
// Threading. None: the pool's mutex protects it.
//
// Ownership. `clock` and `events` outlive it. Owned by DramPool.

#ifndef FIRNKV_SERVER_TIER_RESIDENT_BLOCKS_H_
#define FIRNKV_SERVER_TIER_RESIDENT_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "server/policy/leaf_first_lru.h"
#include "server/tier/block_index.h"
#include "server/tier/lease_table.h"
#include "server/tier/pool_events.h"
#include "server/tier/pool_types.h"
#include "server/tier/slot_id.h"
#include "server/tier/slot_space.h"

namespace firnkv {

class ResidentBlocks {
 public:
  // `events` may be null.
  ResidentBlocks(const PoolOptions& options, const Clock* clock,
                 PoolEvents* events);

  // --- Reading: DramPool's operations of the same names.

  OpenAnswer Open(const OpenRequest& request);
  HeldAnswer OpenHeld(const HeldRequest& request, HoldKeeper* keeper);
  std::vector<Found> Contains(const PoolNamespace& name_space,
                              absl::Span<const BlockKey> keys, ReadSpan span);
  void EndHold(SlotCopy copy);

  // The keeper of every lease; what it ended is given to Reclaim.
  LeaseTable* leases() { return &leases_; }
  const LeaseTable& leases() const { return leases_; }
  void Reclaim(const LeaseTable::Ended& ended);

  // --- Writing.

  // The namespace's epoch as the pool knows it, at least `facts`'.
  ClearEpoch LearnEpoch(const PoolNamespace& facts);

  // What a writer of this block, one of `request`'s, is told at once:
  // kAlreadyThere. nullopt: it needs a slot. A resident copy that differs in
  // its place or length is retired first (rule P14), but not for a copy of a
  // copy: that comes by hearsay, and what stood here would be gone before it is
  // seen whether anything comes.
  std::optional<ReservedBlock> FindForWriter(const ReserveRequest& request,
                                             const ReserveBlock& block);
  // Blocks that are resident, used by one writer's batch.
  void Touch(absl::Span<const SlotCopy> run,
             EvictionPolicy::ConversationState conversation);
  // Makes a slot that SlotSpace has given this reservation's.
  SlotCopy Occupy(Slot* slot, const ReserveRequest& request, ClearEpoch epoch,
                  const ReserveBlock& block);
  std::variant<CopyTarget, CommitResult> BeginCopy(SlotCopy reserved,
                                                   HoldKeeper* keeper);
  // Ends the hold that BeginCopy gave. `source_nanos`: see DramPool::Commit.
  CommitResult Commit(SlotCopy held, std::vector<std::uint32_t> pieces,
                      std::int64_t source_nanos);
  void EndReservation(SlotCopy reserved);

  // --- Taking away.

  // Why a copy leaves; each is counted.
  enum class Reason : std::uint8_t {
    kEvicted,
    kRemoved,
    kCleared,
    kExpired,
    kCorrupt,
    kReplaced,
    // Its region retires.
    kRegion,
  };
  // Takes the resident copy out of the index and begins to retire its slot, in
  // one step (rule P2). The slot is free on return if nobody has it.
  void Retire(Slot* slot, Reason reason);
  Slot* FindResident(const BlockId& block) const;
  // The resident copy if it is of this generation, with a hold.
  HeldBlock HoldCopy(const BlockId& block, Generation generation,
                     HoldKeeper* keeper);

  void SetClearEpoch(NamespaceId name_space, ClearEpoch epoch);
  std::uint64_t ClearPending(NamespaceId name_space) const;
  // Retires cleared copies among the next `budget` entries, until all have been
  // looked at since the last clear.
  void SweepCleared(std::size_t budget);

  // --- Room.

  SlotSpace* space() { return &space_; }
  const SlotSpace& space() const { return space_; }
  // The slot is resident, and neither leased, held nor spared.
  bool CanLeave(const Slot& slot) const;
  // Makes no room by taking this one, until SpareNone: a batch would lose its
  // own blocks to its other ones.
  void Spare(SlotId slot) { spared_.insert(slot); }
  void SpareNone() {
    changes_ += spared_.empty() ? 0 : 1;
    spared_.clear();
  }
  Warmth ColdestOf(EvictionGroup group) { return policy_.ColdestOf(group); }
  Warmth NextWarmth() const { return policy_.NextWarmth(); }
  // Evicts the coldest blocks of `groups`, none that is leased or held, and
  // returns their slots' bytes.
  std::uint64_t Evict(absl::Span<const EvictionGroup> groups,
                      EvictionPolicy::Room room);
  // Everything in the slab can leave, and does, whatever its place in a chain
  // (as in RetireRegion).
  void EmptySlab(Slab* slab);
  // The region gives out nothing any more, and what lies in it leaves, whatever
  // its place in a chain: children elsewhere stay, and are of use again once
  // the parent was written again. Evicting them too could empty the pool for
  // the sake of one region.
  void RetireRegion(Region* region);

  // --- Looking.

  bool EachWarm(std::uint32_t* cursor, std::size_t budget,
                absl::FunctionRef<void(const SlotHeader&, Warmth)> each) const;
  // Its own part of the snapshot.
  void Fill(PoolSnapshot* snapshot) const;

  // Grows whenever something became free or evictable: who waits for room need
  // not look again before.
  std::uint64_t changes() const { return changes_; }

 private:
  struct NamespaceState {
    ClearEpoch epoch = ClearEpoch::kUnknown;
    // Published copies that still take memory, retired or not.
    std::uint64_t current_copies = 0;
    std::uint64_t older_copies = 0;
  };
  struct Looked {
    Outcome outcome = Outcome::kMiss;
    Slot* slot = nullptr;
  };

  // What a reader of the block gets; an expired or cleared copy is retired.
  Looked Look(const PoolNamespace& name_space, ClearEpoch epoch,
              const BlockKey& key);
  bool IsExpired(const PoolNamespace& name_space, const Slot& slot) const;
  void TouchSlots(const std::vector<Slot*>& run);
  void Rewarm(Slot* slot);
  Slot* FindReserved(SlotCopy reserved) const;
  // What a commit of the reserved slot comes to now: kStored, or why not.
  CommitResult Judge(Slot* slot);
  Hold TakeHold(Slot* slot, HoldKeeper* keeper);
  // From reserved or resident; reclaimed at once if nobody has the slot.
  void BeginRetire(Slot* slot);
  // Out of the index; the policy knows already.
  void Withdraw(Slot* slot, Reason reason);
  void EndWriter(Slot* slot);
  void ReclaimIfFree(Slot* slot);
  void ForgetIfUnused(BlockNumber number);
  void Publish(Slot* slot);

  const Clock* const clock_;
  PoolEvents* const events_;

  SlotSpace space_;
  BlockIndex index_;
  LeaseTable leases_;
  LeafFirstLru policy_;
  absl::flat_hash_map<NamespaceId, NamespaceState> namespaces_;
  // Entries that SweepCleared has still to look at, and where it is. It goes
  // round those that there were at the last clear.
  std::uint64_t sweep_left_ = 0;
  std::uint32_t sweep_end_ = 0;
  std::uint32_t sweep_at_ = 0;
  std::uint64_t changes_ = 0;
  absl::flat_hash_set<SlotId> spared_;
  std::uint64_t holds_ = 0;
  std::uint64_t block_bytes_ = 0;
  // The counters of a snapshot.
  PoolSnapshot counts_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_RESIDENT_BLOCKS_H_
