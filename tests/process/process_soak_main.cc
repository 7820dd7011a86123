// firnkv_process_soak: the soak of real processes, for as long as one likes.
//
//     firnkv_process_soak [--count READS | --for DURATION] [--seed SEED]
//
// Its last line is `process: N reads, W wrong, L leaked, S stuck`. It ends with
// 0 only if the last three are 0 and, where it was asked for kFullCount reads
// or more, the shares of a full run were reached. Needs root, and the programs
// in FIRNKV_BIN (else build/release/bin).

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "proto/base/bytes.h"
#include "proto/base/random.h"
#include "proto/base/text.h"
#include "tests/process/process_soak.h"

namespace firnkv {
namespace {

// What counts as a full run, and what it must have seen.
constexpr std::uint64_t kFullCount = 10'000'000;
constexpr double kLeastRemoteShare = 0.3;
constexpr std::uint64_t kLeastReuses = 100'000;
constexpr std::uint64_t kLeastKills = 100;

constexpr char kUsage[] =
    "firnkv_process_soak [--count READS | --for DURATION] [--seed SEED]\n";

bool Parse(const std::vector<std::string>& words,
           ProcessSoak::Options* options) {
  options->reads = kFullCount;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    const std::string& value = words[i + 1];
    if (words[i] == "--count") {
      if (!absl::SimpleAtoi(value, &options->reads)) return false;
    } else if (words[i] == "--for") {
      options->reads = UINT64_MAX;
      if (!absl::ParseDuration(value, &options->time)) return false;
    } else if (words[i] == "--seed") {
      if (!absl::SimpleAtoi(value, &options->seed)) return false;
    } else {
      return false;
    }
  }
  return words.size() % 2 == 0;
}

// Whether a full run has seen enough of everything.
bool SawEnough(const SoakTotals& totals, std::uint64_t asked) {
  if (asked == UINT64_MAX || asked < kFullCount) return true;
  return totals.reads >= kFullCount &&
         static_cast<double>(totals.remote_reads) >=
             kLeastRemoteShare * static_cast<double>(totals.reads) &&
         totals.reuses >= kLeastReuses && totals.kills >= kLeastKills &&
         totals.frame_calls > 0 && totals.received_bytes > 0 &&
         totals.promoted > 0;
}

int Main(const std::vector<std::string>& words) {
  ProcessSoak::Options options;
  options.seed = SystemRandom().Next64();
  options.progress = true;
  if (!Parse(words, &options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (geteuid() != 0) {
    std::fputs(
        "process: only root can run daemons and clients as users of "
        "their own; run this as root\n",
        stderr);
    return 2;
  }
  std::printf("process: seed %s\n", StrCat(options.seed).c_str());
  std::fflush(stdout);
  const SoakTotals totals = ProcessSoak(options).Run();
  const bool enough = SawEnough(totals, options.reads);
  const double share = totals.reads == 0
                           ? 0
                           : 100.0 * static_cast<double>(totals.remote_reads) /
                                 static_cast<double>(totals.reads);
  std::printf(
      "%s\n",
      StrCat("process: ", share, " % of the reads remote, ", totals.view_reads,
             " by views, ", totals.bytes / kGiB, " GiB read, ", totals.stored,
             " blocks stored, ", totals.received_bytes / kGiB,
             " GiB of them sent by remote writers, ", totals.promoted,
             " blocks promoted, ", totals.frame_calls, " calls as frames, ",
             totals.reuses, " slots reused, ", totals.kills, " kills, ",
             totals.other_faults, " other faults, ", totals.operations,
             " operations, the latest over by ",
             absl::FormatDuration(totals.longest_over),
             enough ? "" : ": less than a full run must see")
          .c_str());
  std::printf("process: %s\n",
              StrCat(totals.reads, " reads, ", totals.wrong, " wrong, ",
                     totals.leaked, " leaked, ", totals.stuck, " stuck")
                  .c_str());
  return totals.wrong + totals.leaked + totals.stuck == 0 && enough ? 0 : 1;
}

}  // namespace
}  // namespace firnkv

int main(int argc, char** argv) {
  return firnkv::Main({argv + 1, argv + argc});
}
