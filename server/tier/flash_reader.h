// Reads records of one flash device: finds them, lets all who want one at the
// same time share one read, verifies, and copies into the callers' buffers.
//
// A read goes into a private buffer, and from there, with its checksums
// compared on what lands, into the destination (rules C5, F3, P13): foreign
// bytes never stand in a slot, and a load that fails leaves zeros.
//
//     what the record turns out to be     then
//     not read: EIO, short, stalled       kDeviceFailed; it stays
//     torn, of another lap or place,      isolated (rule P12); another copy of
//     bytes that fail their checksum      the block, else kCorrupt
//     another block, same fingerprint     it stays; the next, else kAbsent
//     of an older clear epoch, of         out of the index; kAbsent
//     another tenant
//
// Does not know who may read what: the caller says tenant and clear epoch.
//
// Threading. Thread-safe. `done` runs on the executor, under no lock.
//
// Ownership. Everything given to the constructor outlives it. Owned by
// FlashTier. No load may be under way when it is destroyed, unless device and
// executor have dropped their completions (a crash).

#ifndef FIRNKV_SERVER_TIER_FLASH_READER_H_
#define FIRNKV_SERVER_TIER_FLASH_READER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/io/block_device.h"
#include "server/io/buffer_pool.h"
#include "server/tier/flash_ledger.h"
#include "server/tier/flash_space.h"
#include "server/tier/tier.h"

namespace firnkv {

struct FlashLoad {
  BlockId block;
  // What the record must be of.
  TenantId tenant;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  // A longer record is absent for this load.
  absl::Span<std::byte> destination;
  // The header is the record's, with the generation of this run; it lives until
  // `done` returns.
  absl::AnyInvocable<void(LoadOutcome, const SlotHeader&) &&> done;
};

// A record, verified, in a private buffer: to write it once more, or only to
// see whether it is well.
struct WholeRecord {
  // kLoaded, kCorrupt (and isolated), kDeviceFailed.
  LoadOutcome outcome = LoadOutcome::kDeviceFailed;
  HeldRecord record;
  BufferPool::Buffer buffer;
  // Of a loaded one; the bytes lie in the buffer.
  RecordHeader header;
  absl::Span<const std::byte> payload;
};

class FlashReader {
 public:
  struct Options {
    // Of private buffers; at least the largest record twice. Who finds none
    // free waits.
    std::uint64_t buffer_bytes = 64 * kMiB;
    // Under way or waiting; one more is kCongested.
    std::size_t max_loads = 16'384;
  };

  // `on_isolated` runs after a damaged record has left, under no lock.
  FlashReader(const Options& options, BlockDevice* device, FlashSpace* space,
              Executor* executor, FlashLedger* ledger,
              std::function<void()> on_isolated);
  ~FlashReader();

  // Loads that would wait beyond `deadline` for the device are kCongested, and
  // nothing is issued.
  void Load(absl::Span<FlashLoad> batch, BootTime deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether the device has a whole, verified copy: reads it. The answer is
  // kLoaded or as Load's.
  void Look(const FlashLoad& what,
            absl::AnyInvocable<void(LoadOutcome) &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Reads one record by itself.
  void ReadWhole(HeldRecord record,
                 absl::AnyInvocable<void(WholeRecord) &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  std::uint64_t loads_in_flight() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Span<std::byte> memory() const { return pool_.memory(); }

 private:
  // One load, from record to record until one is right.
  struct Search {
    FlashLoad load;
    std::vector<HeldRecord> left;
    // If none is.
    LoadOutcome outcome = LoadOutcome::kAbsent;
    // Only looks: nothing is copied.
    bool look = false;
  };
  // One device read, and who waits for it.
  struct Flight {
    HeldRecord record;
    BufferPool::Buffer buffer;
    absl::Status status;
    std::vector<std::unique_ptr<Search>> searches;
    absl::AnyInvocable<void(WholeRecord) &&> whole;
  };

  void Begin(std::unique_ptr<Search> search) ABSL_LOCKS_EXCLUDED(mutex_);
  // Joins the flight of the next record, or starts one.
  void TryNext(std::unique_ptr<Search> search) ABSL_LOCKS_EXCLUDED(mutex_);
  void StartFlight(Flight* flight) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRead(Flight* flight, const absl::Status& status);
  void Land(Flight* flight) ABSL_LOCKS_EXCLUDED(mutex_);
  void Deliver(Flight* flight, const RecordHeader& record,
               std::unique_ptr<Search> search);
  // False: the bytes are not those of the header.
  bool CopyOut(const Flight& flight, const RecordHeader& record,
               Search* search) const;
  void GiveWhole(Flight* flight, std::optional<RecordHeader> record);
  void Fail(LoadOutcome outcome, std::unique_ptr<Search> search);
  void End(std::unique_ptr<Search> search, LoadOutcome outcome,
           const SlotHeader& header) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null: its header does not say whose it is.
  void Isolate(const Flight& flight, const RecordHeader* record);
  absl::Span<std::byte> RecordBytes(const Flight& flight) const;
  std::optional<RecordHeader> HeaderOf(const Flight& flight) const;

  const Options options_;
  BlockDevice* const device_;
  FlashSpace* const space_;
  Executor* const executor_;
  FlashLedger* const ledger_;
  const std::function<void()> on_isolated_;
  BufferPool pool_;
  TaskScope scope_;

  mutable Mutex mutex_;
  // Those that others may join, and all.
  std::map<RecordNumber, Flight*> shared_ ABSL_GUARDED_BY(mutex_);
  std::map<Flight*, std::unique_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t loads_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_READER_H_
