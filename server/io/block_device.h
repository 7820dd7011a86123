// A block device or file as the flash tier sees it: aligned reads, writes and
// flushes that complete later. A seam: io_uring in production
// (uring_device.h), SimDevice in tests, which tears, loses, reorders and
// misdirects writes, lies, stalls and fails.
//
// It knows no deadlines: who has one compares it with GetLoad() before asking,
// and waits for `done` all the same, since an issued transfer cannot be
// recalled.
//
// Threading. All methods from any thread. Every `done` runs exactly once, on
// the device's completion thread, never inside a Start, under no lock; it must
// not block, but may start more transfers.
//
// Ownership. Memory stays the device's until `done`.
//
// What a transfer ends with:
//     OK                  all bytes moved
//     DATA_LOSS           a read came to an end, or returned 0 bytes: a
//                         controller that has gone answers so
//     RESOURCE_EXHAUSTED  ENOSPC or EDQUOT; or the queue was at its bound and
//                         nothing was issued (message "device queue is full")
//     UNAVAILABLE         EIO and every other error of the device
//     OUT_OF_RANGE        beyond the end of the device; nothing was issued

#ifndef FIRNKV_SERVER_IO_BLOCK_DEVICE_H_
#define FIRNKV_SERVER_IO_BLOCK_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace firnkv {

// Offsets, lengths and addresses are multiples of this: the largest logical
// block of the devices we know, and a page.
inline constexpr std::uint64_t kDeviceAlignment = 4096;

// What a device has to do at one moment; out of date on return.
struct DeviceLoad {
  // Queued or issued, and not yet done.
  std::uint64_t transfers = 0;
  std::uint64_t bytes = 0;
  // Of those, issued to the device.
  std::uint64_t issued = 0;
  // How long a transfer that is started now would wait for those before it, as
  // the rate of late lets one think. Zero while nothing is known.
  absl::Duration predicted_wait;
};

class BlockDevice {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;
  struct ReadRequest {
    std::uint64_t offset = 0;
    absl::Span<std::byte> into;
    Done done;
  };
  struct WriteRequest {
    std::uint64_t offset = 0;
    absl::Span<const std::byte> from;
    Done done;
  };

  // Every `done` has run.
  virtual ~BlockDevice() = default;

  virtual std::uint64_t bytes() const = 0;

  // Takes the requests of the batch, moving from them, and issues them
  // together, so that the device sees its full depth. They may be carried out
  // in any order.
  virtual void StartReads(absl::Span<ReadRequest> batch) = 0;

  // Not durable until a flush that began after `done` has ended OK. In any
  // order too, also against reads: two transfers that overlap are the caller's
  // to keep apart.
  virtual void StartWrites(absl::Span<WriteRequest> batch) = 0;

  // After a failed flush nothing since the last good one may be trusted.
  virtual void StartFlush(Done done) = 0;

  virtual DeviceLoad GetLoad() const = 0;

  // Batches of one.
  void StartRead(std::uint64_t offset, absl::Span<std::byte> into, Done done) {
    ReadRequest one{offset, into, std::move(done)};
    StartReads(absl::MakeSpan(&one, 1));
  }
  void StartWrite(std::uint64_t offset, absl::Span<const std::byte> from,
                  Done done) {
    WriteRequest one{offset, from, std::move(done)};
    StartWrites(absl::MakeSpan(&one, 1));
  }
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_IO_BLOCK_DEVICE_H_
