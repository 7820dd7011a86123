// What there is one of in a cluster: its id, the catalog's incarnation (rule
// A9), the counters of entries and of changes.
//
// Every start and every administrative write advances (incarnation, random id,
// sequence) in the same synced write as what it does. Nodes say the highest
// that they have seen with every registration and heartbeat, and the record
// knows which incarnations, each up to which sequence, lead to the present one:
// what a node has seen and this catalog never was is of a state that it was
// restored from before, or of another copy of its directory. The highest that
// nodes have reported is kept here too, for accept-restore.
//
// Threading. Readers: any thread. Changes: on the strand only, as
//     ClusterRecord next = state.NextAdministrative();
//     store->Apply({..., state.WriteOf(next)}, kSynced);
//     state.Install(next);

#ifndef FIRNKV_SERVER_CATALOG_CLUSTER_STATE_H_
#define FIRNKV_SERVER_CATALOG_CLUSTER_STATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "server/catalog/store.h"
#include "server/catalog/store_schema.h"

namespace firnkv {

class ClusterState {
 public:
  // How many sequences one synced write sets aside.
  static constexpr std::uint64_t kSequenceStep = std::uint64_t{1} << 24;

  // One a start: nobody has seen a higher one.
  static constexpr std::uint64_t kMaxIncarnation = std::uint64_t{1} << 48;
  // Changes that a restored backup may have lost: 16 million, of the 4 billion
  // clear epochs that there are.
  static constexpr std::uint64_t kMaxLostChanges = std::uint64_t{1} << 24;

  // Both outlive the state.
  ClusterState(Store* store, Random* random);

  // Makes the cluster where the store has none, and begins the next
  // incarnation. Before anything else. `made`: there was none.
  absl::Status Load(bool* made);

  ClusterId cluster() const ABSL_LOCKS_EXCLUDED(mutex_);
  Incarnation incarnation() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Number of the last change to a namespace.
  std::uint64_t last_change() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Rule A9: OK if the present state follows from what a node has seen, or an
  // accept-restore since said so of all that was seen before.
  // FAILED_PRECONDITION otherwise: a later state than ours, another one of the
  // same incarnation or of an earlier one, also one that is older than all that
  // is remembered. Remembers the highest.
  absl::Status CheckSeen(const Incarnation& seen) ABSL_LOCKS_EXCLUDED(mutex_);

  // A node may have been told of the present incarnation: MarkTold does
  // nothing.
  bool told() const ABSL_LOCKS_EXCLUDED(mutex_);

  // A node has confirmed changes up to `cursor`. False: we have given no such
  // number, so it is of a later state than ours; remembers the highest, which
  // says how many changes are lost at most (rule A9). Impossible ones are not
  // remembered.
  bool CheckCursor(std::uint64_t cursor) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- On the strand.
  // Before a node is told of the incarnation: synced, once an incarnation.
  // Otherwise a later start would forget that somebody may have seen it.
  absl::Status MarkTold() ABSL_LOCKS_EXCLUDED(mutex_);
  ClusterRecord record() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The present record with its sequence advanced.
  ClusterRecord NextAdministrative() const ABSL_LOCKS_EXCLUDED(mutex_);
  // A new incarnation, above ours and everything that was reported; change
  // numbers go on above all that were reported. Counts as told.
  ClusterRecord NextIncarnation() ABSL_LOCKS_EXCLUDED(mutex_);
  // As NextIncarnation, of the cluster of a backup, above that one's too: what
  // the backup's catalog has been leads to it, what we have been does not.
  ClusterRecord NextRestored(const ClusterRecord& backup)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // As NextIncarnation: whatever anybody has seen of a lower one leads to it,
  // and what was minted before is refused.
  ClusterRecord NextAccepted() ABSL_LOCKS_EXCLUDED(mutex_);
  static Store::Write WriteOf(const ClusterRecord& record);
  void Install(const ClusterRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);

  // The first of `count` numbers that were never given and never will be again,
  // also after a power cut; not 0.
  absl::StatusOr<std::uint64_t> TakeSequences(std::uint64_t count)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // `after`: of whose past it is.
  ClusterRecord Following(const ClusterRecord& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the present state follows from `seen`.
  bool FollowsFrom(const Incarnation& seen) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store* const store_;
  Random* const random_;
  mutable Mutex mutex_;
  ClusterRecord record_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 1;
  std::uint64_t highest_seen_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t highest_cursor_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_CLUSTER_STATE_H_
