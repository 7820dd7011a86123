#include "client/operation.h"

#include "absl/container/flat_hash_set.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {

absl::Status CheckBatch(const ClientParts& parts, std::string_view what,
                        absl::Duration deadline,
                        const std::vector<BlockKey>& keys) {
  if (deadline <= absl::ZeroDuration() ||
      deadline > parts.options->longest_deadline) {
    return absl::InvalidArgumentError(
        StrCat("the deadline of ", what, " is ", absl::FormatDuration(deadline),
               "; it must be positive and at most ",
               absl::FormatDuration(parts.options->longest_deadline)));
  }
  if (keys.size() > kMaxBatchKeys) {
    return absl::InvalidArgumentError(
        StrCat(what, " of ", keys.size(), " blocks; at most ", kMaxBatchKeys));
  }
  absl::flat_hash_set<BlockKey> seen;
  seen.reserve(keys.size());
  for (const BlockKey& key : keys) {
    if (!seen.insert(key).second) {
      return absl::InvalidArgumentError(
          StrCat("key ", ToHex(key), " stands twice in ", what));
    }
  }
  return absl::OkStatus();
}

Outcome OutcomeOf(const absl::Status& failure) {
  switch (failure.code()) {
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return Outcome::kDenied;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kTimedOut;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kCongested;
    default:
      return Outcome::kUnavailable;
  }
}

}  // namespace firnkv
