// What one flash device has room for and what lies where: the state of each
// segment, the index of records, and the holds that keep a segment from being
// written again.
//
// A segment is free, open (one lap of one tenant is being written), sealed, or
// retiring: out of the index, and free once its last hold has ended (rule F4).
// Look-up and hold are one step, and so are leaving the index and retirement.
//
// Who listens (PoolEvents) is told of records in the step in which they enter
// and leave: that order is the one of the announcements (rule A2). Of a block
// at most one record is told. What recovery found is told later, once it may be
// served (Align). A record that left and whose block is not known, its header
// is damaged, stays told until Align has its segment's table of contents.
//
// Does not know the device, nor who confirmed what.
//
// Threading. Thread-safe; no I/O, and no lock while a callback runs.
//
// Ownership. Outlives its holds. Owned by FlashTier.

#ifndef FIRNKV_SERVER_TIER_FLASH_SPACE_H_
#define FIRNKV_SERVER_TIER_FLASH_SPACE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "server/policy/segment_order.h"
#include "server/tier/flash_format.h"
#include "server/tier/pool_events.h"
#include "server/tier/segment_index.h"

namespace firnkv {

class FlashSpace;

// Keeps a segment's bytes as they are, for a transfer; ended by completion,
// never by time (rule P8). A move-only receipt.
class [[nodiscard]] SegmentHold {
 public:
  SegmentHold() = default;
  SegmentHold(FlashSpace* space, std::uint32_t segment)
      : space_(space), segment_(segment) {}
  SegmentHold(SegmentHold&& other) noexcept
      : space_(std::exchange(other.space_, nullptr)),
        segment_(other.segment_) {}
  SegmentHold& operator=(SegmentHold&& other) noexcept {
    if (this != &other) {
      End();
      space_ = std::exchange(other.space_, nullptr);
      segment_ = other.segment_;
    }
    return *this;
  }
  ~SegmentHold() { End(); }
  void End();
  bool held() const { return space_ != nullptr; }

 private:
  FlashSpace* space_ = nullptr;
  std::uint32_t segment_ = 0;
};

// A record as the index has it, with a hold on its segment.
struct HeldRecord {
  SegmentHold hold;
  SegmentName name;
  RecordNumber number;
  RecordPlace place;
  std::uint64_t length = 0;
  // Of this run (rule F0).
  Generation generation = Generation::kNone;
  // How often it was read, as far as that is counted (SegmentIndex).
  unsigned reads = 0;
};

enum class SegmentState : std::uint8_t { kFree, kOpen, kSealed, kRetiring };

struct FlashSpaceSnapshot {
  std::uint32_t segments = 0;
  std::uint32_t free = 0;
  std::uint32_t open = 0;
  std::uint32_t sealed = 0;
  std::uint32_t retiring = 0;
  std::uint64_t records = 0;
  // Of records in the index, without headers and padding.
  std::uint64_t live_bytes = 0;
  std::uint64_t holds = 0;
  std::uint64_t index_bytes = 0;
  // Records that others were told of, and those of them that have left.
  std::uint64_t told = 0;
  std::uint64_t lagging = 0;
};

class FlashSpace {
 public:
  struct Options {
    // Bits of a fingerprint that count, 1 to 64.
    unsigned fingerprint_bits = 64;
  };
  // So many generations in a row of the node's one counter (rules F0, P3).
  using TakeGenerations = std::function<Generation(std::uint64_t count)>;

  // Whether who listens hears of records as they are published.
  enum class Telling : std::uint8_t { kNow, kLater };
  // What is to be told of a record.
  enum class Standing : std::uint8_t {
    // Not known yet: it stays as it is.
    kWait,
    kTell,
    // It is not served now.
    kHide,
    // It is never served again, and leaves.
    kGone,
  };
  using Judge = absl::FunctionRef<Standing(const ContentsEntry&)>;

  // `random` and `events` outlive it; null: nobody listens. Every segment is
  // free.
  FlashSpace(const Options& options, const FlashSuperblock& layout,
             Random* random, TakeGenerations take_generations,
             PoolEvents* events = nullptr);
  ~FlashSpace();

  const FlashSuperblock& layout() const { return layout_; }
  std::uint64_t FingerprintOf(const BlockId& block) const;

  // --- Writing.

  // A free segment, open for the tenant in a lap of its own. nullopt: none is
  // free.
  std::optional<SegmentName> Open(const TenantId& tenant)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What recovery found, whatever it was: the device's laps go on from there.
  void SawLap(FlashLap lap) ABSL_LOCKS_EXCLUDED(mutex_);
  // A free segment that recovery found written: open, under its name.
  void Recover(const SegmentName& name) ABSL_LOCKS_EXCLUDED(mutex_);

