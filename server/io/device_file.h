// Opens what a flash device lies in, a file or a block device, for the one
// process that may use it, and gives a file its size for good.
//
// Does not know what is in it, nor how transfers are made.
//
// Threading: functions that block in system calls; for a daemon's start.

#ifndef FIRNKV_SERVER_IO_DEVICE_FILE_H_
#define FIRNKV_SERVER_IO_DEVICE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/transport/descriptor.h"

namespace firnkv {

struct DeviceFileOptions {
  std::string path;
  // A file is made this long, every byte of it allocated (mandatory: a cap is
  // physical). Of a block device at most this much is used; 0: all of it.
  std::uint64_t bytes = 0;
  // Left free in the file's filesystem beside it (rule F5: others live there).
  std::uint64_t reserve_bytes = 0;
};

// An open one. Locked against every other process until it is closed.
struct DeviceFile {
  Descriptor descriptor;
  std::string path;
  // A multiple of kDeviceAlignment.
  std::uint64_t bytes = 0;
  // Transfers go past the page cache. False where the filesystem cannot: then
  // they are right, but copied once more and counted as this process's cache.
  bool direct = true;
  bool block_device = false;
  // There was no file, or an empty one.
  bool fresh = false;
};

// INVALID_ARGUMENT: a size that is none. FAILED_PRECONDITION: the cap is more
// than the free space less the reserve, another process has the device, or it
// is neither file nor block device. (A process that was killed may have it for
// some milliseconds more, until the kernel has taken its rings apart: try
// again.) RESOURCE_EXHAUSTED: the filesystem did not
// give what it had promised. A file that exists and is longer keeps its length,
// of which `bytes` are used; a shorter one grows.
absl::StatusOr<DeviceFile> OpenDeviceFile(const DeviceFileOptions& options);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_IO_DEVICE_FILE_H_
