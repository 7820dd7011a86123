// What every request carries, frame or RPC, and the handshake that comes before
// the first one.

#ifndef FIRNKV_PROTO_BASE_REQUEST_H_
#define FIRNKV_PROTO_BASE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/id.h"

namespace firnkv {

// The wire contract as a whole. A peer speaks a range; both take the highest
// common one, and what came with a later version is not said.
inline constexpr std::uint32_t kProtocolVersion = 2;
inline constexpr std::uint32_t kOldestProtocolVersion = 1;
// Writes over the stream (write_frame.h).
inline constexpr std::uint32_t kProtocolOfStreamWrites = 2;

// Whose work this is, for budgets: foreground may borrow from the others, never
// the reverse. Numbers are wire format.
enum class TrafficClass : std::uint8_t {
  kForeground = 1,
  kBackgroundWrite = 2,
  kWarmUp = 3,
  kRebuild = 4,
};

// nullopt for zero and for unknown numbers.
std::optional<TrafficClass> TrafficClassFromWire(std::uint32_t number);

struct RequestHeader {
  // Left until the caller's deadline when it sent this. Durations cross the
  // wire, instants never do.
  absl::Duration remaining;
  TrafficClass traffic = TrafficClass::kForeground;
  TraceId trace;
  // One of the two says who asks: the session on a node's own unix sockets
  // (rule S3), the token everywhere else (token.h).
  SessionId session;
  std::string token;
  // The oldest version that has all that the request says: so it is understood
  // by every peer that can serve it.
  std::uint32_t protocol = kOldestProtocolVersion;
};

// What is wrong: DEADLINE_EXCEEDED where no time is left; INVALID_ARGUMENT for
// more than kLongestDeadline, an unknown class, a token over its bound;
// FAILED_PRECONDITION for a protocol version that this build does not speak.
absl::Status Validate(const RequestHeader& header);

// First message of every connection, both ways.
struct Handshake {
  std::uint32_t oldest_protocol = kOldestProtocolVersion;
  std::uint32_t newest_protocol = kProtocolVersion;
  // Zero from a client that has not met a cluster yet.
  ClusterId cluster;
  // HandshakeTestVector() of the sender's build.
  BlockKey test_vector;
};

// The version to speak; or why not, for the peer's log and ours: a wrong
// cluster, no common version, a different recipe.
absl::StatusOr<std::uint32_t> Agree(const Handshake& ours,
                                    const Handshake& theirs);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_REQUEST_H_
