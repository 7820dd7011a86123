// The simulation's suite: schedules from many seeds, the same seed twice, and
// every seed that once found something.
//
//     sim_test --seed=77 --count=1     replays; firnkv_sim --trace shows it

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/mutex.h"
#include "proto/base/text.h"
#include "tests/sim/kept_seeds.h"
#include "tests/sim/schedule.h"

// A worker that a schedule crashes while its Client is being made leaves it
// behind, as a killed process does; nobody is there to destroy it.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:firnkv::SimWorker::Create\n";
}

namespace firnkv {
namespace {

using ::testing::IsEmpty;

// From the command line. The suite gives each of its shards every so many-th
// seed (CMakeLists.txt).
struct Flags {
  std::uint64_t seed = 1;
  std::uint64_t stride = 1;
  std::uint64_t count = 20;
};
Flags& TheFlags() {
  static Flags flags;
  return flags;
}

TEST(SimTest, TheSameSeedTwiceGivesTheSameHashOverAllEvents) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const ScheduleReport first = RunSchedule({.seed = seed});
    const ScheduleReport second = RunSchedule({.seed = seed});

    EXPECT_EQ(first.event_hash, second.event_hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
  }
}

TEST(SimTest, NoScheduleViolatesAnInvariant) {
  for (std::uint64_t i = 0; i < TheFlags().count; ++i) {
    const std::uint64_t seed = TheFlags().seed + i * TheFlags().stride;
    const ScheduleReport report = RunSchedule({.seed = seed});

    ASSERT_THAT(report.violations, IsEmpty())
        << Describe(report) << "\nreplay: sim_test --count=1 --seed=" << seed
        << "\nor: firnkv_sim --count=1 --trace --seed=" << seed;
    // Not a toy: DESIGN section 9.
    ASSERT_GE(report.operations, 300u);
    ASSERT_GE(report.faults, 10u);
  }
}

class KeptSeedTest : public ::testing::TestWithParam<KeptSeed> {};

TEST_P(KeptSeedTest, IsQuietNow) {
  const ScheduleReport report = RunSchedule({.seed = GetParam().seed});

  EXPECT_THAT(report.violations, IsEmpty()) << Describe(report);
}

INSTANTIATE_TEST_SUITE_P(Found, KeptSeedTest, ::testing::ValuesIn(kKeptSeeds),
                         [](const ::testing::TestParamInfo<KeptSeed>& seed) {
                           return StrCat(seed.param.found, "Seed",
                                         seed.param.seed);
                         });

// A simulation that never meets what it is about would be blind.
TEST(SimTest, SchedulesMeetEvictionRemoteReadsAndRefusals) {
  ScheduleReport sum;
  const std::uint64_t& views_too_late =
      sum.counts.views[static_cast<std::size_t>(Outcome::kTimedOut)];
  const std::uint64_t& reads_of_wrong_size =
      sum.counts.reads[static_cast<std::size_t>(Outcome::kWrongSize)];
  // The rarest of them are met by one schedule in ten or twenty.
  for (std::uint64_t seed = 1;
       seed <= 24 ||
       ((views_too_late == 0 || reads_of_wrong_size == 0) && seed <= 200);
       ++seed) {
    const ScheduleReport report = RunSchedule({.seed = seed});
    sum.evictions += report.evictions;
    sum.copied_hits += report.copied_hits;
    sum.hits_checked += report.hits_checked;
    sum.headers_checked += report.headers_checked;
    sum.intrusions += report.intrusions;
    sum.frame_calls += report.frame_calls;
    sum.frame_intrusions += report.frame_intrusions;
    sum.counts.scribbles_caught += report.counts.scribbles_caught;
    sum.counts.bytes_remote += report.counts.bytes_remote;
    sum.counts.bytes_mapped += report.counts.bytes_mapped;
    for (std::size_t i = 0; i <= kLastOutcome; ++i) {
      sum.counts.reads[i] += report.counts.reads[i];
      sum.counts.writes[i] += report.counts.writes[i];
      sum.counts.views[i] += report.counts.views[i];
    }
  }

  auto reads = [&](Outcome outcome) {
    return sum.counts.reads[static_cast<std::size_t>(outcome)];
  };
  auto writes = [&](Outcome outcome) {
    return sum.counts.writes[static_cast<std::size_t>(outcome)];
  };
  EXPECT_GT(sum.evictions, 100u);
  EXPECT_GT(sum.copied_hits, 100u);
  EXPECT_GT(sum.hits_checked, 1000u);
  EXPECT_GT(sum.headers_checked, 1000u);
  EXPECT_GT(sum.intrusions, 50u);
  EXPECT_GT(sum.frame_calls, 1000u);
  EXPECT_GT(sum.frame_intrusions, 50u);
  EXPECT_GT(sum.counts.scribbles_caught, 0u);
  EXPECT_GT(sum.counts.bytes_remote, 1'000'000u);
  EXPECT_GT(sum.counts.bytes_mapped, 1'000'000u);
  const auto views = [&](Outcome outcome) {
    return sum.counts.views[static_cast<std::size_t>(outcome)];
  };
  EXPECT_GT(views(Outcome::kHit), 20u);
  EXPECT_GT(views(Outcome::kTimedOut), 0u);
  EXPECT_GT(reads(Outcome::kMiss), 0u);
  EXPECT_GT(reads(Outcome::kTimedOut), 0u);
  EXPECT_GT(reads(Outcome::kUnavailable), 0u);
  EXPECT_GT(reads(Outcome::kWrongSize), 0u);
  EXPECT_GT(writes(Outcome::kStored), 100u);
  EXPECT_GT(writes(Outcome::kAlreadyThere), 0u);
  EXPECT_GT(writes(Outcome::kTimedOut), 0u);
  EXPECT_GT(writes(Outcome::kUnavailable), 0u);
}

bool TakeNumber(std::string_view argument, std::string_view name,
                std::uint64_t* value) {
  if (argument.substr(0, name.size()) != name) return false;
  const std::string_view digits = argument.substr(name.size());
  return std::from_chars(digits.data(), digits.data() + digits.size(), *value)
             .ec == std::errc();
}

}  // namespace
}  // namespace firnkv

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  firnkv::TurnOffDeadlockDetection();
  for (int i = 1; i < argc; ++i) {
    firnkv::Flags& flags = firnkv::TheFlags();
    if (!firnkv::TakeNumber(argv[i], "--seed=", &flags.seed) &&
        !firnkv::TakeNumber(argv[i], "--stride=", &flags.stride) &&
        !firnkv::TakeNumber(argv[i], "--count=", &flags.count)) {
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
