// Shared memory on the heap: pool regions, header tables and staging of the
// simulator and of unit tests. Descriptors and mappings are counted, bytes
// charged, and running out can be ordered.
//
// A read-only mapping here is writable in truth. What the real one refuses by a
// fault is tested on the real one (memfd.h); here the maker only refuses to
// map for writing through a read-only descriptor, or after the seal.
//
// Threading. Descriptors and mappings may be used from several threads, as far
// as their bytes may; the maker's switches belong to one.
//
// Ownership. Descriptors and mappings keep the memory, as in the kernel; the
// maker's tally is shared with them, so they may outlive it.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_MEMORY_H_
#define FIRNKV_TESTS_SUPPORT_SIM_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "client/transport/shared_memory.h"
#include "proto/base/random.h"

namespace firnkv {

class SimMemory : public MemoryMaker {
 public:
  SimMemory() : tally_(std::make_shared<Tally>()) {}

  absl::StatusOr<std::shared_ptr<SharedMemory>> Make(
      MemoryKindWanted kind, std::string_view name,
      std::uint64_t bytes) override;
  absl::StatusOr<HeaderTable> MakeHeaderTable(std::string_view name,
                                              std::uint64_t bytes) override;

  // The next `count` calls of Make and MakeHeaderTable are RESOURCE_EXHAUSTED.
  void FailNext(int count) { fail_next_ = count; }
  // So are those that would bring bytes_made() over this.
  void set_limit(std::uint64_t bytes) { limit_ = bytes; }

  // Memory that still has a descriptor or a mapping somewhere.
  std::uint64_t bytes_made() const { return tally_->bytes; }
  std::int64_t descriptors() const { return tally_->descriptors; }
  std::int64_t mappings() const { return tally_->mappings; }
  // Bytes ever given back by Punch.
  std::uint64_t bytes_punched() const { return tally_->punched; }

  // A bit of some pool region turns over on its own, as memory's do; false
  // where there is no region. One thread only.
  bool FlipOneBit(Random* random);

  // Pool regions and header tables that still have memory, by the names under
  // which they were made. One thread only.
  struct Named {
    std::string name;
    absl::Span<std::byte> bytes;
  };
  absl::Span<const Named> regions() const { return tally_->regions; }
  absl::Span<const Named> header_tables() const {
    return tally_->header_tables;
  }

  // Memory as a hostile client makes it: staging that fails the seal check.
  std::shared_ptr<SharedMemory> MakeUnsealed(std::uint64_t bytes);

  // Shared with memory that outlives its maker.
  struct Tally {
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::int64_t> descriptors{0};
    std::atomic<std::int64_t> mappings{0};
    std::atomic<std::uint64_t> punched{0};
    std::vector<Named> regions;
    std::vector<Named> header_tables;
  };

 private:
  absl::Status MayMake(std::uint64_t bytes);

  // Shared with every Backing.
  const std::shared_ptr<Tally> tally_;
  int fail_next_ = 0;
  std::uint64_t limit_ = UINT64_MAX;
};

// A second descriptor of the same memory with the same rights: what arrives at
// the other end of a socket. Null for null.
std::shared_ptr<SharedMemory> DuplicateDescriptor(SharedMemory* memory);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_MEMORY_H_
