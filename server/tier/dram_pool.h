// The DRAM pool: which block lies in which slot of which region, who may read
// it, and what leaves when room is needed.
//
// Life of a slot (asserted in resident_blocks.cc, nowhere else changed):
//
//     free -> reserved -> resident -> retiring -> free
//                 \__________________/
//
// reserved: taken by StartReserve, unindexed, its bytes may be copied in under
// a hold. resident: in the index, readable. retiring: out of the index; its
// last leases and holds are waited for, then its generation is bumped and it is
// free (rule P7). A reservation that ends without a commit is retired the same
// way (rule S7).
//
// Rules that hold here by construction: only the node writes (P1: nobody else
// gets a writable span); look-up and grant of the lease are one critical
// section, and so are taking out of the index and begin of retirement (P2);
// generations come from one counter (P3); P5 by HeaderTableWriter; regions
// retire by P6; P7, P8, P11, P12, P13, P14; every index is keyed by block id
// (C1); no copy of an older clear epoch is served or made resident (C2); a
// region and a slab belong to one tenant at a time (C5).
//
// Does not know: sessions' caps and deadlines (server/node/reservations.h),
// staging, the catalog, the wire.
//
// Threading. Thread-safe, one mutex; a batch is one critical section. Events
// run under the mutex (pool_events.h says what they may do); completions and
// hooks run on tasks of the executor or inside Start..., under no lock.
// Memory is made, populated and punched on tasks, never under the mutex.
//
// Ownership. Everything in Parts outlives the pool; every Hold that the pool
// gave must have ended before it is destroyed. Owned by Node.

#ifndef FIRNKV_SERVER_TIER_DRAM_POOL_H_
#define FIRNKV_SERVER_TIER_DRAM_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/transport/shared_memory.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/tier/arena.h"
#include "server/tier/holds.h"
#include "server/tier/lease_table.h"
#include "server/tier/memory_limits.h"
#include "server/tier/namespace_facts.h"
#include "server/tier/pool_events.h"
#include "server/tier/pool_types.h"
#include "server/tier/slot_id.h"

namespace firnkv {

class Region;
class ResidentBlocks;
class RoomMaker;
struct Slot;

class DramPool : public HoldKeeper {
 public:
  struct Parts {
    const Clock* clock = nullptr;
    Executor* executor = nullptr;
    MemoryMaker* memory = nullptr;
    // Null: no limit but the target.
    const MemoryLimits* limits = nullptr;
    // Null: nobody listens.
    PoolEvents* events = nullptr;
    RegionHooks* hooks = nullptr;
  };

  DramPool(const PoolOptions& options, const Parts& parts);
  DramPool(const DramPool&) = delete;
  DramPool& operator=(const DramPool&) = delete;
  // Ends waiting reservations with kCancelled, and waits for its own tasks.
  ~DramPool() override;

  // --- Reading.

  // Looks the keys up and grants one lease over all hits, in one step (rule
  // P2). The hits count as touched by one run.
  OpenAnswer Open(const OpenRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);

  // As Open, with a hold on each hit instead of a lease: for transfers that the
  // node makes itself (rule P8). Keys are looked up while the hits' bytes stay
  // within `max_bytes`, at least one; the rest is kSkipped and asked for again
  // later. A block longer than its key's room is kWrongSize.
  HeldAnswer OpenHeld(const HeldRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);

  // Outcomes as Open would give them; nothing is leased or touched.
  std::vector<Found> Contains(const PoolNamespace& name_space,
                              absl::Span<const BlockKey> keys, ReadSpan span)
      ABSL_LOCKS_EXCLUDED(mutex_);

