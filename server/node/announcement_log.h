// What happened to this node's copies and has not yet been told to the catalog:
// a bounded list of events, in the order in which they happened.
//
// The pool appends under its own lock (rule A2), so the order here is the order
// of the events; catalog_link.h takes from the front. At the bound the log
// gives up, forgets everything and says so: the link then registers anew, with
// a full inventory, which is cheaper than remembering more than an inventory
// holds.
//
// Positions count events since the node's start and go on while the log is
// paused: "everything up to now" is a position, also when the events
// themselves were forgotten because an inventory covers them.
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
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/slot_header.h"
#include "server/tier/pool_events.h"

namespace firnkv {

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
  // Forgets everything and records nothing until Restart: the catalog is away
  // for longer than our lease, and an inventory will be due anyway.
  void Pause() ABSL_LOCKS_EXCLUDED(mutex_);

  // The position behind the last event.
  std::uint64_t end() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::size_t pending() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The bound was reached since Restart: events were lost.
  bool overflowed() const ABSL_LOCKS_EXCLUDED(mutex_);

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
  enum class State : std::uint8_t { kPaused, kRecording, kOverflowed };

  void Append(AnnouncedEntry entry) ABSL_LOCKS_EXCLUDED(mutex_);
  void WakeUpAfter(absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Executor* const executor_;
  // Set once, before there are events.
  absl::AnyInvocable<void()> on_pending_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kPaused;
  std::uint64_t end_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<AnnouncedEntry> entries_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_ANNOUNCEMENT_LOG_H_
