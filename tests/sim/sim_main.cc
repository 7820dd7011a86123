// firnkv_sim: schedules of the simulation, as many as asked for.
//
//     firnkv_sim --count=10000 --seed=1      seeds 1 to 10000
//     firnkv_sim --count=50 --seed=2 --stride=2   every other seed, from 2 on
//     firnkv_sim --count=1 --seed=77 --verbose --trace
//
// Violations are printed as they are found, with the command that replays
// them. The last line is "sim: N schedules, V violations"; the exit status is 0
// only if V is 0.

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "proto/base/mutex.h"
#include "tests/sim/schedule.h"

namespace firnkv {
namespace {

struct Flags {
  std::uint64_t count = 100;
  std::uint64_t stride = 1;
  ScheduleOptions schedule;
  bool verbose = false;
};

bool TakeNumber(std::string_view argument, std::string_view name,
                std::uint64_t* value) {
  if (argument.substr(0, name.size()) != name) return false;
  const std::string_view digits = argument.substr(name.size());
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), *value);
  return result.ec == std::errc() &&
         result.ptr == digits.data() + digits.size();
}

bool Parse(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--verbose") {
      flags->verbose = true;
    } else if (argument == "--trace") {
      flags->schedule.tracing = true;
    } else if (!TakeNumber(argument, "--count=", &flags->count) &&
               !TakeNumber(argument, "--stride=", &flags->stride) &&
               !TakeNumber(argument, "--seed=", &flags->schedule.seed) &&
               !TakeNumber(argument,
                           "--operations=", &flags->schedule.operations) &&
               !TakeNumber(argument, "--faults=", &flags->schedule.faults)) {
      std::fprintf(stderr,
                   "%s: usage: [--seed=S] [--count=N] [--stride=N] "
                   "[--operations=N] [--faults=N] [--verbose] [--trace]\n",
                   argv[i]);
      return false;
    }
  }
  return true;
}

int Run(const Flags& flags) {
  std::uint64_t violations = 0;
  for (std::uint64_t i = 0; i < flags.count; ++i) {
    const std::uint64_t seed = flags.schedule.seed + i * flags.stride;
    ScheduleOptions options = flags.schedule;
    options.seed = seed;
    const ScheduleReport report = RunSchedule(options);
    violations += report.violations.size();
    if (flags.verbose || !report.violations.empty()) {
      std::printf("%s\n", Describe(report).c_str());
    }
    if (!report.violations.empty()) {
      std::printf("  replay: firnkv_sim --count=1 --seed=%llu --trace\n",
                  static_cast<unsigned long long>(seed));
    }
    std::fflush(stdout);
  }
  std::printf("sim: %llu schedules, %llu violations\n",
              static_cast<unsigned long long>(flags.count),
              static_cast<unsigned long long>(violations));
  return violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace firnkv

int main(int argc, char** argv) {
  firnkv::TurnOffDeadlockDetection();
  firnkv::Flags flags;
  if (!firnkv::Parse(argc, argv, &flags)) return 2;
  return firnkv::Run(flags);
}