  void Release(SessionId session, absl::Span<const LeaseId> leases)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<LeaseTable::RenewOutcome> Renew(SessionId session,
                                              absl::Span<const LeaseId> leases,
                                              absl::Duration duration)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the session's leases, its waiting reservations (with kCancelled) and
  // its mappings of regions; holds never.
  void EndSession(SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Writing.

  // Takes a slot for each block that is not there. Where there is no room,
  // makes some; where everything is leased or held, waits for it until
  // request.deadline, then says kCongested. `done` runs exactly once, perhaps
  // inside the call.
  void StartReserve(ReserveRequest request,
                    absl::AnyInvocable<void(ReserveAnswer) &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the reservations that wait for room with kCancelled; their completions
  // have run on return. For an owner whose parts they lead to end before the
  // pool does.
  void CancelWaiting() ABSL_LOCKS_EXCLUDED(mutex_);

  // Begins to fill a reserved slot: the only way to a writable span (rule P1).
  // kReservationOver once the reservation has ended or its time has passed,
  // kCleared if its namespace was cleared since, kAlreadyThere if another
  // writer was first (the slot is dead then).
  std::variant<CopyTarget, CommitResult> BeginCopy(SlotCopy reserved)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Every byte of `target` is there and `pieces` are its checksums: makes the
  // block resident, unless the reservation ended meanwhile. First commit wins.
  // kStored, kAlreadyThere, kReservationOver or kCleared (rules C2, P13).
  // `source_nanos` is the commit time of the copy that this one was made from:
  // it keeps that, unless it lies ahead of this node's clock. 0: now.
  CommitResult Commit(CopyTarget target, std::vector<std::uint32_t> pieces,
                      std::int64_t source_nanos = 0)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // What of these is not committed is dead, and reclaimed once its copy has
  // stopped (rule S7). Naming one twice or late changes nothing.
  void EndReservation(absl::Span<const SlotCopy> reserved)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Taking away.

  // kHit: it was here and is gone; kMiss.
  std::vector<Outcome> Remove(NamespaceId name_space,
                              absl::Span<const BlockKey> keys)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes only this copy of the block: the catalog refused it.
  Outcome Drop(const BlockId& block, Generation generation)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Recomputes the checksums of the copy and isolates it if they are wrong
  // (rule P12): kHit: sound; kCorrupt: isolated; kMiss: no such copy here.
  // Costs a pass over the block: call it on a task. How many bytes that were:
  // *bytes, where it is not null.
  Outcome Verify(const BlockId& block, Generation generation,
                 std::uint64_t* bytes = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);

  // Copies of older epochs are refused from now on. O(1); their memory comes
  // back by and by. A lower epoch than the one known changes nothing.
  void SetClearEpoch(NamespaceId name_space, ClearEpoch epoch)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Copies of older epochs that still take memory, retired or not; while this
  // is not zero, a lease granted before the clear may still be alive (rule C4).
  std::uint64_t ClearPending(NamespaceId name_space) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Memory.

  // Lets the coldest blocks go until at least `bytes` of slots are free that
  // were not, or nothing can go. Returns the bytes.
  std::uint64_t Evict(std::uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Up: grows by need, a region at a time, each only below the limits (rule
  // P11). Down: regions retire until the sum fits, the least valuable first
  // (rule P6); their memory comes back as leases, holds and reservations in
  // them end, and counts until sessions have unmapped it.
  void SetTarget(std::uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether that target can be kept, as Arena::CheckTarget; changes nothing.
  absl::Status CheckTarget(std::uint64_t bytes) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Asks the limits and shrinks under pressure (rule P11). `other_mapped_bytes`
  // is what the node maps of others' memory (staging), counted at nominal size.
  // Called by the node every second.
  void CheckMemory(std::uint64_t other_mapped_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // One bounded step of housekeeping: ended leases, cleared copies, empty
  // regions. Called by the node every second; the pool also sets a timer of its
  // own while somebody waits.
  OverdueSessions Sweep(std::size_t budget) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Regions and sessions.

  // Live regions of the tenant.
  std::vector<std::uint64_t> RegionsOf(TenantId tenant) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Read-only descriptors of a live region of `tenant`, and the note that
  // `session` maps it from now on (P11). NOT_FOUND for any other: a session
  // cannot find out which regions there are.
  absl::StatusOr<RegionFiles> MapRegion(TenantId tenant, SessionId session,
                                        std::uint64_t region)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void NoteUnmapped(SessionId session, std::uint64_t region)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Looking.

  PoolSnapshot Snapshot() const ABSL_LOCKS_EXCLUDED(mutex_);

  // For ReserveRequest::evict_below: what is stored or touched from now on is
  // at least so warm, all that is here is colder.
  Warmth NextWarmth() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `each` for resident, current copies, at most about `budget` of them,
  // from *cursor on, and moves it; false once all have been seen. `each` runs
  // under the pool's lock as PoolEvents do, so what it appends to the
  // announcement log stands there in order with the events: together they make
  // a consistent inventory.
  bool EachResident(std::uint32_t* cursor, std::size_t budget,
                    absl::FunctionRef<void(const SlotHeader&)> each) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // As EachResident, with how warm each is. While `each` runs, *cursor is the
  // copy's place: from there, with a budget of 1, it is seen again, unless it
  // has left; another block may have the place then.
  bool EachWarm(std::uint32_t* cursor, std::size_t budget,
                absl::FunctionRef<void(const SlotHeader&, Warmth)> each) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Largest block that StartReserve takes.
  std::uint64_t largest_block() const { return largest_block_; }

 private:
  // A batch that has not got all its slots.
  struct Waiter;
  using ReserveDone = absl::AnyInvocable<void(ReserveAnswer) &&>;
  // A region that is gone, but not for these.
  struct StillMapped {
    absl::flat_hash_set<SessionId> sessions;
    BootTime retiring_since;
    // Until then it counts as coming back.
    BootTime patience_until;
  };

  void EndHold(SlotCopy copy) override ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Waiting for room, in the order in which it happens.

  // One batch more, of this tenant.
  bool MayWait(TenantId tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers what needs no slot.
  void Begin(Waiter* waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes slots as far as there are any; true once every block is decided.
  bool Advance(Waiter* waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same; blocks of the batch that it finds there are spared from then on.
  bool AdvanceSparing(Waiter* waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void CancelRest(Waiter* waiter);
  Slot* MakeRoom(TenantId tenant, std::uint64_t slot_bytes, Warmth below)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After every change: gives waiters what has become free, ends those whose
  // deadline has passed, and sets off what regions and time need. Completions
  // are posted.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A reader frees something only by finding it expired or cleared.
  void SettleWaiters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostDone(std::unique_ptr<Waiter> waiter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLeases(std::size_t budget) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTimer() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- A region's life, in its order. Each step is a task.

  void StartGrowth(TenantId tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Grow(TenantId tenant, RegionId id) ABSL_LOCKS_EXCLUDED(mutex_);
  void ShrinkToTarget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Posts the next step of each retiring region that is ready for it.
  void AdvanceRetirements() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnnounceRetirement(TenantId tenant, std::uint64_t region)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishRetirement(std::uint64_t region) ABSL_LOCKS_EXCLUDED(mutex_);
  // Leased and held by nobody; of huge pages, mapped by nobody either.
  bool IsQuiet(const Region& region) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Every region that exists, is being made, or is mapped still.
  std::uint64_t TotalBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint64_t NominalBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What will be free without anything more being done.
  std::uint64_t ComingBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A region that retires, or was, is to become one of this tenant.
  bool AwaitsRegion(TenantId tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A region's worth comes back that nobody has a claim to.
  bool RegionIsSpareSoon() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(Region* region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The session maps the region no more, whether it still is or not.
  void ForgetMapping(SessionId session, std::uint64_t region)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddOverdueMappings() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PoolOptions options_;
  const Parts parts_;
  const std::uint64_t largest_block_;
  const Arena arena_;

  mutable Mutex mutex_;
  const std::unique_ptr<ResidentBlocks> blocks_ ABSL_PT_GUARDED_BY(mutex_);
  const std::unique_ptr<RoomMaker> room_ ABSL_PT_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Waiter>> waiters_ ABSL_GUARDED_BY(mutex_);
  OverdueSessions overdue_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t target_bytes_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t other_mapped_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t regions_made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t regions_retired_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t growth_refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  BootTime growth_paused_until_ ABSL_GUARDED_BY(mutex_);
  // At the last CheckMemory.
  std::optional<std::uint64_t> out_of_memory_ ABSL_GUARDED_BY(mutex_);
  // Tenants for which a region is being made, and which.
  std::map<TenantId, std::uint64_t> growing_ ABSL_GUARDED_BY(mutex_);
  // Region that retires or is still mapped -> the tenant that gets the next one
  // for it.
  std::map<std::uint64_t, TenantId> in_favour_of_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, StillMapped> still_mapped_ ABSL_GUARDED_BY(mutex_);
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  BootTime timer_at_ ABSL_GUARDED_BY(mutex_) = BootTime::Infinite();

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_DRAM_POOL_H_
