// What can, and what cannot, be done to shared memory by whoever holds a
// descriptor of it.

#include "client/transport/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"
#include "tests/client/transport/process_state.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kBytes = kMiB;
// Any uid but our own and the overflow uid.
constexpr uid_t kOtherUid = 64321;

int DescriptorOf(const SharedMemory& memory) {
  return dynamic_cast<const MemfdMemory&>(memory).descriptor();
}
std::string PathOf(const SharedMemory& memory) {
  return StrCat("/proc/self/fd/", DescriptorOf(memory));
}
struct stat StatOf(const SharedMemory& memory) {
  struct stat stat = {};
  fstat(DescriptorOf(memory), &stat);
  return stat;
}
bool MapsForWriting(int fd) {
  void* const address =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return false;
  munmap(address, kBytes);
  return true;
}
std::uint64_t AllocatedBytes(const SharedMemory& memory) {
  return static_cast<std::uint64_t>(StatOf(memory).st_blocks) * 512;
}

class MemfdTest : public testing::Test {
 protected:
  std::shared_ptr<SharedMemory> Make(MemoryKindWanted kind) {
    return *maker_.Make(kind, "test", kBytes);
  }
  // As a client would that we did not write.
  static Descriptor Foreign(unsigned flags) {
    Descriptor fd(memfd_create("foreign", MFD_CLOEXEC | flags));
    EXPECT_EQ(ftruncate(fd.get(), kBytes), 0);
    return fd;
  }

  MemfdMaker maker_;
};

TEST_F(MemfdTest, WhatOneMappingWritesAnotherReads) {
  const auto region = Make(MemoryKindWanted::kRegion);
  const auto writable = *region->Map(MapAccess::kReadWrite);
  const auto readable = *region->Map(MapAccess::kRead);

  writable->bytes()[kBytes - 1] = std::byte{42};

  EXPECT_EQ(readable->bytes()[kBytes - 1], std::byte{42});
}

TEST_F(MemfdTest, AMappingOutlivesItsMemory) {
  auto region = Make(MemoryKindWanted::kRegion);
  const auto writable = *region->Map(MapAccess::kReadWrite);

  region.reset();

  writable->bytes()[0] = std::byte{1};
  EXPECT_EQ(writable->bytes()[0], std::byte{1});
}

// Rule P10.
TEST_F(MemfdTest, ARegionCannotShrinkGrowOrGetFurtherSeals) {
  const auto region = Make(MemoryKindWanted::kRegion);
  const int fd = DescriptorOf(*region);

  EXPECT_NE(ftruncate(fd, kBytes / 2), 0);
  EXPECT_NE(ftruncate(fd, kBytes * 2), 0);
  // Who could add this would stop the node's own writes.
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  EXPECT_EQ(errno, EPERM);
}

// Rule P10.
TEST_F(MemfdTest, ARegionIsItsOwnersAlone) {
  const auto region = Make(MemoryKindWanted::kRegion);

  EXPECT_EQ(StatOf(*region).st_mode & 07777, 0600u);
}

