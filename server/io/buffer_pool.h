// Aligned memory for transfers that do not go straight into or out of a slot,
// cut from one piece that the device can register, and its bound: who finds
// none waits for some to come back.
//
// Does not know what the memory is for.
//
// Threading. Thread-safe. What waits runs on the thread that gives a buffer
// back, or inside Take, and under no lock.
//
// Ownership. The pool outlives its buffers; a buffer gives itself back.

#ifndef FIRNKV_SERVER_IO_BUFFER_POOL_H_
#define FIRNKV_SERVER_IO_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/types/span.h"
#include "proto/base/mutex.h"

namespace firnkv {

// Pages of zeros, given back to the machine with this value.
class AlignedMemory {
 public:
  // CHECKs that the machine has as much: what it is for is bounded by options.
  explicit AlignedMemory(std::uint64_t bytes);
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;
  ~AlignedMemory();
  absl::Span<std::byte> bytes() const { return bytes_; }

 private:
  absl::Span<std::byte> bytes_;
};

class BufferPool {
 public:
  // A move-only receipt.
  class [[nodiscard]] Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), bytes_(other.bytes_) {}
    Buffer& operator=(Buffer&& other) noexcept {
      if (this != &other) {
        GiveBack();
        pool_ = std::exchange(other.pool_, nullptr);
        bytes_ = other.bytes_;
      }
      return *this;
    }
    ~Buffer() { GiveBack(); }
    void GiveBack();
    // Aligned to pages, and a multiple of them; whatever was there before.
    absl::Span<std::byte> bytes() const { return bytes_; }

   private:
    friend class BufferPool;
    Buffer(BufferPool* pool, absl::Span<std::byte> bytes)
        : pool_(pool), bytes_(bytes) {}
    BufferPool* pool_ = nullptr;
    absl::Span<std::byte> bytes_;
  };
  using Got = absl::AnyInvocable<void(Buffer) &&>;

  explicit BufferPool(std::uint64_t bytes);
  ~BufferPool();

  // `got` runs once, now or as soon as those who asked before have theirs.
  // `bytes` is at most the pool's. The caller bounds how many wait.
  void Take(std::uint64_t bytes, Got got) ABSL_LOCKS_EXCLUDED(mutex_);

  // Destroys what waits, unrun: for an owner that ends.
  void DropWaiting() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of all buffers: for BlockDevice implementations that register it.
  absl::Span<std::byte> memory() const { return memory_.bytes(); }
  std::uint64_t free_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiting {
    std::uint64_t bytes = 0;
    Got got;
  };
  void GiveBack(absl::Span<std::byte> bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first that fits; empty if none does.
  absl::Span<std::byte> Cut(std::uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Serves who waits, in turn, until the next does not fit.
  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);

  const AlignedMemory memory_;
  mutable Mutex mutex_;
  // Runs of free bytes: offset to length.
  std::map<std::uint64_t, std::uint64_t> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_IO_BUFFER_POOL_H_
