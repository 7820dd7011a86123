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
  ClusterRecord next = NextIncarnation();
  next.told = false;
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

bool ClusterState::told() const {
  MutexLock lock(&mutex_);
  return record_.told;
}

bool ClusterState::FollowsFrom(const Incarnation& seen) const {
  const Incarnation& ours = record_.incarnation;
  // It has seen nothing, or what an operator has accepted.
  if (seen.incarnation == 0 || seen.incarnation < ours.credentials) return true;
  if (seen.incarnation == ours.incarnation) {
    return seen.random_id == ours.random_id && seen.sequence <= ours.sequence;
  }
  const auto one = std::find_if(record_.past.begin(), record_.past.end(),
                                [&seen](const PastIncarnation& past) {
                                  return past.incarnation == seen.incarnation;
                                });
  return one != record_.past.end() && seen.random_id == one->random_id &&
         seen.sequence <= one->sequence;
}

absl::Status ClusterState::CheckSeen(const Incarnation& seen) {
  if (seen.incarnation > kMaxIncarnation) {
    return absl::InvalidArgumentError(
        StrCat("incarnation ", seen.incarnation, " cannot be"));
  }
  MutexLock lock(&mutex_);
  highest_seen_ = std::max(highest_seen_, seen.incarnation);
  if (FollowsFrom(seen)) return absl::OkStatus();
  const Incarnation& ours = record_.incarnation;
  return absl::FailedPreconditionError(StrCat(
      "this catalog is at incarnation ", ours.incarnation, ".", ours.sequence,
      " and the node has seen ", seen.incarnation, ".", seen.sequence,
      seen.incarnation <= ours.incarnation ? " of another state" : "",
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

absl::Status ClusterState::MarkTold() {
  if (told()) return absl::OkStatus();
  ClusterRecord next = record();
  next.told = true;
  RETURN_IF_ERROR(store_->Apply({WriteOf(next)}, Store::Durability::kSynced));
  Install(next);
  return absl::OkStatus();
}

ClusterRecord ClusterState::record() const {
  MutexLock lock(&mutex_);
  return record_;
}

ClusterRecord ClusterState::NextAdministrative() const {
  ClusterRecord next = record();
  ++next.incarnation.sequence;
  return next;
}

ClusterRecord ClusterState::Following(const ClusterRecord& after) {
  ClusterRecord next = record_;
  next.past = after.past;
  const Incarnation& ended = after.incarnation;
  if (after.told) {
    next.past.push_back({ended.incarnation, ended.random_id, ended.sequence});
  }
  if (next.past.size() > kMaxPastIncarnations) {
    next.past.erase(next.past.begin());
  }
  next.told = true;
  next.incarnation.incarnation = std::max({record_.incarnation.incarnation,
                                           ended.incarnation, highest_seen_}) +
                                 1;
  next.incarnation.random_id =
      decltype(next.incarnation.random_id)::Make(random_);
  next.incarnation.sequence = 0;
  next.last_change = std::max(next.last_change, highest_cursor_);
  return next;
}

ClusterRecord ClusterState::NextIncarnation() {
  MutexLock lock(&mutex_);
  return Following(record_);
}

ClusterRecord ClusterState::NextRestored(const ClusterRecord& backup) {
  MutexLock lock(&mutex_);
  ClusterRecord next = Following(backup);
  next.cluster = backup.cluster;
  next.last_change = std::max(next.last_change, backup.last_change);
  // What its catalog had outdated stays so.
  next.incarnation.credentials =
      std::max(next.incarnation.credentials, backup.incarnation.credentials);
  return next;
}

ClusterRecord ClusterState::NextAccepted() {
  MutexLock lock(&mutex_);
  ClusterRecord next = Following(record_);
  next.past.clear();
  next.incarnation.credentials = next.incarnation.incarnation;
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
