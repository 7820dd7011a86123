// Log lines to standard error, by spdlog: asynchronous, so that a blocked
// terminal or pipe does not block the daemon; where its queue is full the
// oldest lines go.

#ifndef FIRNKV_SERVER_BASE_SPD_LOG_H_
#define FIRNKV_SERVER_BASE_SPD_LOG_H_

#include <memory>
#include <string_view>

#include "server/base/log.h"

namespace spdlog {
class logger;
namespace details {
class thread_pool;
}
}  // namespace spdlog

namespace firnkv {

// Owns its one thread; the destructor writes what is queued and joins it.
class SpdLog : public LogSink {
 public:
  explicit SpdLog(std::string_view process_name);
  ~SpdLog() override;

  void Emit(Severity severity, std::string_view line) override;

 private:
  // Shared: spdlog's own ownership.
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::logger> logger_;  // Shared: as above.
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_SPD_LOG_H_
