// Where a caller's buffer is.

#ifndef FIRNKV_CLIENT_MEMORY_KIND_H_
#define FIRNKV_CLIENT_MEMORY_KIND_H_

#include <cstddef>
#include <cstdint>

namespace firnkv {

enum class MemoryKind : std::uint8_t {
  kHost = 0,
  // Host memory that a device can reach without a bounce.
  kPageLocked = 1,
  // A device's own. Refused with INVALID_ARGUMENT by a build without devices.
  kDevice = 2,
};

// A piece of the caller's memory to read into.
struct Buffer {
  std::byte* address = nullptr;
  std::size_t length = 0;
  MemoryKind kind = MemoryKind::kHost;
};

// A piece of the caller's memory to write from. Memory of
// Client::AllocateShared is written from without a copy of the SDK's own.
struct ConstBuffer {
  const std::byte* address = nullptr;
  std::size_t length = 0;
  MemoryKind kind = MemoryKind::kHost;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_MEMORY_KIND_H_
