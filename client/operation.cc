#include "client/operation.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Keys are hashes, so their first bytes need no hashing: a table of twice as
// many places, searched from there. Null: none stands twice.
const BlockKey* FirstTwice(const std::vector<BlockKey>& keys) {
  const std::size_t mask = std::bit_ceil(2 * keys.size() + 1) - 1;
  constexpr std::uint16_t kFree = 0;  // Else an index, plus one.
  static_assert(kMaxBatchKeys < UINT16_MAX);
  absl::InlinedVector<std::uint16_t, 512> table(mask + 1, kFree);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::uint64_t place = 0;
    std::memcpy(&place, keys[i].bytes.data(), sizeof(place));
    for (place &= mask; table[place] != kFree; place = (place + 1) & mask) {
      if (keys[table[place] - 1u] == keys[i]) return &keys[i];
    }
    table[place] = static_cast<std::uint16_t>(i + 1);
  }
  return nullptr;
}

}  // namespace

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
  if (const BlockKey* const twice = FirstTwice(keys)) {
    return absl::InvalidArgumentError(
        StrCat("key ", ToHex(*twice), " stands twice in ", what));
  }
  return absl::OkStatus();
}

Outcome OutcomeOf(const absl::Status& failure) {
  switch (failure.code()) {
    case absl::StatusCode::kPermissionDenied:
      return Outcome::kDenied;
    // What this Client was let in with has ended: its session, in a pause, or
    // its token. The next one is on its way; it is nobody who may not.
    case absl::StatusCode::kUnauthenticated:
      return Outcome::kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kTimedOut;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kCongested;
    default:
      return Outcome::kUnavailable;
  }
}

}  // namespace firnkv
