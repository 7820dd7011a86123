// How much memory this process may still take (rule P11): the least of what its
// memory cgroups (version 1 or 2, each ancestor) and the machine have left. In
// a memory cgroup running out is no error but SIGKILL, so the arena asks before
// each step.
//
// What counts as used is the cgroup's usage without `inactive_file`: page cache
// that nobody uses now, which the kernel gives back before it kills. Active
// page cache counts, since giving it back costs somebody; so does all of the
// arena itself, which is shared memory and lies in `file`, never in
// `inactive_file`: subtracting `file` would hide it.
//
// The limit is the lower one of memory.max and memory.high: beyond `high`
// everybody in the cgroup is throttled, the node's foreground reads too.
//
// Pressure. Of memory.events.local only `oom` is read: an allocation failed at
// this very limit, after everything that could be given back was. `high` and
// `max` count up also where a cgroup's clean page cache has merely reached its
// limit, which is the normal state of one that writes files, and so does PSI:
// an arena that followed those would shrink to nothing for nobody's sake.
//
// Threading. Thread-safe. Read is file I/O: never under a lock.

#ifndef FIRNKV_SERVER_TIER_MEMORY_LIMITS_H_
#define FIRNKV_SERVER_TIER_MEMORY_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace firnkv {

class MemoryLimits {
 public:
  struct Reading {
    // What may still be taken before the tightest limit, and which one that is,
    // for logs and --check: "cgroup v2 /system.slice/firnkv.service".
    std::uint64_t available_bytes = 0;
    // Of the tightest limit; UINT64_MAX if there is none but the machine.
    std::uint64_t limit_bytes = UINT64_MAX;
    std::string limited_by;
    // How often an allocation failed at one of these limits, since they were
    // made: only its growth says something.
    std::uint64_t out_of_memory = 0;
  };

  virtual ~MemoryLimits() = default;
  virtual absl::StatusOr<Reading> Read() const = 0;
};

class SystemMemoryLimits : public MemoryLimits {
 public:
  // Reads ROOT/proc/meminfo, ROOT/proc/self/cgroup and
  // ROOT/sys/fs/cgroup/...; "" is the machine itself, tests give a fixture
  // tree.
  explicit SystemMemoryLimits(std::string root = "");

  // Fails only where /proc/meminfo is missing or makes no sense. A cgroup whose
  // files are not there (a container sees its own as the root) is looked for at
  // the root of the hierarchy, and is no limit if it is not there either.
  absl::StatusOr<Reading> Read() const override;

 private:
  struct Limit {
    std::uint64_t limit_bytes;
    std::uint64_t used_bytes;
    // Behind the cgroup's name.
    std::string_view which;
  };
  // One level of a hierarchy; nullopt if it limits nothing.
  std::optional<Limit> ReadVersion2(std::string_view folder) const;
  std::optional<Limit> ReadVersion1(std::string_view folder) const;
  // Failed allocations at this level's own limits; 0 where nobody counts them.
  std::uint64_t OutOfMemoryVersion2(std::string_view folder) const;
  std::uint64_t OutOfMemoryVersion1(std::string_view folder) const;

  const std::string root_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_MEMORY_LIMITS_H_
