// Appends records to the open segments of one flash device, in rounds: what
// waits is placed, a segment a tenant, written in large aligned transfers,
// flushed once for all, checked by sample, and only then published.
//
//     place → headers of new segments, flush (rule F1)
//           → records                      | the next round begins here
//           → flush → read back → publish  (rule F2: after the flush)
//           → tables of contents of full segments, flush
//
// Two rounds at most: one that writes, one that finishes, in their order. After
// a failed flush both are dropped and their segments closed (rule F2); what was
// published before stays.
//
//     what fails                 what becomes of the records
//     write, header flush        the round's are kDeviceFailed
//     flush of records           both rounds' are kDeviceFailed
//     read back of one           that one is kDeviceFailed, never published
//     table of contents, seal    none: published, the seal is tried again with
//                                the next round; recovery scans until then
//     no free segment            kFull
//
// Each round ends on a page, so that no write ever touches a page that was
// flushed before.
//
// Does not know who may write what (FlashTier), nor the order in which segments
// go.
//
// Threading. Thread-safe. `done` runs on the executor, under no lock.
//
// Ownership. Everything given to the constructor outlives it. Owned by
// FlashTier. No round may be under way when it is destroyed, unless the device
// and the executor have dropped their completions (a crash).

#ifndef FIRNKV_SERVER_TIER_FLASH_WRITER_H_
#define FIRNKV_SERVER_TIER_FLASH_WRITER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/io/block_device.h"
#include "server/io/buffer_pool.h"
#include "server/tier/flash_ledger.h"
#include "server/tier/flash_space.h"
#include "server/tier/tier.h"

namespace firnkv {

// One record to write.
struct FlashAppend {
  TenantId tenant;
  // Both alive until `done`.
  const SlotHeader* header = nullptr;
  absl::Span<const std::byte> bytes;
  // It was on this device before, and moves.
  bool again = false;
  // The generation is the new copy's, with kStored.
  absl::AnyInvocable<void(StoreOutcome, Generation) &&> done;
};

class FlashWriter {
 public:
  struct Options {
    // Of records, written between two flushes.
    std::uint64_t round_bytes = 8 * kMiB;
    // Of records that wait; one more is kFull at once.
    std::uint64_t max_waiting_bytes = 256 * kMiB;
    // One of so many records is read back; 0: none.
    std::uint32_t check_one_in = 64;
  };

  FlashWriter(const Options& options, BlockDevice* device, FlashSpace* space,
              Executor* executor, FlashLedger* ledger);
  ~FlashWriter();

  void Append(absl::Span<FlashAppend> batch) ABSL_LOCKS_EXCLUDED(mutex_);

  // Seals every open segment, after what waits has been written. `done` runs
  // though a seal failed: recovery scans that segment.
  void SealAll(Task done) ABSL_LOCKS_EXCLUDED(mutex_);

  // A segment that recovery found unsealed, with what is whole of it; sealed
  // with the next round or SealAll.
  void Adopt(const SegmentName& name, std::vector<ContentsEntry> entries,
             std::uint64_t data_end) ABSL_LOCKS_EXCLUDED(mutex_);

  // The published records of an open segment; nullopt: it is not open, or in
  // another lap.
  std::optional<std::vector<ContentsEntry>> CopyOpen(
      const SegmentName& name) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Of records that wait or are being written.
  std::uint64_t waiting_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Span<std::byte> memory() const { return pool_.memory(); }

 private:
  struct OpenSegment {
    SegmentName name;
    // Where the next record may begin.
    std::uint64_t end = kFlashPage;
    // Placed, published or not.
    std::uint32_t records = 0;
    absl::flat_hash_set<std::pair<NamespaceId, ClearEpoch>> pairs;
    // Published.
    std::vector<ContentsEntry> entries;
  };
  struct Placed {
    FlashAppend append;
    std::uint32_t segment = 0;
    RecordPlace place;
    // In the round's buffer.
    std::uint64_t at = 0;
    bool check = false;
    StoreOutcome outcome = StoreOutcome::kStored;
    Generation generation = Generation::kNone;
  };
  // Pages of one segment that a round writes.
  struct Unit {
    SegmentName name;
    std::uint64_t first = 0;
    std::uint64_t end = 0;
    std::uint64_t at = 0;
  };
  struct SealWrite {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
    std::unique_ptr<AlignedMemory> memory;
  };
  struct Round {
    std::vector<Placed> placed;
    std::vector<Unit> units;
    std::vector<SegmentName> fresh;
    std::vector<std::uint32_t> full;
    std::unique_ptr<AlignedMemory> headers;
    BufferPool::Buffer buffer;
    std::vector<SealWrite> seals;
    std::vector<Task> sealed;
    // Of the step under way; guarded by mutex_.
    std::size_t left = 0;
    absl::Status status;
    // A flush has failed since it began.
    bool doomed = false;
    // Its records are written, and it waits to finish.
    bool written = false;
  };
  using Step = void (FlashWriter::*)(Round*);

  // --- In the order in which they run.
  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  void Plan(Round* round, std::vector<FlashAppend>* full)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: no segment is free.
  OpenSegment* OpenFor(const FlashAppend& append, Round* round)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Fits(const OpenSegment& open, const SlotHeader& header) const;
  // By how many bytes the round grows at most.
  std::uint64_t Place(OpenSegment* open, FlashAppend append, Round* round)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint64_t LayOut(Round* round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteHeaders(Round* round);
  void FlushHeaders(Round* round);
  void CopyRecords(Round* round);
  std::vector<BlockDevice::WriteRequest> WritesOf(Round* round);
  void OnWritten(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);
  void FlushRecords(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadBack(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);
  void Check(Round* round);
  void Publish(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteSeals(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);
  void FlushSeals(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnSealed(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailRound(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndRound(Round* round) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `next` on the executor.
  void Later(Round* round, Step next);
  // Starts all, and runs `next` once all have ended; at once for none.
  void WriteAll(Round* round, std::vector<BlockDevice::WriteRequest> writes,
                Step next) ABSL_LOCKS_EXCLUDED(mutex_);
  void Flush(Round* round, Step next) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnOne(Round* round, Step next, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool Failed(const Round* round) const ABSL_LOCKS_EXCLUDED(mutex_);
  void StartFlush() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFlushed(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // No more records for it.
  void CloseSegment(std::uint32_t segment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint64_t LargestRound() const;
  absl::Span<std::byte> BytesOf(const Round& round, const Placed& one) const;
  void CopyOne(const Round& round, const Placed& one, std::uint64_t* filled);

  const Options options_;
  BlockDevice* const device_;
  FlashSpace* const space_;
  Executor* const executor_;
  FlashLedger* const ledger_;
  BufferPool pool_;
  TaskScope scope_;

  mutable Mutex mutex_;
  std::deque<FlashAppend> waiting_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint32_t, OpenSegment> open_ ABSL_GUARDED_BY(mutex_);
  std::map<TenantId, std::uint32_t> of_tenant_ ABSL_GUARDED_BY(mutex_);
  // Of open_, to be sealed.
  std::set<std::uint32_t> full_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Round> writing_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Round> finishing_ ABSL_GUARDED_BY(mutex_);
  std::vector<Task> seal_waiters_ ABSL_GUARDED_BY(mutex_);
  // The first one is under way.
  std::deque<std::pair<Round*, Step>> flushes_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t placed_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_WRITER_H_
