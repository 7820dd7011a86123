// Attacks on what a client may see: regions kept after the session that mapped
// them, and the node's own memory through /proc.
//
// Threading. One thread.

#ifndef FIRNKV_TESTS_PROCESS_HOSTILE_MEMORY_H_
#define FIRNKV_TESTS_PROCESS_HOSTILE_MEMORY_H_

#include <sys/types.h>

#include <memory>
#include <vector>

#include "client/transport/descriptor.h"
#include "client/transport/shared_memory.h"
#include "tests/process/hostile_world.h"

namespace firnkv {

class KeptRegions {
 public:
  // Maps every region in which blocks [0, count) lie, with its header table,
  // and ends the session. Returns how many regions.
  absl::StatusOr<int> Keep(HostileWorld* world, std::uint64_t count);

  // What is in the kept memory now, by pages of a block's size:
  //   own      a block of [0, count), whole
  //   zero     nothing
  //   foreign  anything else
  //   strangers  header table entries of another namespace
  // Blocks that are just being written would be foreign: nobody of this tenant
  // writes meanwhile.
  Tally Look(const HostileWorld& world) const;
  // Ways to write to it that worked (raw_session.h), all regions together.
  Tally Reopen() const;
  // Stores into the mapping, in a child: the signal that it died of.
  Tally Scribble() const;

 private:
  struct Region {
    Descriptor slots;
    Descriptor headers;
    absl::Span<const std::byte> slot_bytes;
    absl::Span<const std::byte> header_bytes;
  };
  absl::Status KeepOne(HostileSession* session, std::uint64_t region);

  std::uint64_t count_ = 0;
  std::vector<Region> regions_;
};

// Ways into the process that worked: its memory, its descriptors, tracing.
Tally Pry(pid_t process);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_HOSTILE_MEMORY_H_
