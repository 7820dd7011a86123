// What goes into and comes out of the DRAM pool's operations (dram_pool.h):
// plain values, batches all of them. Status and place of a key are one struct,
// never two parallel lists.

#ifndef FIRNKV_SERVER_TIER_POOL_TYPES_H_
#define FIRNKV_SERVER_TIER_POOL_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/transport/shared_memory.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/slot_header.h"
#include "server/policy/eviction.h"
#include "server/tier/holds.h"
#include "server/tier/lease_table.h"
#include "server/tier/namespace_facts.h"
#include "server/tier/slot_id.h"

namespace firnkv {

struct PoolOptions {
  NodeEpoch epoch = NodeEpoch::kNone;
  // Regions together are never more than this.
  std::uint64_t target_bytes = kGiB;
  // A multiple of 64 pages. DESIGN: 64 MiB below a target of 4 GiB, else
  // 256 MiB or more.
  std::uint64_t region_bytes = 64 * kMiB;
  // Left free below every limit (rule P11).
  std::uint64_t reserve_bytes = 256 * kMiB;
  LeaseTable::Options leases;
  // Batches that wait for room; one more is kCongested at once. A waiting batch
  // is at most kMaxBatchKeys * about 200 B = 800 KiB.
  std::size_t max_waiting_batches = 256;
  // Of one tenant, so that it cannot take the others' places.
  std::size_t max_waiting_batches_a_tenant = 64;
  // An empty region is given back once it has been empty for this long, so that
  // a tenant's quiet second does not cost a punch and a populate.
  absl::Duration empty_region_linger = absl::Seconds(1);
  // After the limits refused a region, they are not asked again for this long.
  absl::Duration growth_pause = absl::Seconds(1);
  // Regions are of huge pages: punched only once every session has unmapped
  // them, never where one ended before it did (rule P9).
  bool huge_pages = false;
  // A region that sessions still map when it is gone counts as memory that
  // comes back soon for this long, a hundred times what telling them takes;
  // then another one goes for the same need.
  absl::Duration unmap_patience = absl::Seconds(2);
  // Sessions that map a region for this long beyond the end of the longest
  // lease or view that there can have been when it began to retire are
  // reported by Sweep: they will never unmap it.
  absl::Duration unmap_grace = absl::Seconds(10);
};

// Sessions that the node has to close (rule P9).
struct OverdueSessions {
  // With a view beyond its hard age.
  std::vector<SessionId> views;
  // Still mapping a region that has been wanted back for long.
  std::vector<SessionId> mappings;
};

enum class ReadSpan : std::uint8_t {
  // Stop at the first key that is not a hit; later ones are kSkipped.
  kLeadingRun,
  kEveryBlock,
};

struct OpenRequest {
  const PoolNamespace* name_space = nullptr;
  SessionId session;
  absl::Span<const BlockKey> keys;
  ReadSpan span = ReadSpan::kLeadingRun;
  LeaseUse use = LeaseUse::kCopy;
  absl::Duration lease;
};
struct Opened {
  // kHit, kMiss, kBeingWritten, kExpired, kCongested (no lease to be had: the
  // table's bounds), kSkipped.
  Outcome outcome = Outcome::kSkipped;
  // Of a hit.
  SlotCopy copy;
  std::uint64_t length = 0;
};
struct OpenAnswer {
  std::vector<Opened> blocks;  // One a key.
  // id is kNone where no key was a hit.
  LeaseTable::Granted lease;
  // The pool's own; at least the request's.
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
};

struct HeldRequest {
  const PoolNamespace* name_space = nullptr;
  struct Key {
    BlockKey key;
    // Longest block that the reader has room for.
    std::uint64_t room = UINT64_MAX;
  };
  absl::Span<const Key> keys;
  ReadSpan span = ReadSpan::kLeadingRun;
  std::uint64_t max_bytes = UINT64_MAX;
};
struct HeldBlock {
  Outcome outcome = Outcome::kSkipped;
  // Of a hit. `bytes` lies in the slot and is valid while `hold` is held.
  Hold hold;
  absl::Span<const std::byte> bytes;
  SlotHeader header;
};
struct HeldAnswer {
  std::vector<HeldBlock> blocks;  // One a key.
  // Keys at the front that were decided; the rest was beyond max_bytes.
  std::size_t decided = 0;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
};

struct Found {
  Outcome outcome = Outcome::kSkipped;
  // Of a hit.
  std::uint64_t length = 0;
  Generation generation = Generation::kNone;
};

struct ReserveBlock {
  BlockKey key;
  ChainPlace place;
  std::uint64_t length = 0;
};
struct ReserveRequest {
  PoolNamespace name_space;
  // At whose end it waits no longer; zero: the node's own.
  SessionId session;
  std::vector<ReserveBlock> blocks;
  // How long to wait for room.
  BootTime deadline;
  // The reservation's end: of each slot taken, and of kBeingWritten.
  BootTime reserved_until;
  // Of the copy that this one is made from (promotion, drain): refused at
  // commit if it is not the current one (rule P13). kUnknown: new content,
  // which gets the epoch of this moment.
  ClearEpoch source_epoch = ClearEpoch::kUnknown;
  // Room is made only by blocks colder than this, and at nobody else's cost: a
  // copy that is only thought to be useful must not cost what is known to be.
  Warmth evict_below = Warmth::kWarmest;
  EvictionPolicy::ConversationState conversation =
      EvictionPolicy::ConversationState::kUnknown;
};
struct ReservedBlock {
  // kStored: reserved, `copy` is the slot. kAlreadyThere: touched; `copy` names
  // the resident copy (rule S9). kCongested: no room by the deadline.
  // kCancelled: the pool or the session is ending. kCleared: source_epoch is an
  // old one.
  Outcome outcome = Outcome::kCongested;
  SlotCopy copy;
};
struct ReserveAnswer {
  // INVALID_ARGUMENT and nothing reserved: a key twice, a length of zero, over
  // the largest block or not the namespace's, a place that does not go with a
  // chained (or unchained) namespace (rule P14).
  absl::Status status;
  std::vector<ReservedBlock> blocks;  // One a block; empty unless OK.
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
};

struct CopyTarget {
  // The reserved slot.
  Hold hold;
  // Exactly the block's length; writable until Commit or the hold's end.
  absl::Span<std::byte> bytes;
};
struct CommitResult {
  Outcome outcome = Outcome::kReservationOver;
  // Of the resident copy, with kStored and kAlreadyThere.
  Generation generation = Generation::kNone;
};

// Descriptors that a session is sent.
struct RegionFiles {
  // Shared: the region has them too, and a descriptor in flight may outlive it.
  std::shared_ptr<SharedMemory> slots;
  // As `slots`.
  std::shared_ptr<SharedMemory> headers;
  std::uint64_t region_bytes = 0;
};

// Sums at one moment. free + reserved + resident + retiring slots and unused
// units make up live_region_bytes.
struct PoolSnapshot {
  std::uint64_t target_bytes = 0;
  // Every region that still has memory or is still mapped by somebody.
  std::uint64_t region_bytes = 0;
  std::uint64_t retiring_region_bytes = 0;
  // Punched, but still mapped by a session (P11: nominal size).
  std::uint64_t mapped_after_retirement_bytes = 0;
  std::uint64_t live_region_bytes = 0;
  std::uint64_t free_slot_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t retiring_bytes = 0;
  // Units of live regions in no slab, and the ends of slabs beyond their slots.
  std::uint64_t unused_unit_bytes = 0;
  std::uint64_t slab_rest_bytes = 0;

