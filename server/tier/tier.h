// A Tier is one place below the DRAM pool where blocks rest: a flash device, or
// later an object store. The node moves blocks between a tier and slots of the
// pool (dram_pool.h); a tier itself knows nothing of its neighbours, of leases
// or of clients.
//
// Blocks are immutable, so a tier has no update and no ordering between
// writers. Two copies of one block may differ in bits and both be valid (two
// engines computed it), so a copy carries its own checksums in its header, and
// a load returns one copy whole.
//
// Threading. All methods may be called from any thread. Every `done` runs
// exactly once, on the tier's own completion thread, and must not block. No
// tier lock is held while `done` runs, so `done` may call back into the tier.
//
// Ownership. Buffers are slots of the pool, or private ones (rule C5): the
// caller keeps a hold on a slot until the matching `done` has run, since a
// device's transfer cannot be called back. The tier owns its storage and its
// threads.
//
// Implementations: flash_tier.h and tests/support/sim_tier.h.

#ifndef FIRNKV_SERVER_TIER_TIER_H_
#define FIRNKV_SERVER_TIER_TIER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/slot_header.h"

namespace firnkv {

// What became of one load. Only kLoaded leaves the destination defined.
enum class LoadOutcome : std::uint8_t {
  // The bytes are in the destination, and header and pieces have been verified.
  kLoaded,
  // The tier has no such block. The ordinary miss; not a failure.
  kAbsent,
  // The block was here but a checksum or its header did not match. The tier has
  // isolated the copy; the caller reads elsewhere and does not retry here.
  kCorrupt,
  // The queue is so long that the load would end after its deadline. Nothing
  // was issued.
  kCongested,
  // The device refused the read. The tier keeps the block and reports itself
  // unhealthy; the caller reads elsewhere.
  kDeviceFailed,
};

// What became of one store.
enum class StoreOutcome : std::uint8_t {
  // The copy is readable, and survives a restart: flushed, not only written.
  kStored,
  // A copy of the block was here before. As good as kStored.
  kAlreadyThere,
  // Every byte is in use by blocks that may not be reclaimed now, or too much
  // waits already.
  kFull,
  // The endurance budget is used up for now. Nothing was stored.
  kOverBudget,
  // The namespace is not confirmed in this run, or the copy is not of its
  // current clear epoch, or longer than the tier takes. Nothing was stored.
  kRefused,
  // The device refused the write. Nothing was stored.
  kDeviceFailed,
};

// How full a tier is. A snapshot: it may be out of date on return.
struct Occupancy {
  std::uint64_t bytes_used = 0;
  std::uint64_t bytes_capacity = 0;
  std::uint64_t blocks = 0;
};

class Tier {
 public:
  // One block to load. `destination` is at least the block's size and aligned
  // to kDeviceAlignment. `header` is that of the copy that was read, alive
  // until `done` returns; meaningless unless kLoaded.
  struct LoadRequest {
    BlockId block;
    absl::Span<std::byte> destination;
    absl::AnyInvocable<void(LoadOutcome, const SlotHeader& header) &&> done;
  };
  // One copy to store, with all that its header says of it: namespace, clear
  // epoch, key, digest, place in the chain, checksums. `header` is the node's
  // own, never one read back from a header table, and alive until `done`.
  // The generation is the new copy's, of this run's counter, with kStored.
  struct StoreRequest {
    const SlotHeader* header;
    absl::Span<const std::byte> bytes;
    absl::AnyInvocable<void(StoreOutcome, Generation) &&> done;
  };
  // Who owns a namespace, and its clear epoch, as the catalog said in this run.
  struct Confirmation {
    NamespaceId name_space;
    TenantId tenant;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    // False: its blocks are absent and none is stored, as long as this is so.
    bool serves = true;
  };

  Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // Drain's `done` must have run before a tier is destroyed.
  virtual ~Tier() = default;

  // Brings back what the last run left. Fails with FAILED_PRECONDITION if the
  // device belongs to another cluster or holds a newer format, and with
  // whatever the device said otherwise. Call once, before anything else.
  virtual void Open(absl::AnyInvocable<void(absl::Status) &&> done) = 0;

  // Refuses new work; `done` runs once every other `done` has, and stored
  // blocks are durable. Once.
  virtual void Drain(absl::AnyInvocable<void() &&> done) = 0;

  // Rule C3: until a namespace is confirmed in this run, its blocks are absent
  // and none is stored. A later confirmation may raise the clear epoch, never
  // lower it: what is of an older one is absent from then on (rule C2).
  virtual void Confirm(const Confirmation& confirmation) = 0;

  // Whether `block` is probably here. May be wrong in both directions while
  // stores and reclaims are in flight; use it to choose, never to prove a miss.
  virtual bool MayHold(const BlockId& block) const = 0;

  // Takes every request of the batch, issues the transfers together, so that
  // the device sees its full depth, and returns. Loads that would end after
  // `deadline` are answered kCongested.
  virtual void Load(absl::Span<LoadRequest> batch, BootTime deadline) = 0;

  // As Load. The tier never recomputes a checksum, so that damage on the way
  // here is found on the first load.
  virtual void Store(absl::Span<StoreRequest> batch) = 0;

  // Forgets the block. A load already in flight may still end kLoaded.
  virtual void Erase(const BlockId& block) = 0;

  virtual Occupancy GetOccupancy() const = 0;

  // For logs and metric labels: "flash:nvme0". Stable across restarts.
  virtual std::string_view name() const = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_TIER_H_
