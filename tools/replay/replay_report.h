// What a replay has to tell, for people and for programs.
//
// Threading: none; a plain value and functions.

#ifndef FIRNKV_TOOLS_REPLAY_REPLAY_REPORT_H_
#define FIRNKV_TOOLS_REPLAY_REPLAY_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/stats.h"
#include "tools/replay/hit_counts.h"
#include "tools/replay/json.h"
#include "tools/replay/replay_tally.h"
#include "tools/replay/request_router.h"
#include "tools/replay/trace.h"

namespace firnkv {

struct ReplayReport {
  // What was asked for.
  std::string trace_name;
  std::size_t trace_requests = 0;
  std::size_t trace_distinct = 0;
  std::string namespace_name;
  std::uint64_t block_bytes = 0;
  std::uint32_t block_tokens = 0;
  std::size_t workers = 0;
  std::size_t nodes = 0;
  Routing routing = Routing::kInTurn;
  double speed = 0;

  // What happened.
  ReplayTally tally;
  absl::Duration took;
  // Of all workers' Clients.
  std::vector<ClientStats> client_stats;
  // By all nodes, during the replay; nullopt with the reason where unknown.
  std::optional<std::uint64_t> evictions;
  std::string evictions_unknown;

  // A leaf-first LRU of so many blocks, and one without an end, on the same
  // requests. No capacity: not known, with the reason.
  std::optional<std::uint64_t> lru_blocks;
  std::string lru_unknown;
  HitCounts lru;
  HitCounts endless;
};

// Every hit had the right bytes, and every call was answered.
bool Passed(const ReplayReport& report);

std::string ReportText(const ReplayReport& report);
Json ReportJson(const ReplayReport& report);

// The smallest bound below which at least `share` of the durations lie: within
// a factor of two, as the SDK counts them.
absl::Duration SnapshotQuantile(const LatencySnapshot& snapshot, double share);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_REPLAY_REPORT_H_