  std::uint64_t regions = 0;
  std::uint64_t slabs = 0;
  std::uint64_t blocks = 0;
  std::uint64_t block_bytes = 0;  // Without padding to slots.
  // Of which something is remembered: resident, reserved, or the parent of a
  // resident block.
  std::uint64_t known_blocks = 0;
  std::uint64_t reserved_slots = 0;
  std::uint64_t retiring_slots = 0;
  std::uint64_t leases = 0;
  std::uint64_t leased_slots = 0;
  std::uint64_t holds = 0;
  std::uint64_t waiting_batches = 0;
  // Entries of the index that may be copies of older clear epochs and have not
  // been looked at since the last clear.
  std::uint64_t unswept_entries = 0;

  // Since the start.
  std::uint64_t evicted_blocks = 0;
  std::uint64_t evicted_bytes = 0;
  std::uint64_t removed_blocks = 0;
  std::uint64_t cleared_blocks = 0;
  std::uint64_t expired_blocks = 0;
  std::uint64_t corrupt_copies = 0;   // Rule P12.
  std::uint64_t replaced_copies = 0;  // Rule P14.
  std::uint64_t commits = 0;
  std::uint64_t lost_commit_races = 0;
  // Reads of local sessions that found another node's copy: each would have
  // gone there.
  std::uint64_t copied_hits = 0;
  std::uint64_t regions_made = 0;
  std::uint64_t regions_retired = 0;
  std::uint64_t growth_refusals = 0;

  // Live regions of each tenant that has some.
  std::vector<std::pair<TenantId, std::uint64_t>> regions_by_tenant;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_POOL_TYPES_H_
