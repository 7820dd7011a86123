// What /metrics says is what the counters hold.

#include "server/base/metrics.h"

#include <string>

#include "gtest/gtest.h"
#include "server/base/prometheus_text.h"

namespace firnkv {
namespace {

TEST(MetricsTest, ACounterIsRenderedWithItsHelpTypeAndLabels) {
  Counter hits;
  hits.Add(3);
  MetricList list;
  list.AddCounter("firnkv_node_reads_total", "Blocks read.", &hits,
                  {{"outcome", "hit"}});

  EXPECT_EQ(RenderPrometheus(list),
            "# HELP firnkv_node_reads_total Blocks read.\n"
            "# TYPE firnkv_node_reads_total counter\n"
            "firnkv_node_reads_total{outcome=\"hit\"} 3\n");
}

TEST(MetricsTest, AHistogramsBucketsAddUpToItsCount) {
  LatencyHistogram histogram;
  histogram.Add(absl::Microseconds(3));
  histogram.Add(absl::Seconds(100));
  MetricList list;
  list.AddHistogram("firnkv_node_read_seconds", "Time.", &histogram);

  const std::string text = RenderPrometheus(list);

  EXPECT_NE(text.find("le=\"2e-06\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("le=\"4e-06\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("le=\"+Inf\"} 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("firnkv_node_read_seconds_count 2\n"), std::string::npos)
      << text;
}

TEST(MetricsTest, AGaugeIsReadWhenItIsAskedFor) {
  double value = 1;
  MetricList list;
  list.AddGauge("firnkv_node_blocks", "Blocks.", [&value] { return value; });
  value = 42;

  EXPECT_NE(RenderPrometheus(list).find("firnkv_node_blocks 42\n"),
            std::string::npos);
}

TEST(MetricsTest, ACountThatSomebodyElseKeepsIsACounter) {
  std::uint64_t count = 1;
  MetricList list;
  list.AddCounter("firnkv_node_evictions_total", "Evictions.",
                  [&count] { return count; });
  count = 42;

  EXPECT_NE(
      RenderPrometheus(list).find("# TYPE firnkv_node_evictions_total counter\n"
                                  "firnkv_node_evictions_total 42\n"),
      std::string::npos);
  EXPECT_NE(RenderMetricsTable(list).find("| counter |"), std::string::npos);
}

TEST(MetricsTest, TheTableHasOneLineAName) {
  Counter a;
  Counter b;
  MetricList list;
  list.AddCounter("x_total", "X.", &a, {{"outcome", "hit"}});
  list.AddCounter("x_total", "X.", &b, {{"outcome", "miss"}});

  const std::string table = RenderMetricsTable(list);

  EXPECT_NE(table.find("| `x_total` | counter | outcome | X. |\n"),
            std::string::npos);
  EXPECT_EQ(table.find("x_total"), table.rfind("x_total"));
}

}  // namespace
}  // namespace firnkv
