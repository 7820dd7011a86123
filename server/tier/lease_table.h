// The read leases that this node has granted and that have not yet ended.
//
// A lease is a promise to one session about the slots of one batch: until it
// ends, the bytes in them stay what they are, so the reader may copy or pull
// them without asking again. It is about slots and not about blocks: while an
// old copy of a block waits for its last reader, a new copy of the same block
// may already live in another slot.
//
//     resident --BeginRetire--> retiring --(last lease ends)--> reclaimable
//
// A lease for a view has a second end: after its slots are free again, the
// session may still look at the region, so the region counts as viewed until
// release, session end or hard age; a session beyond the hard age is reported,
// and closed by the node (rule P9).
//
// Invariants, checked on every change:
//   1. A retiring slot gets no new lease, and none of its leases is renewed.
//   2. BeginRetire and IsReclaimable say yes only when no live lease names the
//      slot.
//   3. leased slots, counted once for each lease, <= max_leased_slots, those of
//      one session <= max_leased_slots_a_session, those of one tenant <=
//      max_leased_slots_a_tenant: no tenant leaves nothing for the others
//      (rule S3).
//
// Clocks. The node alone decides when a lease ends, by its own boot clock. A
// client is told a duration, counts it from before its request, and stops at
// seven eighths of it (rule A7); no instant crosses the wire, so clock skew
// cannot break a promise.
//
// Does not know: blocks, keys, bytes. Grant runs in the same step as
// the index look-up that found the slots, and BeginRetire in the one that takes
// the block out of the index (rule P2): that is why it lies in the pool.
//
// Threading. None: the pool's mutex protects it. Grant, Renew and Release cost
// O(slots of the batch + log leases); Sweep ends at most `budget` leases a
// call.
//
// Owned by DramPool.

#ifndef FIRNKV_SERVER_TIER_LEASE_TABLE_H_
#define FIRNKV_SERVER_TIER_LEASE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "server/tier/slot_id.h"

namespace firnkv {

// Unique within one run of one node. Zero is never granted. Not a secret: every
// use names the session too.
enum class LeaseId : std::uint64_t { kNone = 0 };

// What the reader will do under the lease.
enum class LeaseUse : std::uint8_t { kCopy, kView };

class LeaseTable {
 public:
  struct Options {
    // Bounds memory: about 60 bytes a leased slot. At a bound, kTableFull.
    std::size_t max_leased_slots = 1 << 20;
    std::size_t max_leased_slots_a_session = 1 << 16;
    std::size_t max_leased_slots_a_tenant = 1 << 19;
    // The longest lease a client may ask for; longer requests are cut to it.
    absl::Duration longest = absl::Seconds(60);
    // Hard age of a view, counted from its grant.
    absl::Duration longest_view = absl::Seconds(30);
  };

  // One slot wanted, and whether the lease covers it.
  struct Wanted {
    SlotId slot;
    // False only for a slot that is retiring.
    bool granted = false;
  };
  struct Granted {
    LeaseId id = LeaseId::kNone;
    // Counted from the moment Grant ran.
    absl::Duration valid_for;
  };
  enum class Refused : std::uint8_t { kNothingToLease, kTableFull };
  using GrantOutcome = std::variant<Granted, Refused>;

  // Numbers are wire format (RenewResponse).
  enum class RenewOutcome : std::uint8_t {
    kRenewed = 1,
    kEnded = 2,
    kSlotRetiring = 3,
  };
  enum class RetireOutcome : std::uint8_t { kReclaimable, kStillLeased };

  // What a step ended: slots that are retiring and had their last lease there,
  // and sessions with views beyond the hard age.
  struct Ended {
    std::size_t leases = 0;
    std::vector<SlotId> reclaimable;
    std::vector<SessionId> overdue_views;
  };

  // `clock` must outlive the table.
  LeaseTable(const Options& options, const Clock* clock);
  LeaseTable(const LeaseTable&) = delete;
  LeaseTable& operator=(const LeaseTable&) = delete;

