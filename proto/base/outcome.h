// What became of one block of a read or a write.
//
// One enum serves the wire, the SDK and the metrics. Numbers are wire format:
// never changed, never reused; a new outcome takes the next free number. An
// outcome is what a correct system does every day; a failure of the call as a
// whole is an absl::Status.

#ifndef FIRNKV_PROTO_BASE_OUTCOME_H_
#define FIRNKV_PROTO_BASE_OUTCOME_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace firnkv {

enum class Outcome : std::uint8_t {
  // Zero on the wire means that somebody forgot to answer: a decoder refuses
  // it.
  kUnset = 0,

  // --- Reads.
  // The bytes are in the caller's buffer, and verified.
  kHit = 1,
  // Nobody has it. Recompute.
  kMiss = 2,
  // Older than the retention of its namespace. Recompute.
  kExpired = 3,
  // A writer has reserved it; said only until the reservation's deadline.
  kBeingWritten = 4,
  // A copy failed its checksum. It is isolated, alerted and never served again.
  // As a write: what the node copied is not what the writer said it wrote.
  kCorrupt = 5,
  // The caller may not see this namespace. Never retried elsewhere.
  kDenied = 6,
  // Known, but who has it cannot be reached, or not without risk.
  kUnavailable = 7,
  // The deadline passed first.
  kTimedOut = 8,
  // No room or no turn now. Comes with a retry-after.
  kCongested = 9,
  // Not tried: the leading run had ended before it, or the planner said so.
  kSkipped = 10,
  // The Client was closed, or the caller cancelled.
  kCancelled = 11,
  // The buffer and the block differ in length.
  kWrongSize = 12,
  // Internal: the node asked no longer has it there. Relocate once.
  kStaleLocation = 13,

  // --- Writes.
  // Committed: visible where the caller asked to wait for.
  kStored = 14,
  // A copy of the block is resident; counts as a reference. Nothing was copied.
  kAlreadyThere = 15,
  // The tenant is over its quota.
  kOverQuota = 16,
  // The reservation ended before the commit did. Reserve again.
  kReservationOver = 17,
  // The namespace was cleared meanwhile: the write is of an older clear epoch.
  kCleared = 18,
};

inline constexpr std::uint8_t kLastOutcome = 18;

// "kHit", for logs and tests; "hit", for metric labels and JSON.
std::string_view OutcomeName(Outcome outcome);
std::string_view OutcomeLabel(Outcome outcome);

// The outcome of a byte off the wire; nullopt for zero and for unknown numbers.
std::optional<Outcome> OutcomeFromWire(std::uint8_t number);

// For callers that must turn one block's outcome into a status (the CLI).
// kHit, kStored and kAlreadyThere are OK.
absl::Status OutcomeStatus(Outcome outcome, std::string_view what);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_OUTCOME_H_
