#include "server/base/metrics.h"

#include <cstddef>
#include <map>
#include <string_view>

#include "proto/base/text.h"

namespace firnkv {
namespace {

// In the order of Metric::Reader's alternatives.
constexpr std::string_view kKinds[] = {"counter", "gauge", "histogram",
                                       "counter"};

// By name, in order: the format wants all lines of a name together.
std::map<std::string_view, std::vector<const Metric*>> ByName(
    const MetricList& list) {
  std::map<std::string_view, std::vector<const Metric*>> by_name;
  for (const Metric& metric : list.metrics()) {
    by_name[metric.name].push_back(&metric);
  }
  return by_name;
}

}  // namespace

void MetricList::AddCounter(std::string name, std::string help,
                            const Counter* counter, MetricLabels labels) {
  metrics_.push_back(Metric{.name = std::move(name),
                            .help = std::move(help),
                            .labels = std::move(labels),
                            .read = counter});
}

void MetricList::AddCounter(std::string name, std::string help,
                            std::function<std::uint64_t()> count,
                            MetricLabels labels) {
  metrics_.push_back(Metric{.name = std::move(name),
                            .help = std::move(help),
                            .labels = std::move(labels),
                            .read = std::move(count)});
}

void MetricList::AddGauge(std::string name, std::string help,
                          std::function<double()> value, MetricLabels labels) {
  metrics_.push_back(Metric{.name = std::move(name),
                            .help = std::move(help),
                            .labels = std::move(labels),
                            .read = std::move(value)});
}

void MetricList::AddHistogram(std::string name, std::string help,
                              const LatencyHistogram* histogram,
                              MetricLabels labels) {
  metrics_.push_back(Metric{.name = std::move(name),
                            .help = std::move(help),
                            .labels = std::move(labels),
                            .read = histogram});
}

std::string RenderMetricsTable(const MetricList& list) {
  std::string out = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
  for (const auto& [name, metrics] : ByName(list)) {
    std::string labels;
    for (const auto& [label, value] : metrics[0]->labels) {
      StrAppend(&labels, labels.empty() ? "" : ", ", label);
    }
    StrAppend(&out, "| `", name, "` | ", kKinds[metrics[0]->read.index()],
              " | ", labels, " | ", metrics[0]->help, " |\n");
  }
  return out;
}

}  // namespace firnkv
