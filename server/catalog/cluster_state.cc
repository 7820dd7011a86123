#include "server/catalog/cluster_state.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

ClusterState::ClusterState(Store* store, Random* random)
    : store_(store), random_(random) {}

absl::Status ClusterState::Load(bool* made) {
  ASSIGN_OR_RETURN(const std::optional<std::string> value,
                   store_->Get(Family::kMeta, kClusterKey));
  *made = !value.has_value();
  ClusterRecord record;
  if (value.has_value()) {
    ASSIGN_OR_RETURN(record, DecodeCluster(*value));
  } else {
    record.cluster = ClusterId::Make(random_);
  }
  {
    MutexLock lock(&mutex_);
    // What a lost tail may have used is below the floor.
    next_sequence_ = record.sequence_floor + 1;
    record_ = record;
  }
  ClusterRecord next = NextIncarnation(record.incarnation);
  next.sequence_floor += kSequenceStep;
  RETURN_IF_ERROR(store_->Apply({WriteOf(next)}, Store::Durability::kSynced));
  Install(next);
  return absl::OkStatus();
}

ClusterId ClusterState::cluster() const {
  MutexLock lock(&mutex_);
  return record_.cluster;
}

Incarnation ClusterState::incarnation() const {
  MutexLock lock(&mutex_);
  return record_.incarnation;
}

std::uint64_t ClusterState::last_change() const {
  MutexLock lock(&mutex_);
  return record_.last_change;
}

absl::Status ClusterState::CheckSeen(const Incarnation& seen) {
  if (seen.incarnation > kMaxIncarnation) {
    return absl::InvalidArgumentError(
        StrCat("incarnation ", seen.incarnation, " cannot be"));
  }
  MutexLock lock(&mutex_);
  const Incarnation& ours = record_.incarnation;
  highest_seen_ = std::max(highest_seen_, seen.incarnation);
  const bool same = seen.incarnation == ours.incarnation;
  if (seen.incarnation < ours.incarnation ||
      (same && seen.random_id == ours.random_id &&
       seen.sequence <= ours.sequence)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(StrCat(
      "this catalog is at incarnation ", ours.incarnation, ".", ours.sequence,
      " and the node has seen ", seen.incarnation, ".", seen.sequence,
      same ? " of another state" : "",
      ": it was restored from a backup, or its directory was copied; if this "
      "is the catalog to go on with, run `firnkv catalog accept-restore`"));
}

bool ClusterState::CheckCursor(std::uint64_t cursor) {
  MutexLock lock(&mutex_);
  if (cursor <= record_.last_change) return true;
  if (cursor - record_.last_change <= kMaxLostChanges) {
    highest_cursor_ = std::max(highest_cursor_, cursor);
  }
  return false;
}

ClusterRecord ClusterState::NextAdministrative() const {
  MutexLock lock(&mutex_);
  ClusterRecord next = record_;
  ++next.incarnation.sequence;
  return next;
}

ClusterRecord ClusterState::NextIncarnation(const Incarnation& above) {
  MutexLock lock(&mutex_);
  ClusterRecord next = record_;
  next.incarnation.incarnation = std::max({record_.incarnation.incarnation,
                                           above.incarnation, highest_seen_}) +
                                 1;
  next.incarnation.random_id =
      decltype(next.incarnation.random_id)::Make(random_);
  next.incarnation.sequence = 0;
  next.last_change = std::max(next.last_change, highest_cursor_);
  return next;
}

Store::Write ClusterState::WriteOf(const ClusterRecord& record) {
  return {Family::kMeta, std::string(kClusterKey), Encode(record)};
}

void ClusterState::Install(const ClusterRecord& record) {
  MutexLock lock(&mutex_);
  record_ = record;
}

absl::StatusOr<std::uint64_t> ClusterState::TakeSequences(std::uint64_t count) {
  CHECK(count > 0 && count <= kSequenceStep);
  ClusterRecord next;
  std::uint64_t first = 0;
  {
    MutexLock lock(&mutex_);
    next = record_;
    first = next_sequence_;
  }
  if (first + count > next.sequence_floor) {
    next.sequence_floor += kSequenceStep;
    RETURN_IF_ERROR(store_->Apply({WriteOf(next)}, Store::Durability::kSynced));
    Install(next);
  }
  MutexLock lock(&mutex_);
  next_sequence_ = first + count;
  return first;
}

}  // namespace firnkv
