// Shared memory of this process from which the node copies what is written
// (rule S1): the SDK's own, into which other memory is copied, and what
// AllocateShared gave to the caller.
//
// A range is given out again only when whoever wrote through it says so: after
// the answer to its Commit or Abort, or the session's end. Receipts make that
// hard to forget.
//
// Knows nothing of reservations; hands its memory to the session, which hands
// it to each node.
//
// Threading. All methods may be called from any thread. Callbacks run as tasks.
//
// Bound. The SDK's own: `own_bytes`; a wish beyond waits its turn. Shared:
// `shared_bytes`; a wish beyond is refused.

#ifndef FIRNKV_CLIENT_STAGING_H_
#define FIRNKV_CLIENT_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/transport/seams.h"
#include "client/transport/shared_memory.h"
#include "proto/base/bytes.h"
#include "proto/base/executor.h"
#include "proto/base/limits.h"
#include "proto/base/mutex.h"

namespace firnkv {

// First fit over one stretch of memory; neighbours are joined when they are
// given back. Not thread-safe.
class FreeRanges {
 public:
  explicit FreeRanges(std::uint64_t bytes) { free_.emplace(0, bytes); }

  // Offset of `bytes` bytes.
  std::optional<std::uint64_t> Take(std::uint64_t bytes);
  void Give(std::uint64_t offset, std::uint64_t bytes);

 private:
  // Offset to length.
  std::map<std::uint64_t, std::uint64_t> free_;
};

class StagingPool {
 public:
  // Ranges start and end on cache lines.
  static constexpr std::uint64_t kAlignment = 64;
  // One piece of shared memory of the SDK's own: room for a largest block.
  static constexpr std::uint64_t kArenaBytes = kLargestBlockBytes;
  // One piece for AllocateShared, unless more is wanted at once: a node takes a
  // bounded number of pieces from one session.
  static constexpr std::uint64_t kSharedArenaBytes = 64 * kMiB;

  struct Options {
    std::uint64_t own_bytes = 0;
    std::uint64_t shared_bytes = 0;
  };
  // Hands memory to the node, under the number returned. Shared: the session
  // keeps it, to hand it to every later node too.
  using Handover = std::function<std::uint64_t(std::shared_ptr<SharedMemory>)>;

  // `seams` outlive the pool.
  StagingPool(const Seams* seams, const Options& options, Handover handover);
  // Close(). All ranges and pins have ended.
  ~StagingPool();

  // A receipt for a part of the SDK's own memory; gives it back.
  class Range {
   public:
    Range() = default;
    Range(Range&& other) noexcept { *this = std::move(other); }
    Range& operator=(Range&& other) noexcept;
    ~Range();

    explicit operator bool() const { return pool_ != nullptr; }
    std::uint64_t staging() const { return staging_; }
    std::uint64_t offset() const { return offset_; }
    absl::Span<std::byte> bytes() const { return bytes_; }

   private:
    friend class StagingPool;
    StagingPool* pool_ = nullptr;
    std::uint64_t staging_ = 0;
    std::uint64_t offset_ = 0;
    absl::Span<std::byte> bytes_;
  };

  // Largest range that there can be.
  std::uint64_t largest() const { return arena_bytes_; }

  // `done` gets a range of `bytes` (at most largest()), in the order in which
  // they were asked for; an empty one if the machine has no memory, or at
  // Close. The result names the wish for Forget; 0: `done` will not run later,
  // since it got its range before the return.
  using RangeDone = absl::AnyInvocable<void(Range) &&>;
  std::uint64_t StartTake(std::uint64_t bytes, RangeDone done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The wish is withdrawn: its `done` will not run, if it has not begun.
  void Forget(std::uint64_t wish) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Shared with the caller.
  absl::StatusOr<absl::Span<std::byte>> AllocateShared(std::size_t bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void FreeShared(std::byte* address) ABSL_LOCKS_EXCLUDED(mutex_);

  // A receipt that keeps an allocation of AllocateShared from being given out
  // again, and says where it is.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept { *this = std::move(other); }
    Pin& operator=(Pin&& other) noexcept;
    ~Pin();

    std::uint64_t staging() const { return staging_; }
    std::uint64_t offset() const { return offset_; }

   private:
    friend class StagingPool;
    StagingPool* pool_ = nullptr;
    std::byte* allocation_ = nullptr;
    std::uint64_t staging_ = 0;
    std::uint64_t offset_ = 0;
  };
  // nullopt where `bytes` do not lie in one live allocation.
  std::optional<Pin> PinShared(absl::Span<const std::byte> bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Wishes outstanding get an empty range. Memory stays until the destructor.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Arena {
    std::uint64_t staging = 0;
    std::unique_ptr<MemoryMapping> mapping;
    FreeRanges free;
    std::uint64_t bytes = 0;
  };
  struct Wish {
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
    RangeDone done;
  };
  struct Allocation {
    std::uint64_t staging = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    int pins = 0;
    bool freed = false;
  };

  absl::StatusOr<std::unique_ptr<Arena>> MakeArena(std::uint64_t bytes);
  // Empty: there is no room now.
  Range TakeNow(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayGrow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Give(std::uint64_t staging, std::uint64_t offset, std::uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives ranges to the wishes in front, as far as there is room.
  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);
  void Unpin(std::byte* allocation) ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveAllocation(std::map<std::byte*, Allocation>::iterator it)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Seams* const seams_;
  const Options options_;
  const Handover handover_;
  const std::uint64_t arena_bytes_;
  TaskScope scope_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // An arena is being made: others wait for it instead of making one too.
  bool growing_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_wish_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Wish> wishes_ ABSL_GUARDED_BY(mutex_);
  // By staging id.
  std::map<std::uint64_t, std::unique_ptr<Arena>> own_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t own_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::unique_ptr<Arena>> shared_
      ABSL_GUARDED_BY(mutex_);
  std::uint64_t shared_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // By begin.
  std::map<std::byte*, Allocation> allocations_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_STAGING_H_
