// Memory that can be handed to another process: regions of the pool, header
// tables, clients' staging. A seam: memfds in production (memfd.h), heap memory
// in the simulator.

#ifndef FIRNKV_CLIENT_TRANSPORT_SHARED_MEMORY_H_
#define FIRNKV_CLIENT_TRANSPORT_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace firnkv {

// Mapped for the life of this value. Move-only through unique_ptr.
class MemoryMapping {
 public:
  virtual ~MemoryMapping() = default;
  // Writable only if mapped so: writing to a read-only mapping faults.
  virtual absl::Span<std::byte> bytes() const = 0;

  // A range of it, which starts on a page, once more at addresses of its own,
  // for reading; it needs no descriptor. Null where this memory has no other
  // addresses (the simulator's, huge pages) or none are left: who asks is a
  // debug check, which is weaker then.
  virtual std::unique_ptr<MemoryMapping> Alias(std::uint64_t /*offset*/,
                                               std::uint64_t /*bytes*/) const {
    return nullptr;
  }
  // From now on touching its bytes faults; its addresses stay taken, and hold
  // no memory. Only of an alias.
  virtual void Revoke() {}
};

enum class MapAccess : std::uint8_t { kRead, kReadWrite };

// A descriptor of shared memory that this process holds.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;  // Closes the descriptor.

  virtual std::uint64_t bytes() const = 0;

  virtual absl::StatusOr<std::unique_ptr<MemoryMapping>> Map(
      MapAccess access) = 0;

  // Another descriptor of the same memory through which nobody can write; what
  // readers are sent (rule P10).
  virtual absl::StatusOr<std::shared_ptr<SharedMemory>> ReopenReadOnly() = 0;

  // The checks of rule S1 on memory that somebody else made: sealed against
  // shrink and grow, a memfd, not huge pages, of exactly bytes().
  virtual absl::Status CheckStagingSeals() const = 0;

  // Gives the pages of a range back to the machine; they read as zeros.
  virtual absl::Status Punch(std::uint64_t offset, std::uint64_t length) = 0;

  // Allocates every page now, so that running out is an error here and not a
  // signal later. The caller has checked that there is room (rule P11).
  virtual absl::Status Populate() = 0;
};

enum class MemoryKindWanted : std::uint8_t {
  // A pool region: 0600, sealed against shrink, grow and further seals; huge
  // pages where there are any.
  kRegion,
  // A header table: as kRegion, and sealed against future writes once the
  // maker has its writable mapping: use SealFutureWrites.
  kHeaderTable,
  // A client's staging: sealed against shrink and grow.
  kStaging,
};

class MemoryMaker {
 public:
  virtual ~MemoryMaker() = default;

  // RESOURCE_EXHAUSTED where there are no descriptors or no memory. `name` is
  // for /proc/PID/maps.
  virtual absl::StatusOr<std::shared_ptr<SharedMemory>> Make(
      MemoryKindWanted kind, std::string_view name, std::uint64_t bytes) = 0;

  // A header table with the one writable mapping that there will ever be.
  struct HeaderTable {
    // Shared: the region and descriptors in flight to sessions hold it.
    std::shared_ptr<SharedMemory> memory;
    std::unique_ptr<MemoryMapping> writable;
  };
  virtual absl::StatusOr<HeaderTable> MakeHeaderTable(std::string_view name,
                                                      std::uint64_t bytes) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_SHARED_MEMORY_H_
