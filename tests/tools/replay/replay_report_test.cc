// What a replay says for itself; above all, that it never hides a wrong byte.

#include "tools/replay/replay_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firnkv {
namespace {

using testing::HasSubstr;
using testing::Not;

ReplayReport Report() {
  ReplayReport report;
  report.trace_name = "a.jsonl";
  report.trace_requests = 2;
  report.trace_distinct = 3;
  report.namespace_name = "replay";
  report.block_bytes = 64 << 10;
  report.workers = 3;
  report.nodes = 3;
  report.routing = Routing::kAffinity;
  report.took = absl::Seconds(2);
  TraceRequest request;
  request.input_tokens = 1024;
  request.ids = {1, 2};
  report.tally.hits.Count(request, 0, 512);
  report.tally.hits.Count(request, 1, 512);
  report.lru.Count(request, 0, 512);
  report.lru.Count(request, 2, 512);
  report.endless = report.lru;
  report.lru_blocks = 1000;
  report.evictions = 1234;
  report.tally.bytes_mapped = 64 << 10;
  report.tally.read_outcomes[static_cast<std::size_t>(Outcome::kHit)] = 1;
  for (int i = 1; i <= 100; ++i) report.tally.read.Add(absl::Milliseconds(i));
  return report;
}

WrongBlock Wrong() {
  WrongBlock wrong;
  wrong.block.key.bytes[0] = 0xab;
  wrong.request = 17;
  wrong.wrong_bytes = 4096;
  return wrong;
}

TEST(ReplayReportTest, ACleanReplayPassesAndSaysSo) {
  const ReplayReport report = Report();

  EXPECT_TRUE(Passed(report));
  EXPECT_THAT(ReportText(report), HasSubstr("\nwrong bytes: 0\n"));
  EXPECT_THAT(ReportText(report), Not(HasSubstr("WRONG")));
  EXPECT_THAT(ReportJson(report).Text(), HasSubstr("\"wrong_bytes\": 0"));
}

TEST(ReplayReportTest, WrongBytesFailItLoudlyWithTheirKeys) {
  ReplayReport report = Report();
  report.tally.CountWrong(Wrong());

  EXPECT_FALSE(Passed(report));
  EXPECT_THAT(ReportText(report), HasSubstr("\nwrong bytes: 4096\n"));
  EXPECT_THAT(ReportText(report), HasSubstr("key ab00"));
  EXPECT_THAT(ReportText(report), HasSubstr("request 17"));
  EXPECT_THAT(ReportJson(report).Text(), HasSubstr("\"key\": \"ab00"));
}

TEST(ReplayReportTest, FailedCallsFailItToo) {
  ReplayReport report = Report();
  report.tally.failed_calls = 2;
  report.tally.first_failure = "INVALID_ARGUMENT: x";

  EXPECT_FALSE(Passed(report));
  EXPECT_THAT(ReportText(report),
              HasSubstr("FAILED CALLS: 2, the first: INVALID_ARGUMENT: x"));
}

TEST(ReplayReportTest, HitRatesStandBesideThoseOfTheLru) {
  const std::string text = ReportText(Report());

  EXPECT_THAT(text, HasSubstr("LRU of 1,000 blocks"));
  EXPECT_THAT(text, testing::ContainsRegex("blocks +25.00 +50.00 +50.00"));
  EXPECT_THAT(text, HasSubstr("evictions: 1,234"));
}

TEST(ReplayReportTest, WithoutACapacityItSaysWhyThereIsNoLru) {
  ReplayReport report = Report();
  report.lru_blocks.reset();
  report.lru_unknown = "nobody told it";

  EXPECT_THAT(ReportText(report),
              HasSubstr("no LRU to compare with: nobody told it"));
  EXPECT_THAT(ReportJson(report).Text(), Not(HasSubstr("lru_hit_rates")));
}

TEST(ReplayReportTest, QuantilesAreExact) {
  const TimeSample read = Report().tally.read;

  EXPECT_EQ(read.Quantile(0.5), absl::Milliseconds(50));
  EXPECT_EQ(read.Quantile(0.95), absl::Milliseconds(95));
  EXPECT_EQ(read.Quantile(0.99), absl::Milliseconds(99));
  EXPECT_EQ(read.Quantile(1), absl::Milliseconds(100));
  EXPECT_EQ(read.Quantile(0), absl::Milliseconds(1));
  EXPECT_EQ(TimeSample().Quantile(0.5), absl::ZeroDuration());
}

TEST(ReplayReportTest, TheSdksOwnTimesAreBoundedFromAbove) {
  LatencySnapshot snapshot;
  snapshot.cells[3] = 98;
  snapshot.cells[10] = 2;

  EXPECT_EQ(SnapshotQuantile(snapshot, 0.5), absl::Microseconds(8));
  EXPECT_EQ(SnapshotQuantile(snapshot, 0.99), absl::Microseconds(1024));
  EXPECT_EQ(SnapshotQuantile(LatencySnapshot(), 0.5), absl::ZeroDuration());
}

}  // namespace
}  // namespace firnkv
