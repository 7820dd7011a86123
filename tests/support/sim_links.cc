#include "tests/support/sim_links.h"

namespace firnkv {

void SimLinks::Cut(std::string_view a, std::string_view b) {
  CutOneWay(a, b);
  CutOneWay(b, a);
}

void SimLinks::CutOneWay(std::string_view from, std::string_view to) {
  cut_.emplace(from, to);
}

void SimLinks::Heal(std::string_view a, std::string_view b) {
  cut_.erase({std::string(a), std::string(b)});
  cut_.erase({std::string(b), std::string(a)});
}

bool SimLinks::Reaches(const std::string& from, const std::string& to) const {
  return cut_.empty() || from == to || !cut_.contains({from, to});
}

absl::Duration SimLinks::Delay(const std::string& from, const std::string& to) {
  if (from == to) {
    return world_->Between(absl::Nanoseconds(500), absl::Microseconds(10));
  }
  absl::Duration delay =
      world_->Between(quality_.least_delay, quality_.most_delay);
  if (world_->Chance(quality_.slow_chance)) {
    delay += world_->Between(absl::ZeroDuration(), quality_.slow_delay);
  }
  return delay;
}

}  // namespace firnkv
