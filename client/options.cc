#include "client/options.h"

#include "proto/base/text.h"

namespace firnkv {
namespace {

absl::Status OutOfBounds(std::string_view option, std::string_view bounds) {
  return absl::InvalidArgumentError(
      StrCat("ClientOptions::", option, " must be ", bounds));
}

absl::Status ValidateTimes(const ClientOptions& options) {
  const auto within = [](absl::Duration value, absl::Duration low,
                         absl::Duration high) {
    return value >= low && value <= high;
  };
  if (!within(options.connect_timeout, absl::Milliseconds(1),
              kLongestDeadline)) {
    return OutOfBounds("connect_timeout", "1 ms to 2 min");
  }
  if (!within(options.longest_deadline, absl::Milliseconds(1),
              kLongestDeadline)) {
    return OutOfBounds("longest_deadline", "1 ms to 2 min");
  }
  if (!within(options.buffer_grace, absl::Milliseconds(1), absl::Minutes(1))) {
    return OutOfBounds("buffer_grace", "1 ms to 1 min");
  }
  if (!within(options.read_lease, absl::Milliseconds(10), absl::Minutes(1))) {
    return OutOfBounds("read_lease", "10 ms to 1 min");
  }
  if (!within(options.reservation, absl::Milliseconds(10), absl::Hours(1))) {
    return OutOfBounds("reservation", "10 ms to 1 h");
  }
  if (!within(options.location_life, absl::ZeroDuration(), absl::Hours(1))) {
    return OutOfBounds("location_life", "0 to 1 h");
  }
  if (!within(options.stream_connect_timeout, absl::Milliseconds(1),
              kLongestDeadline)) {
    return OutOfBounds("stream_connect_timeout", "1 ms to 2 min");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const ClientOptions& options) {
  if (absl::Status times = ValidateTimes(options); !times.ok()) return times;
  if (options.socket_path.empty() && options.catalog_address.empty()) {
    return absl::InvalidArgumentError(
        "ClientOptions needs a socket_path or a catalog_address");
  }
  if (options.socket_path.empty() && options.token.empty() &&
      !options.token_source) {
    return OutOfBounds("token", "given where there is no socket_path");
  }
  if (options.token.size() > kMaxTokenBytes) {
    return OutOfBounds("token", "at most 512 bytes");
  }
  if (options.client_name.size() > kMaxNameBytes) {
    return OutOfBounds("client_name", "at most 128 bytes");
  }
  if (options.staging_bytes < kMiB) {
    return OutOfBounds("staging_bytes", "at least 1 MiB");
  }
  if (options.streams_per_node < 1 || options.streams_per_node > 64) {
    return OutOfBounds("streams_per_node", "1 to 64");
  }
  if (options.threads < 1 || options.threads > 256) {
    return OutOfBounds("threads", "1 to 256");
  }
  return absl::OkStatus();
}

}  // namespace firnkv
