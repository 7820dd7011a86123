#include "proto/base/request.h"

#include <algorithm>

#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

absl::Status Refused(std::string_view why) {
  return absl::FailedPreconditionError(ToAbsl(why));
}

}  // namespace

std::optional<TrafficClass> TrafficClassFromWire(std::uint32_t number) {
  if (number < 1 || number > 4) return std::nullopt;
  return static_cast<TrafficClass>(number);
}

absl::Status Validate(const RequestHeader& header) {
  if (header.protocol < kOldestProtocolVersion ||
      header.protocol > kProtocolVersion) {
    return Refused(StrCat("protocol version ", header.protocol,
                          "; this build speaks ", kOldestProtocolVersion,
                          " to ", kProtocolVersion));
  }
  const auto traffic = static_cast<std::uint32_t>(header.traffic);
  if (!TrafficClassFromWire(traffic)) {
    return absl::InvalidArgumentError(
        StrCat("traffic class ", traffic, " is unknown"));
  }
  if (header.token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(StrCat("a token of ", header.token.size(),
                                             " bytes; at most ", kMaxTokenBytes,
                                             " are allowed"));
  }
  if (header.remaining > kLongestDeadline) {
    return absl::InvalidArgumentError(StrCat(
        "a deadline in ", absl::FormatDuration(header.remaining), "; at most ",
        absl::FormatDuration(kLongestDeadline), " are allowed"));
  }
  if (header.remaining <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("no time is left for the request");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::uint32_t> Agree(const Handshake& ours,
                                    const Handshake& theirs) {
  if (theirs.oldest_protocol > theirs.newest_protocol) {
    return Refused(StrCat("the peer speaks protocol versions ",
                          theirs.oldest_protocol, " to ",
                          theirs.newest_protocol, ", which are none"));
  }
  const std::uint32_t highest =
      std::min(ours.newest_protocol, theirs.newest_protocol);
  if (highest < std::max(ours.oldest_protocol, theirs.oldest_protocol)) {
    return Refused(StrCat("no common protocol version: the peer speaks ",
                          theirs.oldest_protocol, " to ",
                          theirs.newest_protocol, ", this build ",
                          ours.oldest_protocol, " to ", ours.newest_protocol));
  }
  if (theirs.test_vector != ours.test_vector) {
    return Refused(StrCat("the peer makes block keys by another recipe: ",
                          ToHex(theirs.test_vector),
                          " for the test vector, "
                          "this build ",
                          ToHex(ours.test_vector)));
  }
  if (!ours.cluster.IsZero() && !theirs.cluster.IsZero() &&
      ours.cluster != theirs.cluster) {
    return Refused(StrCat("the peer belongs to cluster ", ToHex(theirs.cluster),
                          ", this is cluster ", ToHex(ours.cluster)));
  }
  return highest;
}

}  // namespace firnkv
