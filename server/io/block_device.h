// A block device or file as the flash tier sees it: aligned reads and writes
// that complete later. A seam: io_uring in production, SimDevice in tests,
// which tears writes, lies, stalls and fails.
//
// Threading. All methods from any thread. Every `done` runs exactly once, on
// the device's completion thread, under no lock; it must not block.
//
// Ownership. Memory stays the device's until `done`: an issued transfer cannot
// be recalled.

#ifndef FIRNKV_SERVER_IO_BLOCK_DEVICE_H_
#define FIRNKV_SERVER_IO_BLOCK_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace firnkv {

// Offsets, lengths and addresses are multiples of this: the largest logical
// block of the devices we know, and a page.
inline constexpr std::uint64_t kDeviceAlignment = 4096;

class BlockDevice {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  // Every `done` has run.
  virtual ~BlockDevice() = default;

  virtual std::uint64_t bytes() const = 0;

  // Reads all of `into`; a short read, and one of 0 bytes, is DATA_LOSS: a
  // controller that has gone answers so.
  virtual void StartRead(std::uint64_t offset, absl::Span<std::byte> into,
                         Done done) = 0;

  // Not durable until a flush that began after `done` has ended OK.
  virtual void StartWrite(std::uint64_t offset,
                          absl::Span<const std::byte> from, Done done) = 0;

  // After a failed flush nothing since the last good one may be trusted.
  virtual void StartFlush(Done done) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_IO_BLOCK_DEVICE_H_
