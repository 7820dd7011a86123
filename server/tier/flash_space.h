// What one flash device has room for and what lies where: the state of each
// segment, the index of records, and the holds that keep a segment from being
// written again.
//
// A segment is free, open (one lap of one tenant is being written), sealed, or
// retiring: out of the index, and free once its last hold has ended (rule F4).
// Look-up and hold are one step, and so are leaving the index and retirement.
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

#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "server/policy/segment_order.h"
#include "server/tier/flash_format.h"
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
};

class FlashSpace {
 public:
  struct Options {
    // Bits of a fingerprint that count, 1 to 64.
    unsigned fingerprint_bits = 64;
  };
  // So many generations in a row of the node's one counter (rules F0, P3).
  using TakeGenerations = std::function<Generation(std::uint64_t count)>;

  // `random` outlives it; every segment is free.
  FlashSpace(const Options& options, const FlashSuperblock& layout,
             Random* random, TakeGenerations take_generations);
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
                     absl::Span<const ContentsEntry> records)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Open → sealed.
  void Seal(std::uint32_t segment, BootTime now) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Reading.

  // All records with the block's fingerprint, the youngest lap first.
  std::vector<HeldRecord> Find(const BlockId& block)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool MayHold(const BlockId& block) const ABSL_LOCKS_EXCLUDED(mutex_);
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
  bool Drop(const HeldRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);
  // All that have the block's fingerprint; how many.
  std::size_t Erase(const BlockId& block) ABSL_LOCKS_EXCLUDED(mutex_);

  // Open or sealed → retiring; `free` runs, not inside this call's lock, once
  // the segment is free: at once where nothing holds it. False, and `free` is
  // destroyed: it is in neither state, or of another lap.
  bool Retire(std::uint32_t segment, FlashLap lap, Task free)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Destroys what waits for segments to be free, unrun: for an owner that ends.
  void DropWaiting() ABSL_LOCKS_EXCLUDED(mutex_);

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
    Task free;
  };

  void EndHold(std::uint32_t segment) ABSL_LOCKS_EXCLUDED(mutex_);
  HeldRecord MakeHeld(const SegmentIndex::Record& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeGenerationsFor(Segment* segment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DropLocked(RecordNumber number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is to run once the lock is given back.
  Task BecomeFree(Segment* segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const FlashSuperblock layout_;
  Random* const random_;
  const TakeGenerations take_generations_;
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
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_TIER_FLASH_SPACE_H_
