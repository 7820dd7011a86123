// Makes room on a flash device by giving up whole segments, in the order that
// the policy says: what it thinks worth keeping of one is written once more,
// within the endurance budget, then the segment retires, and is free once its
// last hold has ended (rule F4).
//
// What others were told of its records is taken back in the same step, which
// needs its table of contents: a segment whose table cannot be read stays, and
// is tried again after kUnreadablePause.
//
// One segment at a time. A record that cannot be written again (no budget, no
// room, not confirmed, corrupt) goes with its segment: this is a cache.
//
// Threading. Thread-safe. `done` runs on the executor.
//
// Ownership. Everything given to the constructor outlives it. Owned by
// FlashTier. Nothing may be under way when it is destroyed (Stop), unless
// device and executor have dropped their completions (a crash).

#ifndef FIRNKV_SERVER_TIER_FLASH_RECLAIMER_H_
#define FIRNKV_SERVER_TIER_FLASH_RECLAIMER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/policy/segment_order.h"
#include "server/tier/flash_contents.h"
#include "server/tier/flash_reader.h"
#include "server/tier/flash_writer.h"

namespace firnkv {

class FlashReclaimer {
 public:
  using Freed = absl::AnyInvocable<void(std::uint64_t bytes) &&>;
  // Whether a record of this tenant may be written again, and its bytes be
  // taken from the budget: it is confirmed, and of the current clear epoch.
  using MayAppend =
      std::function<bool(const TenantId& tenant, const SlotHeader& header)>;

  FlashReclaimer(FlashSpace* space, FlashReader* reader, FlashWriter* writer,
                 FlashContents* contents, const SegmentOrder* order,
                 Executor* executor, FlashLedger* ledger, MayAppend may_append);
  ~FlashReclaimer();

  // Frees the fewest segments, first those that the policy puts first, that
  // have `bytes`; `freed` gets how much it was: less only where nothing sealed
  // is left. It waits for holds.
  void Reclaim(std::uint64_t bytes, Freed freed) ABSL_LOCKS_EXCLUDED(mutex_);

  // Sees to it that so many segments are free or will be; what is under way
  // counts.
  void KeepFree(std::uint32_t segments) ABSL_LOCKS_EXCLUDED(mutex_);

  // Begins nothing new; `done` once what runs has ended.
  void Stop(Task done) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr absl::Duration kUnreadablePause = absl::Minutes(1);

  struct Wish {
    std::uint64_t bytes = 0;
    std::uint64_t freed_bytes = 0;
    Freed freed;
  };
  // The segment that goes.
  struct Going {
    SegmentFacts facts;
    std::uint32_t next = 0;
    WholeRecord record;
  };

  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  void NextRecord() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRecord(WholeRecord record) ABSL_LOCKS_EXCLUDED(mutex_);
  void Retire() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnContents(const std::optional<std::vector<ContentsEntry>>& entries)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Those that can go now, in their order.
  std::vector<SegmentFacts> Candidates() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFree() ABSL_LOCKS_EXCLUDED(mutex_);
  void Later(void (FlashReclaimer::*next)());

  FlashSpace* const space_;
  FlashReader* const reader_;
  FlashWriter* const writer_;
  FlashContents* const contents_;
  const SegmentOrder* const order_;
  Executor* const executor_;
  FlashLedger* const ledger_;
  const MayAppend may_append_;
  TaskScope scope_;

  Mutex mutex_;
  std::deque<Wish> wishes_ ABSL_GUARDED_BY(mutex_);
  std::uint32_t keep_free_ ABSL_GUARDED_BY(mutex_) = 0;
  // Only one step of it runs at a time.
  std::unique_ptr<Going> going_;
  // By number: until when each is left alone.
  std::map<std::uint32_t, BootTime> unreadable_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Task stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_RECLAIMER_H_
