// A memory cgroup of a test, with a limit, for what the test starts in it. Of
// version 1 or 2, whichever the machine has; below the root of its hierarchy.
//
// Ownership. It goes with this value, so the processes in it must have ended
// before. Threading: the test's own thread.

#ifndef FIRNKV_TESTS_PROCESS_MEMORY_CGROUP_H_
#define FIRNKV_TESTS_PROCESS_MEMORY_CGROUP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace firnkv {

class MemoryCgroup {
 public:
  // Fails where this machine does not let us, and says why.
  static absl::StatusOr<std::unique_ptr<MemoryCgroup>> Make(
      std::uint64_t limit_bytes);
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;
  ~MemoryCgroup();

  std::string procs_file() const { return path_ + "/cgroup.procs"; }
  // How many of its processes the kernel has killed for want of memory.
  std::uint64_t Killed() const;

 private:
  explicit MemoryCgroup(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_MEMORY_CGROUP_H_
