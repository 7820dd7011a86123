#include "server/catalog/cluster_state.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

constexpr std::string_view kPastKey = "past";

std::uint32_t ChecksumOf(std::string_view text) {
  return Crc32c({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

absl::StatusOr<std::vector<Incarnation>> DecodePast(std::string_view value) {
  WireReader in(value);
  const std::uint32_t count = in.U32();
  std::vector<Incarnation> past;
  for (std::uint32_t n = 0; n < count && in.ok(); ++n) {
    Incarnation& one = past.emplace_back();
    one.incarnation = in.U64();
    one.random_id = in.TakeId<decltype(one.random_id)>();
    one.sequence = in.U64();
  }
  const std::size_t sealed =
      value.size() - std::min<std::size_t>(value.size(), sizeof(count));
  const std::uint32_t checksum = in.U32();
  if (count > ClusterState::kMaxPast || !in.AtEnd() ||
      checksum != ChecksumOf(value.substr(0, sealed))) {
    return absl::DataLossError("the record of past incarnations is damaged");
  }
  return past;
}

}  // namespace

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
  ASSIGN_OR_RETURN(const std::optional<std::string> earlier,
                   store_->Get(Family::kMeta, kPastKey));
  std::vector<Incarnation> past;
  if (earlier.has_value()) {
    ASSIGN_OR_RETURN(past, DecodePast(*earlier));
  }
  if (value.has_value()) past.push_back(record.incarnation);
  if (past.size() > kMaxPast) past.erase(past.begin());
  {
    MutexLock lock(&mutex_);
    // What a lost tail may have used is below the floor.
    next_sequence_ = record.sequence_floor + 1;
    record_ = record;
  }
  ClusterRecord next = NextIncarnation(record.incarnation);
  next.sequence_floor += kSequenceStep;
  RETURN_IF_ERROR(store_->Apply({WriteOf(next), WriteOfPast(past)},
                                Store::Durability::kSynced));
  Install(next);
  InstallPast(std::move(past));
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
  if (!IsForeign(seen)) return absl::OkStatus();
  const bool same = seen.incarnation == ours.incarnation;
  return absl::FailedPreconditionError(StrCat(
      "this catalog is at incarnation ", ours.incarnation, ".", ours.sequence,
      " and the node has seen ", seen.incarnation, ".", seen.sequence,
      same ? " of another state" : "",
      ": it was restored from a backup, or its directory was copied; if this "
      "is the catalog to go on with, run `firnkv catalog accept-restore`"));
}

bool ClusterState::IsForeign(const Incarnation& seen) const {
  const auto differs = [&seen](const Incarnation& own) {
    return seen.random_id != own.random_id || seen.sequence > own.sequence;
  };
  if (seen.incarnation >= record_.incarnation.incarnation) {
    return seen.incarnation > record_.incarnation.incarnation ||
           differs(record_.incarnation);
  }
  const auto own =
      std::find_if(past_.begin(), past_.end(), [&seen](const Incarnation& one) {
        return one.incarnation == seen.incarnation;
      });
  return own != past_.end() && differs(*own);
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

Store::Write ClusterState::WriteOfPast(absl::Span<const Incarnation> past) {
  std::string value;
  WireWriter out(&value);
  out.U32(static_cast<std::uint32_t>(past.size()));
  for (const Incarnation& one : past) {
    out.U64(one.incarnation);
    out.Id(one.random_id);
    out.U64(one.sequence);
  }
  out.U32(ChecksumOf(value));
  return {Family::kMeta, std::string(kPastKey), std::move(value)};
}

void ClusterState::InstallPast(std::vector<Incarnation> past) {
  MutexLock lock(&mutex_);
  past_ = std::move(past);
}

absl::Status ClusterState::ForgetPast() {
  RETURN_IF_ERROR(store_->Apply({WriteOfPast({})}, Store::Durability::kSynced));
  InstallPast({});
  return absl::OkStatus();
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
