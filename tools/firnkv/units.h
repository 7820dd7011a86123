// Sizes and times as people write them on a command line.
//
// Threading: pure functions.

#ifndef FIRNKV_TOOLS_FIRNKV_UNITS_H_
#define FIRNKV_TOOLS_FIRNKV_UNITS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace firnkv {

// "4096", "4096B", "64KiB", "2GiB": binary units only, whole numbers.
absl::StatusOr<std::uint64_t> ParseSize(std::string_view text);

// "250ms", "10s", "1h30m"; positive.
absl::StatusOr<absl::Duration> ParseTime(std::string_view text);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_FIRNKV_UNITS_H_
