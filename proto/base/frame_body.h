// What the bodies of all frames share, for those who encode and decode them
// (frame.cc, write_frame.cc): the checksum at the end, durations, and how an
// error is said.
//
// Pure code over bytes.

#ifndef FIRNKV_PROTO_BASE_FRAME_BODY_H_
#define FIRNKV_PROTO_BASE_FRAME_BODY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/request.h"
#include "proto/base/wire.h"

namespace firnkv {

// INVALID_ARGUMENT: closes the connection.
absl::Status MalformedFrame(std::string_view what);

// Every body, and the lead, ends in the CRC32C of what precedes it.
std::string SealBody(std::string body);
// Its content; an error for a wrong checksum or a size out of bounds.
absl::StatusOr<std::string_view> OpenBody(std::string_view body);

// Durations are microseconds, at most kLongestDeadline.
std::uint64_t MicrosFor(absl::Duration duration);
// nullopt beyond that.
std::optional<absl::Duration> DurationFromMicros(std::uint64_t micros);

// A reason of a peer goes to a log: bounded, and without control characters.
std::string Printable(std::string_view text);

// The request header as frames have it, without its token: the connection's
// hello had that.
void AppendHeader(const RequestHeader& header, WireWriter* writer);
absl::StatusOr<RequestHeader> TakeHeader(WireReader* reader);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_FRAME_BODY_H_
