#include "server/base/metrics.h"

#include <cmath>
#include <cstddef>
#include <map>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// In the order of Metric::Reader's alternatives.
constexpr std::string_view kKinds[] = {"counter", "gauge", "histogram"};

std::string Labels(const MetricLabels& labels, std::string_view extra) {
  std::string text;
  for (const auto& [name, value] : labels) {
    StrAppend(&text, text.empty() ? "" : ",", name, "=\"",
              absl::StrReplaceAll(
                  value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
              "\"");
  }
  if (!extra.empty()) StrAppend(&text, text.empty() ? "" : ",", extra);
  return text.empty() ? text : StrCat("{", text, "}");
}

void RenderHistogram(const Metric& metric, const LatencyHistogram& histogram,
                     std::string* out) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < LatencyHistogram::kBuckets; ++i) {
    count += histogram.cell(i);
    const bool last = i + 1 == LatencyHistogram::kBuckets;
    // Cell i counts what is below 2^i microseconds.
    const std::string bound =
        last ? "+Inf" : absl::StrFormat("%.9g", std::ldexp(1e-6, int(i)));
    StrAppend(out, metric.name, "_bucket",
              Labels(metric.labels, StrCat("le=\"", bound, "\"")), " ", count,
              "\n");
  }
  StrAppend(out, metric.name, "_sum", Labels(metric.labels, ""), " ",
            absl::StrFormat("%.9g", double(histogram.sum_nanos()) * 1e-9), "\n",
            metric.name, "_count", Labels(metric.labels, ""), " ", count, "\n");
}

void RenderValue(const Metric& metric, std::string* out) {
  if (const auto* histogram =
          std::get_if<const LatencyHistogram*>(&metric.read)) {
    RenderHistogram(metric, **histogram, out);
    return;
  }
  StrAppend(out, metric.name, Labels(metric.labels, ""), " ");
  if (const auto* counter = std::get_if<const Counter*>(&metric.read)) {
    StrAppend(out, (*counter)->value(), "\n");
    return;
  }
  const double value = std::get<std::function<double()>>(metric.read)();
  StrAppend(out, absl::StrFormat("%.15g", value), "\n");
}

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

std::string RenderPrometheus(const MetricList& list) {
  std::string out;
  for (const auto& [name, metrics] : ByName(list)) {
    StrAppend(
        &out, "# HELP ", name, " ",
        absl::StrReplaceAll(metrics[0]->help, {{"\\", "\\\\"}, {"\n", "\\n"}}),
        "\n# TYPE ", name, " ", kKinds[metrics[0]->read.index()], "\n");
    for (const Metric* metric : metrics) RenderValue(*metric, &out);
  }
  return out;
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
