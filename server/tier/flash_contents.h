// Reads what stands in one segment of a flash device, record by record without
// their bytes: of an open one from the writer's memory, of a sealed one from
// its table of contents. The index has fingerprints only; who must name blocks
// (announcements) asks here.
//
// Threading. Thread-safe. `got` runs on the executor, under no lock.
//
// Ownership. Everything given to the constructor outlives it. Owned by
// FlashTier. No read may be under way when it is destroyed, unless device and
// executor have dropped their completions (a crash).

#ifndef FIRNKV_SERVER_TIER_FLASH_CONTENTS_H_
#define FIRNKV_SERVER_TIER_FLASH_CONTENTS_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "proto/base/executor.h"
#include "server/io/block_device.h"
#include "server/io/buffer_pool.h"
#include "server/tier/flash_ledger.h"
#include "server/tier/flash_space.h"
#include "server/tier/flash_writer.h"

namespace firnkv {

class FlashContents {
 public:
  // nullopt: the device failed, or what stands there is not this lap's table.
  using Got =
      absl::AnyInvocable<void(std::optional<std::vector<ContentsEntry>>) &&>;

  FlashContents(BlockDevice* device, FlashSpace* space, FlashWriter* writer,
                Executor* executor, FlashLedger* ledger)
      : device_(device),
        space_(space),
        writer_(writer),
        executor_(executor),
        ledger_(ledger) {}
  ~FlashContents() { scope_.Close(); }

  void Read(const SegmentName& name, Got got);

 private:
  struct Work {
    SegmentName name;
    SegmentSeal seal;
    std::unique_ptr<AlignedMemory> memory;
    Got got;
  };
  using WorkPtr = std::unique_ptr<Work>;

  void ReadPages(WorkPtr work, std::uint64_t offset, std::uint64_t bytes,
                 void (FlashContents::*next)(WorkPtr, bool));
  void OnSeal(WorkPtr work, bool read);
  void OnTable(WorkPtr work, bool read);

  BlockDevice* const device_;
  FlashSpace* const space_;
  FlashWriter* const writer_;
  Executor* const executor_;
  FlashLedger* const ledger_;
  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_CONTENTS_H_