// Rule P10.
TEST_F(MemfdTest, AReopenedDescriptorMapsForReadingOnly) {
  const auto region = Make(MemoryKindWanted::kRegion);
  const auto writable = *region->Map(MapAccess::kReadWrite);
  writable->bytes()[7] = std::byte{7};

  const auto reopened = *region->ReopenReadOnly();

  EXPECT_EQ((*reopened->Map(MapAccess::kRead))->bytes()[7], std::byte{7});
  EXPECT_EQ(reopened->Map(MapAccess::kReadWrite).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_NE(mprotect((*reopened->Map(MapAccess::kRead))->bytes().data(), kBytes,
                     PROT_READ | PROT_WRITE),
            0);
}

// Rule P10: a reader of another uid, which is what the node insists on.
TEST_F(MemfdTest, AReaderOfAnotherUidCannotReopenItForWriting) {
  if (geteuid() != 0) GTEST_SKIP() << "changing the uid takes root";
  const auto region = Make(MemoryKindWanted::kRegion);
  const auto reopened = *region->ReopenReadOnly();
  const std::string path = PathOf(*reopened);

  const int status = InAChild([&] {
    if (setgid(kOtherUid) != 0 || setuid(kOtherUid) != 0) return 1;
    if (open(path.c_str(), O_RDWR) >= 0) return 2;
    if (errno != EACCES) return 3;
    if (MapsForWriting(DescriptorOf(*reopened))) return 4;
    if (fallocate(DescriptorOf(*reopened),
                  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes) == 0) {
      return 5;
    }
    if (fchmod(DescriptorOf(*reopened), 0666) == 0) return 6;
    return 0;
  });

  EXPECT_EQ(status, 0);
}

// Rule P10: the attack for whose sake sessions of the node's own uid get no
// mapping. If this ever fails, the kernel has closed the gap, and the rule may
// be relaxed.
TEST_F(MemfdTest, AReaderOfTheSameUidReopensItForWriting) {
  const auto region = Make(MemoryKindWanted::kRegion);
  const auto reopened = *region->ReopenReadOnly();

  const Descriptor stolen(open(PathOf(*reopened).c_str(), O_RDWR));

  ASSERT_TRUE(stolen.valid());
  EXPECT_TRUE(MapsForWriting(stolen.get()));
}

// Rule P10.
TEST_F(MemfdTest, AHeaderTableCanNeverBeMappedForWritingAgain) {
  const auto table = *maker_.MakeHeaderTable("headers", kBytes);

  EXPECT_FALSE(table.memory->Map(MapAccess::kReadWrite).ok());
  // Not even by the same uid through another descriptor.
  const Descriptor stolen(open(PathOf(*table.memory).c_str(), O_RDWR));
  ASSERT_TRUE(stolen.valid());
  EXPECT_FALSE(MapsForWriting(stolen.get()));
  EXPECT_LT(write(stolen.get(), "x", 1), 0);
  EXPECT_NE(fallocate(stolen.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      0, kBytes),
            0);
}

TEST_F(MemfdTest, WhatTheMakerWritesIntoAHeaderTableReadersSee) {
  const auto table = *maker_.MakeHeaderTable("headers", kBytes);
  const auto reopened = *table.memory->ReopenReadOnly();
  const auto readable = *reopened->Map(MapAccess::kRead);

  table.writable->bytes()[3] = std::byte{9};

  EXPECT_EQ(readable->bytes()[3], std::byte{9});
}

TEST_F(MemfdTest, AHeaderTableIsMadeWithItsMappingOrNotAtAll) {
  EXPECT_EQ(maker_.Make(MemoryKindWanted::kHeaderTable, "test", kBytes)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

// Rule P10: what a node that nobody can look into still must be able to do.
TEST_F(MemfdTest, AnUndumpableProcessOfAnyUidReopensItsOwnMemory) {
  if (geteuid() != 0) GTEST_SKIP() << "changing the uid takes root";

  const int status = InAChild([this] {
    if (setgid(kOtherUid) != 0 || setuid(kOtherUid) != 0) return 1;
    if (!MakeUndumpable().ok()) return 2;
    if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0) return 3;
    auto region = maker_.Make(MemoryKindWanted::kRegion, "test", kBytes);
    if (!region.ok()) return 4;
    return (*region)->ReopenReadOnly().ok() ? 0 : 5;
  });

  EXPECT_EQ(status, 0);
}

// Rule S1.
TEST_F(MemfdTest, StagingOfOurOwnMakingPassesItsCheck) {
  const auto staging = Make(MemoryKindWanted::kStaging);

  EXPECT_EQ(staging->CheckStagingSeals(), absl::OkStatus());
}

// Rule S1.
TEST_F(MemfdTest, StagingThatCanShrinkIsRefused) {
  Descriptor fd = Foreign(MFD_ALLOW_SEALING);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  const auto staging = *MemfdMemory::Adopt(std::move(fd));

  EXPECT_EQ(staging->CheckStagingSeals().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Rule S1.
TEST_F(MemfdTest, StagingThatCanGrowIsRefused) {
  Descriptor fd = Foreign(MFD_ALLOW_SEALING);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const auto staging = *MemfdMemory::Adopt(std::move(fd));

  EXPECT_EQ(staging->CheckStagingSeals().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Rule S1: else its mapping ends in SIGBUS.
TEST_F(MemfdTest, StagingThatShrankBeforeItWasSealedIsRefused) {
  Descriptor fd = Foreign(MFD_ALLOW_SEALING);
  const Descriptor kept(dup(fd.get()));
  const auto staging = *MemfdMemory::Adopt(std::move(fd));
  ASSERT_EQ(ftruncate(kept.get(), kPageBytes), 0);
  ASSERT_EQ(fcntl(kept.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);

  EXPECT_EQ(staging->CheckStagingSeals().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Rule S1.
TEST_F(MemfdTest, StagingOfHugePagesIsRefused) {
  Descriptor fd(memfd_create("huge", MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd.valid()) GTEST_SKIP() << "this kernel has no huge pages";
  ASSERT_EQ(ftruncate(fd.get(), 2 * kMiB), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const auto staging = *MemfdMemory::Adopt(std::move(fd));

  EXPECT_EQ(staging->CheckStagingSeals().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Rule S4.
TEST_F(MemfdTest, WhatIsNoMemoryIsNotAdopted) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Descriptor other_end(ends[1]);

  EXPECT_FALSE(MemfdMemory::Adopt(Descriptor(ends[0])).ok());
  EXPECT_FALSE(
      MemfdMemory::Adopt(Descriptor(open("/proc/self/exe", O_RDONLY))).ok());
  EXPECT_FALSE(MemfdMemory::Adopt(Descriptor()).ok());
}

// Rule S4: it could be shrunk at any time, and never be sealed.
TEST_F(MemfdTest, AFileOfAMemoryFilesystemIsNotAdopted) {
  Descriptor file(open("/dev/shm", O_TMPFILE | O_RDWR, 0600));
  if (!file.valid()) GTEST_SKIP() << "there is no /dev/shm";
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);

  EXPECT_FALSE(MemfdMemory::Adopt(std::move(file)).ok());
}

TEST_F(MemfdTest, AMemfdThatCannotBeSealedIsNotAdopted) {
  EXPECT_FALSE(MemfdMemory::Adopt(Foreign(0)).ok());
}

TEST_F(MemfdTest, AnEmptyMemfdIsNotAdopted) {
  EXPECT_FALSE(
      MemfdMemory::Adopt(Descriptor(memfd_create("e", MFD_ALLOW_SEALING)))
          .ok());
}

TEST_F(MemfdTest, APunchedRangeReadsAsZerosAndGivesItsPagesBack) {
  const auto region = Make(MemoryKindWanted::kRegion);
  const auto writable = *region->Map(MapAccess::kReadWrite);
  std::memset(writable->bytes().data(), 0xab, kBytes);
  const std::uint64_t full = AllocatedBytes(*region);

  ASSERT_EQ(region->Punch(kPageBytes, 2 * kPageBytes), absl::OkStatus());

  EXPECT_EQ(AllocatedBytes(*region), full - 2 * kPageBytes);
  EXPECT_EQ(writable->bytes()[kPageBytes - 1], std::byte{0xab});
  EXPECT_EQ(writable->bytes()[kPageBytes], std::byte{0});
  EXPECT_EQ(writable->bytes()[3 * kPageBytes - 1], std::byte{0});
  EXPECT_EQ(writable->bytes()[3 * kPageBytes], std::byte{0xab});
}

TEST_F(MemfdTest, APunchBeyondTheEndIsRefused) {
  const auto region = Make(MemoryKindWanted::kRegion);

  EXPECT_EQ(region->Punch(kBytes - 1, 2).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(region->Punch(~std::uint64_t{0}, 2).code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(MemfdTest, PopulateAllocatesEveryPage) {
  const auto region = Make(MemoryKindWanted::kRegion);
  ASSERT_EQ(AllocatedBytes(*region), 0u);

  ASSERT_EQ(region->Populate(), absl::OkStatus());

  EXPECT_EQ(AllocatedBytes(*region), kBytes);
}

TEST_F(MemfdTest, WithoutDescriptorsMemoryIsExhausted) {
  if (!kCanRunOutOfDescriptors) GTEST_SKIP();
  const OutOfDescriptors out;

  EXPECT_EQ(
      maker_.Make(MemoryKindWanted::kRegion, "test", kBytes).status().code(),
      absl::StatusCode::kResourceExhausted);
}

TEST_F(MemfdTest, MemoryOfNoBytesAndOfTooManyIsRefused) {
  EXPECT_FALSE(maker_.Make(MemoryKindWanted::kRegion, "test", 0).ok());
  EXPECT_FALSE(
      maker_.Make(MemoryKindWanted::kRegion, "test", ~std::uint64_t{0}).ok());
}

// With a pool of huge pages it takes those, without one it does as well.
TEST_F(MemfdTest, WhereHugePagesAreWantedARegionIsMadeEitherWay) {
  MemfdMaker maker({.huge_pages = true});

  const auto region = *maker.Make(MemoryKindWanted::kRegion, "test", 4 * kMiB);

  const auto writable = *region->Map(MapAccess::kReadWrite);
  writable->bytes()[4 * kMiB - 1] = std::byte{5};
  EXPECT_EQ(region->bytes(), 4 * kMiB);
  EXPECT_EQ(region->Populate(), absl::OkStatus());
}

TEST_F(MemfdTest, NoDescriptorIsLeftBehind) {
  const std::size_t before = DescriptorsOfThisProcess();

  {
    const auto region = Make(MemoryKindWanted::kRegion);
    const auto reopened = *region->ReopenReadOnly();
    const auto table = *maker_.MakeHeaderTable("headers", kBytes);
    EXPECT_EQ(DescriptorsOfThisProcess(), before + 3);
  }

  EXPECT_EQ(DescriptorsOfThisProcess(), before);
}

// A view's addresses under check_views.
TEST_F(MemfdTest, AnAliasShowsTheSameBytesElsewhereUntilItIsRevoked) {
  const auto memory = Make(MemoryKindWanted::kRegion);
  const auto writable = *memory->Map(MapAccess::kReadWrite);
  const auto readable = *(*memory->ReopenReadOnly())->Map(MapAccess::kRead);
  const auto alias = readable->Alias(2 * kPageBytes, 5000);
  ASSERT_NE(alias, nullptr);
  const std::byte* const place = alias->bytes().data();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Descriptor out(pipe_ends[0]);
  const Descriptor in(pipe_ends[1]);

  writable->bytes()[2 * kPageBytes + 4999] = std::byte{9};
  EXPECT_EQ(alias->bytes().size(), 5000u);
  EXPECT_EQ(alias->bytes()[4999], std::byte{9});
  EXPECT_NE(place, readable->bytes().data() + 2 * kPageBytes);
  // Readable and no more. A system call says EFAULT where we would die.
  EXPECT_EQ(write(in.get(), place, 1), 1);
  EXPECT_EQ(read(out.get(), const_cast<std::byte*>(place), 1), -1);
  alias->Revoke();

  EXPECT_EQ(write(in.get(), place, 1), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(readable->bytes()[2 * kPageBytes + 4999], std::byte{9});
}

TEST_F(MemfdTest, AnAliasOfWhatIsNotThereIsNone) {
  const auto mapping = *Make(MemoryKindWanted::kRegion)->Map(MapAccess::kRead);

  EXPECT_EQ(mapping->Alias(0, 0), nullptr);
  EXPECT_EQ(mapping->Alias(8, 64), nullptr);
  EXPECT_EQ(mapping->Alias(kBytes, 1), nullptr);
  EXPECT_EQ(mapping->Alias(kPageBytes, kBytes), nullptr);
}

}  // namespace
}  // namespace firnkv
