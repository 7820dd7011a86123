// Shared memory of production: memfds.
//
// What is sealed against what, and why, stands at MemoryKindWanted
// (shared_memory.h) and in rules P10 and S1. Everything made here has mode
// 0600, so that a process of another uid cannot reopen a descriptor that it was
// given; one of the same uid can, whatever the descriptor's own access is,
// which is why such sessions get none (rule P10).
//
// Threading. Any thread. Ownership: a mapping lives on without its memory, as
// mmap(2) does.

#ifndef FIRNKV_CLIENT_TRANSPORT_MEMFD_H_
#define FIRNKV_CLIENT_TRANSPORT_MEMFD_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/descriptor.h"
#include "client/transport/shared_memory.h"

namespace firnkv {

class MemfdMemory : public SharedMemory {
 public:
  // Takes over `fd`, made here.
  MemfdMemory(Descriptor fd, std::uint64_t bytes);

  // Takes over a descriptor that a peer sent. INVALID_ARGUMENT, and it is
  // closed, if it is not of a memfd that was made to be sealed, or is empty
  // (rule S4). That its seals are right is CheckStagingSeals' to say.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Adopt(Descriptor fd);

  std::uint64_t bytes() const override { return bytes_; }
  absl::StatusOr<std::unique_ptr<MemoryMapping>> Map(MapAccess access) override;
  // Shared, as all SharedMemory is, by its users and messages that carry it.
  absl::StatusOr<std::shared_ptr<SharedMemory>> ReopenReadOnly() override;
  absl::Status CheckStagingSeals() const override;
  absl::Status Punch(std::uint64_t offset, std::uint64_t length) override;
  absl::Status Populate() override;

  // For passing it on (unix_socket.h).
  int descriptor() const { return fd_.get(); }

 private:
  const Descriptor fd_;
  const std::uint64_t bytes_;
};

class MemfdMaker : public MemoryMaker {
 public:
  struct Options {
    // Takes regions that are a multiple of 2 MiB from the machine's pool of
    // huge pages while that has enough free, and from ordinary memory
    // otherwise. Pages of such a region are allocated when it is made. Off
    // unless the pool retires huge regions by rule P9, since touching a punched
    // huge page whose successor somebody else took is a SIGBUS.
    bool huge_pages = false;
  };

  MemfdMaker() = default;
  explicit MemfdMaker(const Options& options) : options_(options) {}

  // INVALID_ARGUMENT for kHeaderTable: only MakeHeaderTable can seal one.
  absl::StatusOr<std::shared_ptr<SharedMemory>> Make(
      MemoryKindWanted kind, std::string_view name,
      std::uint64_t bytes) override;

  absl::StatusOr<HeaderTable> MakeHeaderTable(std::string_view name,
                                              std::uint64_t bytes) override;

 private:
  Options options_;
};

// Nobody of the process's own uid may look into it from outside: no ptrace, no
// /proc/PID/fd, no core dump (rule P10). For the node, early in main.
absl::Status MakeUndumpable();

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_MEMFD_H_
