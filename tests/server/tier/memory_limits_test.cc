// Rule P11: what the machine and its cgroups leave, read from a fixture tree.

#include "server/tier/memory_limits.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

class MemoryLimitsTest : public testing::Test {
 protected:
  MemoryLimitsTest()
      : root_(testing::TempDir() + "/limits_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    Put("/proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree:         1000 kB\n"
        "MemAvailable:    8388608 kB\n");
  }
  ~MemoryLimitsTest() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void PutVersion2(const std::string& folder, const std::string& max,
                   std::uint64_t current, std::uint64_t inactive_file = 0) {
    const std::string at = "/sys/fs/cgroup" + folder;
    Put(at + "/memory.max", max + "\n");
    Put(at + "/memory.current", std::to_string(current) + "\n");
    Put(at + "/memory.stat", "anon 5\ninactive_file " +
                                 std::to_string(inactive_file) + "\nfile 9\n");
  }
  MemoryLimits::Reading Read() {
    auto reading = SystemMemoryLimits(root_).Read();
    EXPECT_OK(reading);
    return reading.ok() ? *reading : MemoryLimits::Reading{};
  }

  const std::string root_;
};

TEST_F(MemoryLimitsTest, WithoutCgroupsTheMachineIsTheLimit) {
  EXPECT_EQ(Read().available_bytes, 8 * kGiB);
  EXPECT_EQ(Read().limited_by, "the machine");
}

TEST_F(MemoryLimitsTest, ACgroupOfVersion2LimitsByWhatItHasLeft) {
  Put("/proc/self/cgroup", "0::/firnkv.service\n");
  PutVersion2("/firnkv.service", "4294967296", kGiB);

  const MemoryLimits::Reading reading = Read();

  EXPECT_EQ(reading.available_bytes, 3 * kGiB);
  EXPECT_EQ(reading.limit_bytes, 4 * kGiB);
  EXPECT_EQ(reading.limited_by, "cgroup v2 /firnkv.service");
}

TEST_F(MemoryLimitsTest, MaxIsNoLimit) {
  Put("/proc/self/cgroup", "0::/a\n");
  PutVersion2("/a", "max", kGiB);

  EXPECT_EQ(Read().limited_by, "the machine");
}

TEST_F(MemoryLimitsTest, TheTightestAncestorCounts) {
  Put("/proc/self/cgroup", "0::/pods/a/b\n");
  PutVersion2("/pods/a/b", "max", 0);
  PutVersion2("/pods/a", "3221225472", kGiB);
  PutVersion2("/pods", "2147483648", 2 * kGiB - kMiB);

  const MemoryLimits::Reading reading = Read();

  EXPECT_EQ(reading.available_bytes, kMiB);
  EXPECT_EQ(reading.limited_by, "cgroup v2 /pods");
}

TEST_F(MemoryLimitsTest, CleanPageCacheDoesNotCountAsUsed) {
  Put("/proc/self/cgroup", "0::/a\n");
  PutVersion2("/a", "2147483648", 2 * kGiB, kGiB);

  EXPECT_EQ(Read().available_bytes, kGiB);
}

// Page cache in use counts, and so does the arena itself, which is shared
// memory: `file`, and never inactive_file.
TEST_F(MemoryLimitsTest, WhatIsInUseCountsAsUsedThoughItIsOfFiles) {
  Put("/proc/self/cgroup", "0::/a\n");
  PutVersion2("/a", "2147483648", 2 * kGiB, kMiB);
  Put("/sys/fs/cgroup/a/memory.stat",
      "anon 5\nfile 2000000000\nshmem 1500000000\ninactive_anon 700000000\n"
      "active_file 400000000\ninactive_file 1048576\n");

  EXPECT_EQ(Read().available_bytes, kMiB);
}

// Beyond `high` everybody in the cgroup is throttled.
TEST_F(MemoryLimitsTest, HighLimitsBeforeMaxDoes) {
  Put("/proc/self/cgroup", "0::/pods/a\n");
  PutVersion2("/pods/a", "4294967296", kGiB);
  PutVersion2("/pods", "max", kGiB);
  Put("/sys/fs/cgroup/pods/memory.high", "2147483648\n");
  Put("/sys/fs/cgroup/pods/a/memory.high", "max\n");

  const MemoryLimits::Reading reading = Read();

  EXPECT_EQ(reading.available_bytes, kGiB);
  EXPECT_EQ(reading.limit_bytes, 2 * kGiB);
  EXPECT_EQ(reading.limited_by, "cgroup v2 /pods, memory.high");
}

