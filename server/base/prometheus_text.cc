#include "server/base/prometheus_text.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <vector>

#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace firnkv {
namespace {

prometheus::ClientMetric::Histogram Distribution(
    const LatencyHistogram& cells) {
  prometheus::ClientMetric::Histogram histogram;
  for (std::size_t i = 0; i < LatencyHistogram::kBuckets; ++i) {
    histogram.sample_count += cells.cell(i);
    const bool last = i + 1 == LatencyHistogram::kBuckets;
    // Cell i counts what is below 2^i microseconds.
    histogram.bucket.push_back(
        {.cumulative_count = histogram.sample_count,
         .upper_bound = last ? std::numeric_limits<double>::infinity()
                             : std::ldexp(1e-6, static_cast<int>(i))});
  }
  histogram.sample_sum = static_cast<double>(cells.sum_nanos()) * 1e-9;
  return histogram;
}

struct Sample {
  prometheus::MetricType type;
  prometheus::ClientMetric metric;
};

Sample Read(const Metric& metric) {
  Sample sample;
  for (const auto& [name, value] : metric.labels) {
    sample.metric.label.push_back({name, value});
  }
  if (const auto* counter = std::get_if<const Counter*>(&metric.read)) {
    sample.type = prometheus::MetricType::Counter;
    sample.metric.counter.value = static_cast<double>((*counter)->value());
  } else if (const auto* histogram =
                 std::get_if<const LatencyHistogram*>(&metric.read)) {
    sample.type = prometheus::MetricType::Histogram;
    sample.metric.histogram = Distribution(**histogram);
  } else if (const auto* count =
                 std::get_if<std::function<std::uint64_t()>>(&metric.read)) {
    sample.type = prometheus::MetricType::Counter;
    sample.metric.counter.value = static_cast<double>((*count)());
  } else {
    sample.type = prometheus::MetricType::Gauge;
    sample.metric.gauge.value =
        std::get<std::function<double()>>(metric.read)();
  }
  return sample;
}

}  // namespace

std::string RenderPrometheus(const MetricList& list) {
  // The format wants all lines of a name together.
  std::map<std::string, prometheus::MetricFamily> by_name;
  for (const Metric& metric : list.metrics()) {
    Sample sample = Read(metric);
    prometheus::MetricFamily& family = by_name[metric.name];
    family.name = metric.name;
    family.help = metric.help;
    family.type = sample.type;
    family.metric.push_back(std::move(sample.metric));
  }
  std::vector<prometheus::MetricFamily> families;
  families.reserve(by_name.size());
  for (auto& [name, family] : by_name) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace firnkv
