// What the pool tells others: which copies came and went (the announcement log
// listens), and which regions did (sessions, I/O and transports listen).
//
// Implemented by server/node/catalog_link.h and server/node/session_socket.h,
// and by recorders in tests.

#ifndef FIRNKV_SERVER_TIER_POOL_EVENTS_H_
#define FIRNKV_SERVER_TIER_POOL_EVENTS_H_

#include <cstdint>

#include "proto/base/id.h"
#include "proto/base/slot_header.h"

namespace firnkv {

// Called under the pool's lock, in the order in which copies enter and leave
// the index: that order is the one of the announcements (rule A2). So an
// implementation appends to a log and does nothing else; it must not call the
// pool.
class PoolEvents {
 public:
  virtual ~PoolEvents() = default;
  virtual void OnPublished(const SlotHeader& copy) = 0;
  // Once for each published copy that left: evicted, removed, replaced,
  // cleared, expired, corrupt.
  virtual void OnWithdrawn(const SlotHeader& copy) = 0;
};

// Called on tasks of the executor, under no lock, for one region in this order:
// made, then (rule P6) retiring, then I/O, then transports, then gone.
class RegionHooks {
 public:
  virtual ~RegionHooks() = default;
  // Sessions of the tenant may map it from now on.
  virtual void OnRegionMade(TenantId tenant, std::uint64_t region) = 0;
  // No slot of it is given out any more. Sessions tell their clients to unmap
  // it once no view is open, and the pool about it (DramPool::NoteUnmapped).
  virtual void OnRegionRetiring(TenantId tenant, std::uint64_t region) = 0;
  // Every lease and hold has ended and every generation is bumped. Returns once
  // no device and no transport will touch the region's memory.
  virtual void ReplaceIoRegistration(std::uint64_t region) = 0;
  virtual void DeregisterTransports(std::uint64_t region) = 0;
  // Punched. Its number never comes back.
  virtual void OnRegionGone(TenantId tenant, std::uint64_t region) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_POOL_EVENTS_H_