  // Records of an open segment that are durable: they can be found from now on.
  // Those of a segment come in the order of their offsets. The first one's
  // generation; the others have the next ones.
  Generation Publish(std::uint32_t segment,
                     absl::Span<const ContentsEntry> records,
                     Telling telling = Telling::kNow)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Open → sealed.
  void Seal(std::uint32_t segment, BootTime now) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Reading.

  // All records with the block's fingerprint, the youngest lap first.
  std::vector<HeldRecord> Find(const BlockId& block)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool MayHold(const BlockId& block) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the youngest record with the block's fingerprint.
  std::optional<std::uint64_t> LengthOf(const BlockId& block) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The record that has this number now; nullopt if there is none.
  std::optional<HeldRecord> Get(RecordNumber number)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The first number at or after `from` that a record of the segment has.
  std::optional<std::uint32_t> NextRecord(std::uint32_t segment,
                                          std::uint32_t from) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  void CountRead(const HeldRecord& record, BootTime now)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Leaving.

  // Takes one record out of the index (corrupt, cleared, erased). The hold
  // proves that the number is still this record's. False: somebody was first.
  // `block` is null where the record does not say (any more) whose it is.
  bool Drop(const HeldRecord& record, const BlockId* block)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // All that have the block's fingerprint; how many.
  std::size_t Erase(const BlockId& block) ABSL_LOCKS_EXCLUDED(mutex_);

  // Open or sealed → retiring; `free` runs, not inside this call's lock, once
  // the segment is free: at once where nothing holds it. False, and `free` is
  // destroyed: it is in neither state, or of another lap. `entries` are the
  // segment's, all of them, where something was told of it.
  bool Retire(std::uint32_t segment, FlashLap lap,
              absl::Span<const ContentsEntry> entries, Task free)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Destroys what waits for segments to be free, unrun: for an owner that ends.
  void DropWaiting() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- What others were told. `entries` are those of the segment's table of
  // contents, all of them: number i is record i.

  bool tells() const { return events_ != nullptr; }
  // Something was told of the segment in this lap.
  bool Told(const SegmentName& name) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The first open or sealed segment at or after `from` that has or had
  // records.
  std::optional<SegmentName> NextSegment(std::uint32_t from) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells what `judge` says, record by record, under the lock. Of a segment in
  // another lap by now, nothing. Where a block is told of already, its second
  // record leaves.
  void Align(const SegmentName& name, absl::Span<const ContentsEntry> entries,
             Judge judge) ABSL_LOCKS_EXCLUDED(mutex_);
  // Appends what was told: block, place, length, clear epoch, generation.
  void CopyTold(const SegmentName& name,
                absl::Span<const ContentsEntry> entries,
                std::vector<SlotHeader>* copies) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Records that have left and are still told.
  std::uint64_t lagging() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Sealed segments, for the policy.
  std::vector<SegmentFacts> Sealed() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::uint32_t free_segments() const ABSL_LOCKS_EXCLUDED(mutex_);
  FlashSpaceSnapshot Look() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class SegmentHold;
  struct Segment {
    SegmentName name;
    SegmentState state = SegmentState::kFree;
    std::uint64_t holds = 0;
    std::uint64_t live_bytes = 0;
    std::uint32_t live_records = 0;
    std::uint64_t reads = 0;
    BootTime sealed_at;
    BootTime last_read;
    // Record i of it has this one + i.
    Generation first_generation = Generation::kNone;
    // By record; shorter where the rest was not told.
    std::vector<bool> told;
    std::uint32_t told_records = 0;
    Task free;
  };

  void EndHold(std::uint32_t segment) ABSL_LOCKS_EXCLUDED(mutex_);
  HeldRecord MakeHeld(const SegmentIndex::Record& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeGenerationsFor(Segment* segment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DropLocked(RecordNumber number, const BlockId* block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsTold(RecordNumber number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Generation GenerationOf(RecordNumber number) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Another record with this fingerprint is told.
  std::optional<RecordNumber> FindTold(std::uint64_t fingerprint) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(RecordNumber number, const ContentsEntry& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Untell(RecordNumber number, const BlockId& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AlignOne(RecordNumber number, const ContentsEntry& entry, Judge judge)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is to run once the lock is given back.
  Task BecomeFree(Segment* segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const FlashSuperblock layout_;
  Random* const random_;
  const TakeGenerations take_generations_;
  PoolEvents* const events_;
  // So that nobody outside can choose keys that collide.
  const std::uint64_t secret_;

  mutable Mutex mutex_;
  std::vector<Segment> segments_ ABSL_GUARDED_BY(mutex_);
  SegmentIndex index_ ABSL_GUARDED_BY(mutex_);
  std::uint32_t lap_count_ ABSL_GUARDED_BY(mutex_) = 0;
  // Where the search for a free segment goes on: round and round, so that all
  // wear alike.
  std::uint32_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint32_t free_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t holds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t told_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t lagging_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_SPACE_H_
