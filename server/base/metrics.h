// What a daemon shows of itself, as a list: name, unit, help, and where to read
// the value. A component describes its metrics once, in its *_metrics.cc; hot
// paths touch only the counters (proto/base/counter.h) and never this list.
// /metrics (prometheus_text.h) and docs/METRICS.md are both rendered from it.
//
// Names follow Prometheus: firnkv_<part>_<what>_<unit>[_total].
//
// Threading. Built at start by one thread; reading the values is thread-safe
// as far as the readers given are.

#ifndef FIRNKV_SERVER_BASE_METRICS_H_
#define FIRNKV_SERVER_BASE_METRICS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "proto/base/counter.h"

namespace firnkv {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

struct Metric {
  std::string name;
  std::string help;
  MetricLabels labels;
  // A counter of events, a value that is read, a distribution of seconds, a
  // count that somebody else keeps.
  using Reader =
      std::variant<const Counter*, std::function<double()>,
                   const LatencyHistogram*, std::function<std::uint64_t()>>;
  Reader read;
};

class MetricList {
 public:
  // `counter` and `histogram` outlive the list. Metrics of one name must have
  // one help, one kind and different labels.
  void AddCounter(std::string name, std::string help, const Counter* counter,
                  MetricLabels labels = {});
  // `count` never falls while the process lives.
  void AddCounter(std::string name, std::string help,
                  std::function<std::uint64_t()> count,
                  MetricLabels labels = {});
  void AddGauge(std::string name, std::string help,
                std::function<double()> value, MetricLabels labels = {});
  void AddHistogram(std::string name, std::string help,
                    const LatencyHistogram* histogram,
                    MetricLabels labels = {});

  absl::Span<const Metric> metrics() const { return metrics_; }

 private:
  std::vector<Metric> metrics_;
};

// A table for docs/METRICS.md: one line a name.
std::string RenderMetricsTable(const MetricList& list);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_METRICS_H_
