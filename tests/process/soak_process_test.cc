// A short soak, of a new seed each time.

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/text.h"
#include "tests/process/process_soak.h"

namespace firnkv {
namespace {

class SoakTest : public ProcessTest {};

TEST_F(SoakTest, AShortSoakReadsNoWrongByteAndLeavesNothingBehind) {
  const std::uint64_t seed = SystemRandom().Next64();
  RecordProperty("seed", StrCat(seed));
  SCOPED_TRACE(StrCat("seed ", seed));
  ProcessSoak soak({.reads = 60'000,
                    .time = absl::Seconds(12),
                    .seed = seed,
                    .nodes = 2,
                    .dram_bytes = 256 * kMiB,
                    .reads_a_fault = 4'000,
                    .time_a_fault = absl::Seconds(1)});

  const SoakTotals totals = soak.Run();

  EXPECT_EQ(totals.wrong, 0);
  EXPECT_EQ(totals.leaked, 0);
  EXPECT_EQ(totals.stuck, 0);
  EXPECT_GT(totals.reads, 0);
  EXPECT_GT(totals.remote_reads, 0);
  EXPECT_GT(totals.frame_calls, 0);
  EXPECT_GT(totals.received_bytes, 0);
  EXPECT_GT(totals.kills + totals.other_faults, 0);
}

}  // namespace
}  // namespace firnkv