// A cgroup whose clean page cache has reached its limit counts `max` and `high`
// up all the time: that is no pressure.
TEST_F(MemoryLimitsTest, OnlyFailedAllocationsAtAnOwnLimitArePressure) {
  Put("/proc/self/cgroup", "0::/pods/a\n");
  PutVersion2("/pods/a", "2147483648", kGiB);
  Put("/sys/fs/cgroup/pods/a/memory.events.local",
      "low 0\nhigh 70\nmax 900\noom 2\noom_kill 1\n");
  // Of a sibling too: it counts up to every ancestor.
  Put("/sys/fs/cgroup/pods/memory.events", "high 70\nmax 900\noom 40\n");
  Put("/sys/fs/cgroup/pods/memory.events.local", "high 0\nmax 0\noom 3\n");

  EXPECT_EQ(Read().out_of_memory, 5u);
}

TEST_F(MemoryLimitsTest, UsageOverTheLimitLeavesNothing) {
  Put("/proc/self/cgroup", "0::/a\n");
  PutVersion2("/a", "1073741824", 2 * kGiB);

  EXPECT_EQ(Read().available_bytes, 0u);
}

// A container sees its own cgroup as the root of the hierarchy, while
// /proc/self/cgroup may name the host's path.
TEST_F(MemoryLimitsTest, AContainersLimitIsFoundAtTheRoot) {
  Put("/proc/self/cgroup", "0::/kubepods/pod1/container2\n");
  PutVersion2("", "1073741824", 0);

  const MemoryLimits::Reading reading = Read();

  EXPECT_EQ(reading.available_bytes, kGiB);
  EXPECT_EQ(reading.limited_by, "cgroup v2 /");
}

TEST_F(MemoryLimitsTest, ACgroupOfVersion1LimitsToo) {
  Put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
  const std::string at = "/sys/fs/cgroup/memory/docker/abc";
  Put(at + "/memory.limit_in_bytes", "2147483648\n");
  Put(at + "/memory.usage_in_bytes", "2147483648\n");
  Put(at + "/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\n");
  // The root says "no limit" as a number.
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "12345\n");

  const MemoryLimits::Reading reading = Read();

  EXPECT_EQ(reading.available_bytes, kMiB);
  EXPECT_EQ(reading.limited_by, "cgroup v1 /docker/abc");
}

// A container of version 1 cannot see its pod's cgroup, but its limit.
TEST_F(MemoryLimitsTest, AnInvisibleAncestorOfVersion1LimitsToo) {
  Put("/proc/self/cgroup", "4:memory:/\n");
  const std::string at = "/sys/fs/cgroup/memory";
  Put(at + "/memory.limit_in_bytes", "9223372036854771712\n");
  Put(at + "/memory.usage_in_bytes", "1073741824\n");
  Put(at + "/memory.stat", "hierarchical_memory_limit 2147483648\n");
  Put(at + "/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");

  const MemoryLimits::Reading reading = Read();

  EXPECT_EQ(reading.available_bytes, kGiB);
  EXPECT_EQ(reading.limited_by, "cgroup v1 /, an ancestor of it");
  EXPECT_EQ(reading.out_of_memory, 4u);
}

TEST_F(MemoryLimitsTest, FilesThatMakeNoSenseAreNoLimit) {
  Put("/proc/self/cgroup", "rubbish\n0::\n::::\n4:memory\n");
  PutVersion2("", "many", 1);

  EXPECT_EQ(Read().limited_by, "the machine");
}

TEST_F(MemoryLimitsTest, WithoutMeminfoThereIsNoReading) {
  std::filesystem::remove(root_ + "/proc/meminfo");

  EXPECT_THAT(SystemMemoryLimits(root_).Read(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(MemoryLimitsTest, TheMachineItselfCanBeRead) {
  const auto reading = SystemMemoryLimits().Read();

  ASSERT_OK(reading);
  EXPECT_GT(reading->available_bytes, 0u);
}

}  // namespace
}  // namespace firnkv
