// Makes and gives back the memory of regions: a memfd for the slots, one for
// the header table, each mapped once by the node, and read-only descriptors of
// both for its sessions (rule P10).
//
// Each region is a step, made only while the limits leave room for it beyond
// the reserve (rule P11), and populated at once, so that running out of memory
// is an outcome here and not a signal later.
//
// Does not know: who uses a region, how many there may be, what lies in it.
//
// Threading. Thread-safe: it has no state. Everything here is a system call
// that may take as long as touching a region: never under a lock.
//
// Ownership. `memory` and `limits` outlive it. Owned by DramPool.

#ifndef FIRNKV_SERVER_TIER_ARENA_H_
#define FIRNKV_SERVER_TIER_ARENA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/transport/shared_memory.h"
#include "proto/base/slot_header.h"
#include "server/tier/memory_limits.h"

namespace firnkv {

// Everything that one region has of the machine. Its destruction unmaps.
struct RegionMemory {
  // Shared: descriptors in flight to sessions hold them too.
  std::shared_ptr<SharedMemory> slots;
  std::unique_ptr<MemoryMapping> mapping;
  MemoryMaker::HeaderTable headers;
  // As `slots`; nobody can write through these.
  std::shared_ptr<SharedMemory> slots_for_readers;
  // As `slots_for_readers`.
  std::shared_ptr<SharedMemory> headers_for_readers;
};

class Arena {
 public:
  struct Options {
    std::uint64_t region_bytes = 0;
    std::uint64_t reserve_bytes = 0;
  };

  // `limits` may be null: then there are none.
  Arena(const Options& options, MemoryMaker* memory,
        const MemoryLimits* limits);

  // RESOURCE_EXHAUSTED where the limits leave no room beyond the reserve and
  // `nominal_bytes`: memory of others that the node maps, which may come to be
  // charged to it at any time.
  absl::StatusOr<std::unique_ptr<RegionMemory>> Make(
      RegionId region, std::uint64_t nominal_bytes) const;

  // Gives the region's pages back to the machine; they read as zeros for who
  // still maps them.
  absl::Status Punch(RegionMemory* memory) const;

  struct Pressure {
    // By how much the limits are below reserve and nominal bytes.
    std::uint64_t missing_bytes = 0;
    // As MemoryLimits::Reading's.
    std::uint64_t out_of_memory = 0;
  };
  // Zeros if nobody knows.
  Pressure Look(std::uint64_t nominal_bytes) const;

  // Whether `target_bytes` of regions could be had now by one that has
  // `taken_bytes` of them: INVALID_ARGUMENT for less than a region,
  // FAILED_PRECONDITION with the limit and whose it is where they could not.
  absl::Status CheckTarget(std::uint64_t target_bytes,
                           std::uint64_t taken_bytes,
                           std::uint64_t nominal_bytes) const;

  // What one region costs, with its header table.
  std::uint64_t step_bytes() const;

 private:
  const Options options_;
  MemoryMaker* const memory_;
  const MemoryLimits* const limits_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_ARENA_H_
