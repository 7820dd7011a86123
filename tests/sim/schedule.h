// One schedule of the simulation: a cluster, its workload, its faults, then
// quiet, then the reckoning. All of it follows from the seed.
//
// Invariants (oracle.h judges while it runs):
//   - never wrong bytes, never another tenant's, nothing cleared comes back;
//   - every operation ends, both ends once, in time;
//   - what a header says of a slot is true, and no generation comes twice
//     (header_check.h);
//   - what a session had ends with it;
//   - what servers answer is right, also where clients would not believe it
//     (answer_check.h), and to whoever has no right to ask (intruder.h);
// and after quiet:
//   - the index and the nodes agree: what the catalog would tell a reader is
//     what the nodes have, and leading runs are as long as they can be;
//   - no slot, lease, hold, reservation or mapping is left over;
//   - every key can be written again, and read from another node;
//   - a scene of what is seldom met by chance ends well (trials.h).
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SIM_SCHEDULE_H_
#define FIRNKV_TESTS_SIM_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/operations.h"

namespace firnkv {

struct ScheduleOptions {
  std::uint64_t seed = 1;
  // At least.
  std::uint64_t operations = 300;
  std::uint64_t faults = 10;
  // A line for each event on standard error.
  bool tracing = false;
};

struct ScheduleReport {
  std::uint64_t seed = 0;
  std::vector<std::string> violations;
  // Over all events, in order.
  std::uint64_t event_hash = 0;
  std::uint64_t events = 0;
  // Begun before the calm: reads, writes, views, questions, removals.
  std::uint64_t operations = 0;
  std::uint64_t faults = 0;
  std::uint64_t hits_checked = 0;
  std::uint64_t headers_checked = 0;
  // Calls that no well-behaved client makes.
  std::uint64_t intrusions = 0;
  // Of sessions' sockets, and of those what an intruder sent.
  std::uint64_t frame_calls = 0;
  std::uint64_t frame_intrusions = 0;
  std::uint64_t evictions = 0;
  // Local reads that found a copy of another node's copy.
  std::uint64_t copied_hits = 0;
  OperationCounts counts;
};

ScheduleReport RunSchedule(const ScheduleOptions& options);

// What happened, for people.
std::string Describe(const ScheduleReport& report);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SIM_SCHEDULE_H_
