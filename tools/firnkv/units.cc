#include "tools/firnkv/units.h"

#include <array>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "proto/base/bytes.h"
#include "proto/base/text.h"

namespace firnkv {

absl::StatusOr<std::uint64_t> ParseSize(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 6>
      kUnits = {{{"KiB", kKiB},
                 {"MiB", kMiB},
                 {"GiB", kGiB},
                 {"TiB", 1024 * kGiB},
                 {"B", 1},
                 {"", 1}}};
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string_view number = text.substr(0, digits);
  const std::string_view unit =
      digits == std::string_view::npos ? "" : text.substr(digits);
  for (const auto& [name, bytes] : kUnits) {
    if (name != unit) continue;
    std::uint64_t value = 0;
    if (!absl::SimpleAtoi(ToAbsl(number), &value)) break;
    if (value > std::numeric_limits<std::int64_t>::max() / bytes) break;
    return value * bytes;
  }
  return absl::InvalidArgumentError(
      StrCat("'", text, "' is no size: 4096, 64KiB, 256MiB, 1GiB"));
}

absl::StatusOr<absl::Duration> ParseTime(std::string_view text) {
  absl::Duration time;
  if (!absl::ParseDuration(ToAbsl(text), &time) ||
      time <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        StrCat("'", text, "' is no time: 250ms, 10s, 5m, 1h30m"));
  }
  return time;
}

}  // namespace firnkv
