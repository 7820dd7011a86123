// What lies between hosts: delays, cuts, and how badly calls are treated. One
// for a whole simulated world; the fakes of network and control ask it.
//
// Threading. One thread only. Outlives the fakes that ask it.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_LINKS_H_
#define FIRNKV_TESTS_SUPPORT_SIM_LINKS_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "tests/support/sim_executor.h"

namespace firnkv {

class SimLinks {
 public:
  // How every link behaves. Chances are out of a thousand.
  struct Quality {
    absl::Duration least_delay = absl::Microseconds(20);
    absl::Duration most_delay = absl::Microseconds(200);
    // A message takes this much longer, once in a while.
    std::uint32_t slow_chance = 0;
    absl::Duration slow_delay = absl::Milliseconds(300);
    // Of control calls between hosts.
    std::uint32_t drop_request_chance = 0;
    std::uint32_t drop_reply_chance = 0;
    std::uint32_t duplicate_chance = 0;
    // Of connections, at each piece sent.
    std::uint32_t reset_chance = 0;
    std::uint32_t stall_chance = 0;
    absl::Duration stall = absl::Seconds(1);
    // A send that reads its memory late takes up to this much longer at a step:
    // time for somebody to reuse the memory too early (rule P8).
    std::uint32_t slow_send_chance = 0;
    absl::Duration slow_send = absl::Milliseconds(30);
  };

  explicit SimLinks(SimExecutor* world) : world_(world) {}

  SimExecutor* world() const { return world_; }
  Quality& quality() { return quality_; }

  // Nothing gets from the one to the other, either way, until Heal.
  void Cut(std::string_view a, std::string_view b);
  // One way only: what `from` sends is lost.
  void CutOneWay(std::string_view from, std::string_view to);
  void Heal(std::string_view a, std::string_view b);
  void HealAll() { cut_.clear(); }
  bool Reaches(const std::string& from, const std::string& to) const;

  // For one message. Inside a host: a microsecond or so.
  absl::Duration Delay(const std::string& from, const std::string& to);

 private:
  SimExecutor* const world_;
  Quality quality_;
  std::set<std::pair<std::string, std::string>> cut_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_LINKS_H_
