#include "proto/base/outcome.h"

#include <string>

#include "proto/base/text.h"

namespace firnkv {
namespace {

struct Names {
  std::string_view name;
  std::string_view label;
  absl::StatusCode code;
};

Names NamesOf(Outcome outcome) {
  using enum absl::StatusCode;
  switch (outcome) {
    case Outcome::kUnset:
      return {"kUnset", "unset", kInternal};
    case Outcome::kHit:
      return {"kHit", "hit", kOk};
    case Outcome::kMiss:
      return {"kMiss", "miss", kNotFound};
    case Outcome::kExpired:
      return {"kExpired", "expired", kNotFound};
    case Outcome::kBeingWritten:
      return {"kBeingWritten", "being_written", kUnavailable};
    case Outcome::kCorrupt:
      return {"kCorrupt", "corrupt", kDataLoss};
    case Outcome::kDenied:
      return {"kDenied", "denied", kPermissionDenied};
    case Outcome::kUnavailable:
      return {"kUnavailable", "unavailable", kUnavailable};
    case Outcome::kTimedOut:
      return {"kTimedOut", "timed_out", kDeadlineExceeded};
    case Outcome::kCongested:
      return {"kCongested", "congested", kResourceExhausted};
    case Outcome::kSkipped:
      return {"kSkipped", "skipped", kFailedPrecondition};
    case Outcome::kCancelled:
      return {"kCancelled", "cancelled", kCancelled};
    case Outcome::kWrongSize:
      return {"kWrongSize", "wrong_size", kInvalidArgument};
    case Outcome::kStaleLocation:
      return {"kStaleLocation", "stale_location", kUnavailable};
    case Outcome::kStored:
      return {"kStored", "stored", kOk};
    case Outcome::kAlreadyThere:
      return {"kAlreadyThere", "already_there", kOk};
    case Outcome::kOverQuota:
      return {"kOverQuota", "over_quota", kResourceExhausted};
    case Outcome::kReservationOver:
      return {"kReservationOver", "reservation_over", kFailedPrecondition};
    case Outcome::kCleared:
      return {"kCleared", "cleared", kFailedPrecondition};
  }
  // A number that no enumerator has: memory was overwritten, or somebody cast a
  // byte off the wire instead of asking OutcomeFromWire.
  return {"kInvalid", "invalid", kInternal};
}

}  // namespace

std::string_view OutcomeName(Outcome outcome) { return NamesOf(outcome).name; }

std::string_view OutcomeLabel(Outcome outcome) {
  return NamesOf(outcome).label;
}

std::optional<Outcome> OutcomeFromWire(std::uint8_t number) {
  if (number == 0 || number > kLastOutcome) return std::nullopt;
  return static_cast<Outcome>(number);
}

absl::Status OutcomeStatus(Outcome outcome, std::string_view what) {
  const Names names = NamesOf(outcome);
  if (names.code == absl::StatusCode::kOk) return absl::OkStatus();
  return absl::Status(names.code, StrCat(what, ": ", names.name));
}

}  // namespace firnkv
