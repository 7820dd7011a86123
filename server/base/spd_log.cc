#include "server/base/spd_log.h"

#include <string>

#include "spdlog/async.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace firnkv {
namespace {

constexpr std::size_t kQueuedLines = 8192;

spdlog::level::level_enum Level(Severity severity) {
  switch (severity) {
    case Severity::kDebug:
      return spdlog::level::debug;
    case Severity::kNotice:
      return spdlog::level::info;
    case Severity::kWarning:
      return spdlog::level::warn;
    case Severity::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

SpdLog::SpdLog(std::string_view process_name)
    : pool_(  // Shared: spdlog's own ownership.
          std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1)) {
  // Shared: spdlog's own ownership.
  logger_ = std::make_shared<spdlog::async_logger>(
      std::string(process_name),
      std::make_shared<spdlog::sinks::stderr_sink_mt>(), pool_,
      spdlog::async_overflow_policy::overrun_oldest);
  logger_->set_level(spdlog::level::trace);
  logger_->set_pattern("%Y-%m-%dT%H:%M:%S.%f%z %n %v");
  logger_->flush_on(spdlog::level::info);
}

SpdLog::~SpdLog() {
  logger_->flush();
  logger_.reset();
  pool_.reset();  // Drains its queue and joins.
}

void SpdLog::Emit(Severity severity, std::string_view line) {
  logger_->log(Level(severity),
               spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace firnkv
