#include "server/io/device_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/io/block_device.h"

namespace firnkv {
namespace {

absl::Status Failed(const std::string& path, std::string_view what, int error) {
  return absl::ErrnoToStatus(error,
                             ToAbsl(StrCat("flash device ", path, ": ", what)));
}

absl::Status Refused(const std::string& path, std::string_view why) {
  return absl::FailedPreconditionError(
      StrCat("flash device ", path, ": ", why));
}

// A file that is new is nobody else's to read.
absl::Status Open(const std::string& path, DeviceFile* file) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
  int fd = ::open(path.c_str(), kFlags | O_DIRECT, 0600);
  if (fd < 0 && errno == EINVAL) {
    // The open flag that this filesystem refuses.
    file->direct = false;
    fd = ::open(path.c_str(), kFlags, 0600);
  }
  if (fd < 0) return Failed(path, "open", errno);
  file->descriptor = Descriptor(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Refused(path, "another process has it");
    return Failed(path, "lock", errno);
  }
  return absl::OkStatus();
}

absl::Status SizeBlockDevice(const DeviceFileOptions& options,
                             DeviceFile* file) {
  std::uint64_t bytes = 0;
  if (::ioctl(file->descriptor.get(), BLKGETSIZE64, &bytes) != 0) {
    return Failed(options.path, "size", errno);
  }
  if (options.bytes > bytes) {
    return Refused(options.path, StrCat("has ", bytes, " bytes, of ",
                                        options.bytes, " wanted"));
  }
  file->block_device = true;
  file->bytes = options.bytes == 0 ? bytes : options.bytes;
  return absl::OkStatus();
}

// Every byte is allocated now: a full filesystem is found at the start and not
// by a write.
absl::Status SizeFile(const DeviceFileOptions& options, const struct stat& was,
                      DeviceFile* file) {
  if (options.bytes == 0) {
    return absl::InvalidArgumentError(
        StrCat("flash device ", options.path, ": a file needs a size"));
  }
  const int fd = file->descriptor.get();
  struct statvfs free;
  if (::fstatvfs(fd, &free) != 0) {
    return Failed(options.path, "free space", errno);
  }
  const std::uint64_t there =
      std::uint64_t{free.f_bavail} * std::uint64_t{free.f_frsize};
  const std::uint64_t has = static_cast<std::uint64_t>(was.st_blocks) * 512;
  const std::uint64_t more = options.bytes > has ? options.bytes - has : 0;
  if (more > 0 && (more > there || there - more < options.reserve_bytes)) {
    return Refused(
        options.path,
        StrCat("its ", options.bytes, " bytes need ", more, " more, and of ",
               there, " free ones ", options.reserve_bytes,
               " are to be left: use a smaller size, or another filesystem"));
  }
  if (::fallocate(fd, 0, 0, static_cast<off_t>(options.bytes)) != 0) {
    return Failed(options.path, "allocate", errno);
  }
  file->bytes = options.bytes;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceFile> OpenDeviceFile(const DeviceFileOptions& options) {
  DeviceFile file;
  file.path = options.path;
  RETURN_IF_ERROR(Open(options.path, &file));
  struct stat was;
  if (::fstat(file.descriptor.get(), &was) != 0) {
    return Failed(options.path, "stat", errno);
  }
  file.fresh = S_ISREG(was.st_mode) && was.st_size == 0;
  if (S_ISBLK(was.st_mode)) {
    RETURN_IF_ERROR(SizeBlockDevice(options, &file));
  } else if (S_ISREG(was.st_mode)) {
    RETURN_IF_ERROR(SizeFile(options, was, &file));
  } else {
    return Refused(options.path, "is neither a file nor a block device");
  }
  file.bytes -= file.bytes % kDeviceAlignment;
  if (file.bytes == 0) {
    return absl::InvalidArgumentError(
        StrCat("flash device ", options.path, ": no room for a page"));
  }
  return file;
}

}  // namespace firnkv
