#include "client/transport/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

// Of Linux 6.3; Debian 12's headers are older.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
// Of <linux/memfd.h>, which clashes with <sys/mman.h>.
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

namespace firnkv {
namespace {

constexpr std::uint64_t kHugePageBytes = 2 * kMiB;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// fallocate(2) undoes all of its work when a signal comes, so it is done in
// parts that one is unlikely to come within again and again.
constexpr std::uint64_t kPopulateBytes = 16 * kMiB;

class Mapping : public MemoryMapping {
 public:
  Mapping(void* address, std::uint64_t bytes)
      : bytes_(static_cast<std::byte*>(address), bytes) {}
  ~Mapping() override { munmap(bytes_.data(), bytes_.size()); }

  absl::Span<std::byte> bytes() const override { return bytes_; }

  // mremap of nothing of a shared mapping makes a second one of the same pages.
  // It moves onto addresses that mmap has given out, so that sanitizers, which
  // watch mmap alone, know them as new.
  std::unique_ptr<MemoryMapping> Alias(std::uint64_t offset,
                                       std::uint64_t bytes) const override {
    if (bytes == 0 || offset % kPageBytes != 0 || offset > bytes_.size() ||
        bytes > bytes_.size() - offset) {
      return nullptr;
    }
    void* const place =
        mmap(nullptr, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return nullptr;
    if (mremap(bytes_.data() + offset, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               place) == MAP_FAILED) {
      munmap(place, bytes);
      return nullptr;
    }
    return std::make_unique<Mapping>(place, bytes);
  }

  void Revoke() override {
    // Where the kernel has no room for it, they fault all the same, later.
    mmap(bytes_.data(), bytes_.size(), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }

 private:
  const absl::Span<std::byte> bytes_;
};

// Out of memory is the same to callers by whichever name the kernel says it.
absl::Status MemoryStatus(int error, std::string_view what) {
  if (error == ENOSPC || error == ENOMEM || error == EMFILE ||
      error == ENFILE) {
    return absl::ResourceExhaustedError(
        absl::ErrnoToStatus(error, ToAbsl(what)).message());
  }
  return absl::ErrnoToStatus(error, ToAbsl(what));
}

absl::Status Allocate(int fd, std::uint64_t bytes) {
  for (std::uint64_t offset = 0; offset < bytes; offset += kPopulateBytes) {
    const std::uint64_t length = std::min(kPopulateBytes, bytes - offset);
    while (fallocate(fd, 0, static_cast<off_t>(offset),
                     static_cast<off_t>(length)) != 0) {
      if (errno == EINTR) continue;
      return MemoryStatus(
          errno, StrCat("allocate ", bytes, " bytes of shared memory"));
    }
  }
  return absl::OkStatus();
}

bool HugePagesAreFree(std::uint64_t bytes) {
  if (bytes % kHugePageBytes != 0) return false;
  const auto read = [](const char* name) {
    std::ifstream file(
        StrCat("/sys/kernel/mm/hugepages/hugepages-2048kB/", name));
    std::uint64_t value = 0;
    file >> value;
    return value;
  };
  return read("free_hugepages") >=
         read("resv_hugepages") + bytes / kHugePageBytes;
}

// An empty memfd with mode 0600 that can be sealed.
absl::StatusOr<Descriptor> MakeFile(std::string_view name, unsigned flags) {
  const std::string text(name);
  flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor fd(memfd_create(text.c_str(), flags | MFD_NOEXEC_SEAL));
  // A kernel before 6.3.
  if (!fd.valid() && errno == EINVAL) {
    fd = Descriptor(memfd_create(text.c_str(), flags));
  }
  if (!fd.valid()) {
    return MemoryStatus(errno, StrCat("memfd_create ", name));
  }
  if (fchmod(fd.get(), 0600) != 0) {
    return MemoryStatus(errno, StrCat("fchmod of memfd ", name));
  }
  return fd;
}

absl::Status Resize(int fd, std::uint64_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return absl::OkStatus();
  return MemoryStatus(errno, StrCat("memfd of ", bytes, " bytes"));
}

absl::Status Seal(int fd, int seals) {
  if (fcntl(fd, F_ADD_SEALS, seals) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "seal a memfd");
}

// Fails where the pool of huge pages has no room after all.
absl::StatusOr<Descriptor> MakeHugeFile(std::string_view name,
                                        std::uint64_t bytes) {
  ASSIGN_OR_RETURN(Descriptor fd, MakeFile(name, MFD_HUGETLB | MFD_HUGE_2MB));
  RETURN_IF_ERROR(Resize(fd.get(), bytes));
  RETURN_IF_ERROR(Allocate(fd.get(), bytes));
  return fd;
}

absl::StatusOr<Descriptor> MakePlainFile(std::string_view name,
                                         std::uint64_t bytes) {
  if (bytes == 0) {
    return absl::InvalidArgumentError(
        StrCat("shared memory ", name, " of no bytes"));
  }
  ASSIGN_OR_RETURN(Descriptor fd, MakeFile(name, 0));
  RETURN_IF_ERROR(Resize(fd.get(), bytes));
  return fd;
}

}  // namespace

MemfdMemory::MemfdMemory(Descriptor fd, std::uint64_t bytes)
    : fd_(std::move(fd)), bytes_(bytes) {}

// Only files in memory have seals at all, and of those a file of tmpfs, or a
// memfd that was not made to be sealed, is born with F_SEAL_SEAL and nothing
// else, and can get no other.
absl::StatusOr<std::shared_ptr<SharedMemory>> MemfdMemory::Adopt(
    Descriptor fd) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || seals == F_SEAL_SEAL) {
    return absl::InvalidArgumentError(
        "the descriptor is not of a memfd that can be sealed");
  }
  struct stat stat = {};
  if (fstat(fd.get(), &stat) != 0) return absl::ErrnoToStatus(errno, "fstat");
  if (stat.st_size <= 0) {
    return absl::InvalidArgumentError("the memfd is empty");
  }
  // Shared by whoever maps it and messages that carry it, here and below.
  return std::make_shared<MemfdMemory>(
      std::move(fd), static_cast<std::uint64_t>(stat.st_size));
}

absl::StatusOr<std::unique_ptr<MemoryMapping>> MemfdMemory::Map(
    MapAccess access) {
  int protection = PROT_READ;
  if (access == MapAccess::kReadWrite) protection |= PROT_WRITE;
  void* const address =
      mmap(nullptr, bytes_, protection, MAP_SHARED, fd_.get(), 0);
  if (address == MAP_FAILED) {
    return MemoryStatus(errno, StrCat("map ", bytes_, " bytes"));
  }
  // Advice, so what the kernel thinks of it does not matter: large pages where
  // the machine gives them to shared memory, and no tenant's bytes in a core
  // dump of whoever maps them.
  madvise(address, bytes_, MADV_HUGEPAGE);
  madvise(address, bytes_, MADV_DONTDUMP);
  return std::make_unique<Mapping>(address, bytes_);
}

absl::StatusOr<std::shared_ptr<SharedMemory>> MemfdMemory::ReopenReadOnly() {
  Descriptor reopened(
      open(StrCat("/proc/self/fd/", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!reopened.valid()) {
    return MemoryStatus(errno, "reopen shared memory for reading");
  }
  // Shared: see Adopt.
  return std::make_shared<MemfdMemory>(std::move(reopened), bytes_);
}

absl::Status MemfdMemory::CheckStagingSeals() const {
  const int seals = fcntl(fd_.get(), F_GET_SEALS);
  if (seals < 0) return absl::ErrnoToStatus(errno, "F_GET_SEALS");
  if ((seals & kSizeSeals) != kSizeSeals) {
    return absl::FailedPreconditionError(
        "staging is not sealed against shrinking and growing");
  }
  struct statfs file_system = {};
  if (fstatfs(fd_.get(), &file_system) != 0) {
    return absl::ErrnoToStatus(errno, "fstatfs");
  }
  if (file_system.f_type != TMPFS_MAGIC) {
    return absl::FailedPreconditionError(file_system.f_type == HUGETLBFS_MAGIC
                                             ? "staging is of huge pages"
                                             : "staging is not a memfd");
  }
  struct stat stat = {};
  if (fstat(fd_.get(), &stat) != 0) return absl::ErrnoToStatus(errno, "fstat");
  // What is sealed now may have been resized between Adopt and its sealing.
  if (static_cast<std::uint64_t>(stat.st_size) != bytes_) {
    return absl::FailedPreconditionError(
        StrCat("staging has ", stat.st_size, " bytes and had ", bytes_));
  }
  return absl::OkStatus();
}

absl::Status MemfdMemory::Punch(std::uint64_t offset, std::uint64_t length) {
  if (offset > bytes_ || length > bytes_ - offset) {
    return absl::OutOfRangeError(
        StrCat("punch ", length, " bytes at ", offset, " of ", bytes_));
  }
  if (length == 0) return absl::OkStatus();
  while (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(offset),
                   static_cast<off_t>(length)) != 0) {
    if (errno != EINTR) return MemoryStatus(errno, "punch shared memory");
  }
  return absl::OkStatus();
}

absl::Status MemfdMemory::Populate() { return Allocate(fd_.get(), bytes_); }

absl::StatusOr<std::shared_ptr<SharedMemory>> MemfdMaker::Make(
    MemoryKindWanted kind, std::string_view name, std::uint64_t bytes) {
  int seals = kSizeSeals;
  absl::StatusOr<Descriptor> fd = absl::UnavailableError("no huge pages");
  switch (kind) {
    case MemoryKindWanted::kRegion:
      seals |= F_SEAL_SEAL;
      if (options_.huge_pages && bytes > 0 && HugePagesAreFree(bytes)) {
        fd = MakeHugeFile(name, bytes);
      }
      break;
    case MemoryKindWanted::kHeaderTable:
      return absl::InvalidArgumentError(
          "a header table is made by MakeHeaderTable");
    case MemoryKindWanted::kStaging:
      break;
  }
  if (!fd.ok()) fd = MakePlainFile(name, bytes);
  if (!fd.ok()) return fd.status();
  RETURN_IF_ERROR(Seal(fd->get(), seals));
  // Shared: see Adopt.
  return std::make_shared<MemfdMemory>(*std::move(fd), bytes);
}

absl::StatusOr<MemoryMaker::HeaderTable> MemfdMaker::MakeHeaderTable(
    std::string_view name, std::uint64_t bytes) {
  ASSIGN_OR_RETURN(Descriptor fd, MakePlainFile(name, bytes));
  const int raw = fd.get();
  // Shared: see Adopt.
  auto memory = std::make_shared<MemfdMemory>(std::move(fd), bytes);
  // The size first: what is mapped must not go away beneath the mapping. Then
  // the one mapping, then the seal that it alone escapes.
  RETURN_IF_ERROR(Seal(raw, kSizeSeals));
  ASSIGN_OR_RETURN(std::unique_ptr<MemoryMapping> writable,
                   memory->Map(MapAccess::kReadWrite));
  RETURN_IF_ERROR(Seal(raw, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL));
  return HeaderTable{.memory = std::move(memory),
                     .writable = std::move(writable)};
}

absl::Status MakeUndumpable() {
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "PR_SET_DUMPABLE");
}

}  // namespace firnkv
