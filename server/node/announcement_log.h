// What happened to this node's copies and has not yet been told to the catalog:
// a bounded list of events, in the order in which they happened.
//
// The pool appends under its own lock (rule A2), so the order here is the order
// of the events; catalog_link.h takes from the front. At the bound the log
// gives up, forgets everything and says so: a full inventory takes its place,
// which is cheaper than remembering more than an inventory holds. A cut from
// the catalog changes nothing here: what happens meanwhile is told after it.
//
// Positions count events since the node's start and go on while nothing is
// recorded: "everything up to now" is a position, also when the events
// themselves were forgotten because an inventory covers them.
//
// Digests (rule A5, proto/base/copy_digest.h). The log sums the copies that are
// published and not withdrawn; every event changes that sum, recorded or not.
// What the catalog was told is the sum without what the recorded events did to
// it: they are all that happened since. That holds from every Restart on, when
// nothing is recorded, until an overflow, when events are lost, and what the
// catalog was told is not known until the next Restart.
//
// Does not know: batches, numbers, registrations.
//
// Threading. Thread-safe. One mutex, a leaf but for the executor's, under which
// it posts the wake-up.
//
// Owned by Node; outlives the pool, which is given it.

#ifndef FIRNKV_SERVER_NODE_ANNOUNCEMENT_LOG_H_
#define FIRNKV_SERVER_NODE_ANNOUNCEMENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "proto/base/copy_digest.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/slot_header.h"
#include "server/tier/pool_events.h"

namespace firnkv {

// Of a copy, as announcements and digests name it.
inline constexpr std::uint8_t kDramTier = 0;

enum class AnnouncedOperation : std::uint8_t { kPublish = 1, kWithdraw = 2 };

// One event as the catalog is told it. Numbers are wire format.
struct AnnouncedEntry {
  AnnouncedOperation operation = AnnouncedOperation::kPublish;
  BlockId block;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  Generation generation = Generation::kNone;
  // Zeros in a withdrawal.
  ChainPlace place;
  std::uint64_t length = 0;
};

AnnouncedEntry PublishOf(const SlotHeader& header);

class AnnouncementLog : public PoolEvents {
 public:
  struct Options {
    // About 200 bytes each: 50 MiB at the default.
    std::size_t max_entries = 256 * 1024;
    // The first event after silence is told after `delay`, so that a burst goes
    // as one batch; `batch` of them do not wait.
    absl::Duration delay = absl::Milliseconds(5);
    std::size_t batch = kMaxAnnouncementEntries;
  };

  // `executor` must outlive the log.
  AnnouncementLog(const Options& options, Executor* executor);
  ~AnnouncementLog() override;

  // What runs, as a task, when there is something to tell. Set before the
  // pool's first event. `on_pending` must stay callable until Close.
  void SetWakeUp(absl::AnyInvocable<void()> on_pending);
  // No wake-up runs after this returns.
  void Close();

  void OnPublished(const SlotHeader& header) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWithdrawn(const SlotHeader& header) override
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Forgets everything and records from now on; what an inventory taken after
  // this call does not show is an event in the log. Returns the position from
  // which on events are recorded.
  std::uint64_t Restart() ABSL_LOCKS_EXCLUDED(mutex_);

  // The position behind the last event.
  std::uint64_t end() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::size_t pending() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The bound was reached since Restart: events were lost.
  bool overflowed() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Digests of the copies that there were before the oldest event in the log:
  // of what the catalog has if it was told everything before. Costs a copy of
  // 512 KiB under the lock, and a digest a pending event. nullopt: it
  // overflowed.
  std::optional<BucketSums> Told() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The oldest events, at most `most`; they stay in the log. `first` is the
  // position of the first of them.
  struct Oldest {
    std::uint64_t first = 0;
    std::vector<AnnouncedEntry> entries;
  };
  Oldest Front(std::size_t most) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Events before `position` have been told. Does nothing to events that are
  // gone already: the log may have been restarted meanwhile.
  void DropUpTo(std::uint64_t position) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // kUnused: before the first Restart.
  enum class State : std::uint8_t { kUnused, kRecording, kOverflowed };

  void Append(AnnouncedEntry entry) ABSL_LOCKS_EXCLUDED(mutex_);
  void WakeUpAfter(absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Executor* const executor_;
  // Set once, before there are events.
  absl::AnyInvocable<void()> on_pending_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kUnused;
  std::uint64_t end_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the copies that are published and not withdrawn at `end_`.
  BucketSums present_ ABSL_GUARDED_BY(mutex_);
  std::deque<AnnouncedEntry> entries_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_ANNOUNCEMENT_LOG_H_