  // Who a lease is granted to. A session is of one tenant for ever.
  struct Holder {
    SessionId session;
    TenantId tenant;
    // Its end stands where it was granted to.
    bool renewable = true;
  };

  // Promises to `holder` every slot of `wanted` that is not retiring, and marks
  // it granted, for `duration` or options.longest if that is shorter. Any
  // number of leases may name one slot. `duration` must be positive.
  GrantOutcome Grant(const Holder& holder, LeaseUse use,
                     absl::Span<Wanted> wanted, absl::Duration duration);

  // Moves the end of a live lease of `session` to `duration` from now; never
  // brings it nearer. Refused whole, as kSlotRetiring, if one of its slots is
  // retiring or it is not renewable.
  RenewOutcome Renew(SessionId session, LeaseId id, absl::Duration duration);

  // Ends a lease of `session` early. Releasing one that has ended, or another
  // session's, changes nothing: a client cannot know that a lease has ended.
  void Release(SessionId session, LeaseId id, Ended* ended);

  // Ends every lease of `session`. Its process is gone or has let go.
  void EndSession(SessionId session, Ended* ended);

  // Refuses new leases on `slot` from now on. There is no way back: the caller
  // waits until IsReclaimable, gives the slot its next generation, and then
  // calls EndRetire, after which leases on the slot are about what is there
  // next.
  RetireOutcome BeginRetire(SlotId slot);
  bool IsReclaimable(SlotId slot) const;
  void EndRetire(SlotId slot);

  bool IsLeased(SlotId slot) const;
  // Somebody may be looking at the region through a view.
  bool HasViews(std::uint64_t region) const;

  // Ends at most `budget` leases whose time has passed, oldest first.
  void Sweep(std::size_t budget, Ended* ended);

  // When Sweep will next have something to do; Infinite if never.
  BootTime NextEnd() const;

  // Leases that still protect slots or count as views.
  std::size_t leases() const { return leases_.size(); }
  std::size_t leased_slots() const { return leased_slots_; }

 private:
  struct Lease {
    SessionId session;
    TenantId tenant;
    LeaseUse use = LeaseUse::kCopy;
    bool renewable = true;
    // When the slots are free; afterwards, for a view, the hard age.
    BootTime ends_at;
    BootTime view_ends_at;
    // Empty once the promise about the slots has ended.
    std::vector<SlotId> slots;
    // Against the bounds, until the lease is gone: a view is charged for as
    // long as it may be looked at.
    std::size_t charged_slots = 0;
    // Regions of a view, each once.
    std::vector<std::uint64_t> regions;
  };
  struct SlotState {
    std::uint32_t live_leases = 0;
    bool retiring = false;
  };
  struct SessionState {
    std::size_t leased_slots = 0;
    absl::flat_hash_set<LeaseId> leases;
  };
  using Leases = absl::flat_hash_map<LeaseId, Lease>;

  // So many slots more are within the bounds.
  bool HasRoom(const Holder& holder, std::size_t slots) const;
  void CountViews(Lease* lease);
  // The promise about the slots is over; a view may go on.
  void EndSlots(Lease* lease, Ended* ended);
  void End(Leases::iterator lease, Ended* ended);

  const Options options_;
  const Clock* const clock_;

  std::uint64_t next_id_ = 1;
  std::size_t leased_slots_ = 0;
  Leases leases_;
  // Exactly the leases in leases_, in the order in which they end.
  std::set<std::pair<BootTime, LeaseId>> by_end_;
  // Only sessions that have leases.
  absl::flat_hash_map<SessionId, SessionState> sessions_;
  // Leased slots of tenants that have leases.
  absl::flat_hash_map<TenantId, std::size_t> tenants_;
  // Only slots that are leased or retiring; the rest have no entry.
  absl::flat_hash_map<SlotId, SlotState> slots_;
  // Views by region; the rest have no entry.
  absl::flat_hash_map<std::uint64_t, std::uint32_t> views_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_LEASE_TABLE_H_
