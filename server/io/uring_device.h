// A block device over io_uring: one ring and one thread a device, which issues
// what was started in batches, keeps up to `depth` transfers in the device, and
// runs their `done`.
//
// Reads go before writes and flushes, which get every fourth turn, so that a
// reader does not wait for a demotion's queue and a demotion still moves.
// Short transfers are continued, EAGAIN and EINTR tried again, each a bounded
// number of times.
//
// Where the kernel lacks something, the device works without it and says so in
// features().
//
// Threading and ownership: block_device.h. Drain and the memory calls block, so
// not from inside a `done`. Thread-safe.

#ifndef FIRNKV_SERVER_IO_URING_DEVICE_H_
#define FIRNKV_SERVER_IO_URING_DEVICE_H_

#include <liburing.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/transport/descriptor.h"
#include "client/transport/named_thread.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "server/io/block_device.h"
#include "server/io/device_file.h"
#include "server/io/service_estimate.h"

namespace firnkv {

// What of io_uring a device has.
struct UringFeatures {
  // Transfers go past the page cache (O_DIRECT).
  bool direct = false;
  // The descriptor and the memory need no look-up, no pinning, a transfer.
  bool fixed_file = false;
  bool fixed_memory = false;
  // Completions run only when the ring's thread asks for them.
  bool deferred = false;
  // A sentence for each that is missing, with the reason: for the log and for
  // --check.
  std::vector<std::string> missing;
};

class UringDevice : public BlockDevice {
 public:
  struct Options {
    // Transfers in the device at a time; 1 to 4,096.
    unsigned depth = 64;
    // Beyond it a transfer ends at once (block_device.h).
    std::size_t max_queued = 16'384;
    // Of the thread; its first 15 bytes count.
    std::string name = "flash";
  };
  // Of RegisterMemory, in pieces of at most 1 GiB, which is the kernel's limit:
  // with 64 MiB regions that is 256 GiB of arena.
  static constexpr unsigned kMaxMemoryPieces = 4096;

  // `clock` outlives the device. UNAVAILABLE where there is no io_uring at all
  // (a container's seccomp filter, sysctl kernel.io_uring_disabled).
  static absl::StatusOr<std::unique_ptr<UringDevice>> Open(
      DeviceFile file, const Options& options, const Clock* clock);
  ~UringDevice() override;  // Drain().

  std::uint64_t bytes() const override { return file_.bytes; }
  void StartReads(absl::Span<ReadRequest> batch) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void StartWrites(absl::Span<WriteRequest> batch) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void StartFlush(Done done) override ABSL_LOCKS_EXCLUDED(mutex_);
  DeviceLoad GetLoad() const override ABSL_LOCKS_EXCLUDED(mutex_);

  // Transfers within `memory` need no pinning from now on. RESOURCE_EXHAUSTED
  // where the kernel pins no more (the memlock limit) or kMaxMemoryPieces are
  // used up: then they are pinned one by one, and nothing else changes.
  absl::Status RegisterMemory(absl::Span<std::byte> memory)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of exactly a span that was registered, before its pages are given back
  // (rule P6). No transfer of it may be under way.
  void UnregisterMemory(absl::Span<std::byte> memory)
      ABSL_LOCKS_EXCLUDED(mutex_);

  UringFeatures features() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until every `done` has run, and ends the thread. What is started
  // afterwards ends with UNAVAILABLE, inside the Start. Idempotent.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Kind : std::uint8_t { kRead, kWrite, kFlush };
  struct Transfer {
    Kind kind = Kind::kFlush;
    std::uint64_t offset = 0;
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
    Done done;
    // Of its bytes, moved.
    std::uint64_t moved = 0;
    int tries = 0;
  };
  struct Piece {
    std::uint64_t bytes = 0;
    unsigned index = 0;
  };

  UringDevice(DeviceFile file, const Options& options, const Clock* clock);

  absl::Status MakeRing();
  bool TryRing(unsigned flags, int* error);
  void RegisterFile();
  void Start(std::deque<Transfer> transfers) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Fits(const Transfer& transfer) const;
  void Signal();

  // Of the ring's thread.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeWork() ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeOne(Transfer* transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Prepare(unsigned slot);
  void ListenForWork();
  void SubmitAndWait();
  void Reap() ABSL_LOCKS_EXCLUDED(mutex_);
  // True: it has ended, as `status`; false: it goes on.
  bool Advance(Transfer* transfer, int result, absl::Status* status);
  unsigned MemoryIndex(const std::byte* memory, std::uint64_t bytes) const;

  // Runs `call` on the ring's thread and waits: the kernel takes registrations
  // of a ring from its one submitter only.
  void CallOnRing(absl::AnyInvocable<void()> call) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AddMemory(absl::Span<std::byte> memory);
  void DropMemory(absl::Span<std::byte> memory);

  const DeviceFile file_;
  const Options options_;
  const Clock* const clock_;
  NamedThread thread_;
  Descriptor wake_;

  // Of the ring's thread, once it runs.
  io_uring ring_ = {};
  bool has_ring_ = false;
  bool fixed_file_ = false;
  std::vector<Transfer> slots_;
  std::vector<unsigned> free_slots_;
  std::vector<unsigned> again_;
  bool listening_ = false;
  std::uint64_t wake_count_ = 0;
  unsigned turn_ = 0;
  // By address.
  std::map<const std::byte*, Piece> memory_;
  std::vector<unsigned> free_pieces_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Transfer> reads_ ABSL_GUARDED_BY(mutex_);
  std::deque<Transfer> writes_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::AnyInvocable<void()>> calls_ ABSL_GUARDED_BY(mutex_);
  ServiceEstimate estimate_ ABSL_GUARDED_BY(mutex_);
  UringFeatures features_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t issued_ ABSL_GUARDED_BY(mutex_) = 0;
  bool signalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_IO_URING_DEVICE_H_
