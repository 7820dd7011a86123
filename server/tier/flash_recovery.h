// Brings back what the last run left on a flash device: from tables of
// contents, and by scanning only segments that were not sealed.
//
//     header page   torn, of another device or place: the segment is free
//     seal          of the header's lap: its table of contents counts
//     else          records are read from the first on, whole and verified, up
//                   to the first that is not of this lap and place; what
//                   follows is a torn tail, and gone
//
// What it finds goes into FlashSpace with generations of this run (rule F0);
// scanned segments go to the writer to be sealed. Nothing of it may be served
// before its owner and clear epoch are confirmed (rule C3: FlashTier).
//
// Threading. Start once; its steps run on the executor, `done` too.
//
// Ownership. Everything given to the constructor outlives it, and it outlives
// `done`. Owned by FlashTier.

#ifndef FIRNKV_SERVER_TIER_FLASH_RECOVERY_H_
#define FIRNKV_SERVER_TIER_FLASH_RECOVERY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/io/block_device.h"
#include "server/io/buffer_pool.h"
#include "server/tier/flash_space.h"
#include "server/tier/flash_writer.h"

namespace firnkv {

struct RecoveryReport {
  std::uint32_t sealed = 0;
  std::uint32_t scanned = 0;
  std::uint32_t free = 0;
  // Tables of contents that their seal promised and that are not there whole;
  // those segments were scanned.
  std::uint32_t torn_contents = 0;
  // Segments that the device did not let us read: they count as free.
  std::uint32_t unreadable = 0;
  std::uint64_t records = 0;
  std::uint64_t read_bytes = 0;
};

class FlashRecovery {
 public:
  using Done = absl::AnyInvocable<void(const RecoveryReport&) &&>;

  FlashRecovery(BlockDevice* device, FlashSpace* space, FlashWriter* writer,
                Executor* executor);
  ~FlashRecovery();

  void Start(Done done);

 private:
  // Segments under way at once: enough to keep a device busy, few enough that
  // their tables of contents are no matter.
  static constexpr std::uint32_t kAtOnce = 32;
  // What a scan reads at a time, or the largest record.
  static constexpr std::uint64_t kScanBytes = 4 * kMiB;

  struct Work {
    std::uint32_t segment = 0;
    SegmentName name;
    SegmentSeal seal;
    std::unique_ptr<AlignedMemory> memory;
    // Of it, read last.
    std::uint64_t bytes = 0;
    // Of a scan.
    std::uint64_t at = kFlashPage;
    std::vector<ContentsEntry> found;
  };
  using Step = void (FlashRecovery::*)(Work*, bool read);

  void Next() ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadLead(Work* work);
  void OnLead(Work* work, bool read);
  void OnSeal(Work* work, bool read);
  void OnContents(Work* work, bool read);
  void ReadScan(Work* work);
  void OnScan(Work* work, bool read);
  // Takes records from the front of what was read; false: the scan is at its
  // end.
  bool TakeRecords(Work* work, absl::Span<const std::byte> bytes,
                   std::uint64_t from);
  void EndScan(Work* work);
  void End(Work* work) ABSL_LOCKS_EXCLUDED(mutex_);

  void Read(Work* work, std::uint64_t offset, std::uint64_t bytes, Step next);
  std::string_view Text(const Work& work, std::uint64_t bytes) const;
  void Publish(const SegmentName& name,
               const std::vector<ContentsEntry>& entries);

  BlockDevice* const device_;
  FlashSpace* const space_;
  FlashWriter* const writer_;
  Executor* const executor_;
  TaskScope scope_;

  Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Work>> works_ ABSL_GUARDED_BY(mutex_);
  std::uint32_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  RecoveryReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_RECOVERY_H_
