// A MetricList in the Prometheus text format, by prometheus-cpp's serialiser.

#ifndef FIRNKV_SERVER_BASE_PROMETHEUS_TEXT_H_
#define FIRNKV_SERVER_BASE_PROMETHEUS_TEXT_H_

#include <string>

#include "server/base/metrics.h"

namespace firnkv {

// Content type "text/plain; version=0.0.4". Thread-safe as the list's readers
// are.
std::string RenderPrometheus(const MetricList& list);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_PROMETHEUS_TEXT_H_
