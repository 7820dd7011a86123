#include "tests/process/memory_cgroup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "proto/base/text.h"

namespace firnkv {
namespace {

struct Version {
  const char* root;
  const char* limit_file;
  // Where the count stands behind "oom_kill".
  const char* events_file;
};
constexpr Version kVersions[] = {
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"},
    {"/sys/fs/cgroup", "memory.max", "memory.events"}};

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryCgroup>> MemoryCgroup::Make(
    std::uint64_t limit_bytes) {
  absl::Status failed = absl::UnavailableError("there is no memory cgroup");
  for (const Version& version : kVersions) {
    const std::string path = StrCat(version.root, "/firnkv-test.", getpid());
    if (mkdir(path.c_str(), 0755) != 0) {
      failed = absl::ErrnoToStatus(errno, path);
      continue;
    }
    auto group = std::unique_ptr<MemoryCgroup>(new MemoryCgroup(path));
    std::ofstream limit(path + "/" + version.limit_file);
    limit << limit_bytes << std::flush;
    if (limit.good()) return group;
    failed =
        absl::UnavailableError(StrCat(path, " takes no ", version.limit_file));
  }
  return failed;
}

MemoryCgroup::~MemoryCgroup() { rmdir(path_.c_str()); }

std::uint64_t MemoryCgroup::Killed() const {
  for (const Version& version : kVersions) {
    std::ifstream events(path_ + "/" + version.events_file);
    std::string name;
    std::uint64_t count = 0;
    while (events >> name >> count) {
      if (name == "oom_kill") return count;
    }
  }
  return 0;
}

}  // namespace firnkv
