// Structured log lines: an event, and fields with values. What a daemon is
// given to log with.
//
// A status is logged where it is handled, not where it is passed on. Lines of
// one event are limited in rate, so that a storm of failures cannot become a
// storm of logging: what was left out is counted in the next line.
//
// Threading. Thread-safe. Write does no I/O on the caller's thread beyond
// handing the line over.

#ifndef FIRNKV_SERVER_BASE_LOG_H_
#define FIRNKV_SERVER_BASE_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/text.h"

namespace firnkv {

enum class Severity : std::uint8_t { kDebug, kNotice, kWarning, kError };

// name=value; the value is written as text.
struct LogField {
  std::string_view name;
  std::string value;

  LogField(std::string_view n, std::string_view v) : name(n), value(v) {}
  LogField(std::string_view n, const std::string& v) : name(n), value(v) {}
  LogField(std::string_view n, const char* v) : name(n), value(v) {}
  template <typename Number>
  LogField(std::string_view n, Number v) : name(n), value(StrCat(v)) {}
};

// Where lines go: standard error by spdlog in a daemon (spd_log.h), nowhere or
// a vector in tests.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Emit(Severity severity, std::string_view line) = 0;
};

class Logger {
 public:
  struct Options {
    // Lines of one event within `interval`; further ones are counted.
    int lines_an_interval = 10;
    absl::Duration interval = absl::Seconds(10);
    Severity least = Severity::kNotice;
  };
  // Both outlive the logger. `sink` may be null: nothing is written.
  Logger(const Options& options, const Clock* clock, LogSink* sink);

  // `event` is a short constant in snake_case: it names the line and is what
  // the rate is limited by. At most kMaxEvents are told apart.
  void Write(Severity severity, std::string_view event,
             std::initializer_list<LogField> fields)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr std::size_t kMaxEvents = 1024;
  struct Window {
    BootTime ends_at;
    int lines = 0;
    std::uint64_t left_out = 0;
  };
  // Whether to write now; sets how many were left out before.
  bool Admit(std::string_view event, std::uint64_t* left_out)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const Clock* const clock_;
  LogSink* const sink_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, Window> windows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_LOG_H_
