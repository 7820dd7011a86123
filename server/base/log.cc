#include "server/base/log.h"

#include "absl/strings/escaping.h"

namespace firnkv {
namespace {

std::string_view Name(Severity severity) {
  switch (severity) {
    case Severity::kDebug:
      return "debug";
    case Severity::kNotice:
      return "notice";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "?";
}

bool IsPlain(std::string_view value) {
  if (value.empty()) return false;
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 127) return false;
  }
  return true;
}

// Values come from peers and files: what could end a line or a quote is
// escaped.
void Append(std::string_view name, std::string_view value, std::string* line) {
  if (IsPlain(value)) {
    StrAppend(line, " ", name, "=", value);
  } else {
    StrAppend(line, " ", name, "=\"", absl::CEscape(ToAbsl(value)), "\"");
  }
}

}  // namespace

Logger::Logger(const Options& options, const Clock* clock, LogSink* sink)
    : options_(options), clock_(clock), sink_(sink) {}

void Logger::Write(Severity severity, std::string_view event,
                   std::initializer_list<LogField> fields) {
  if (sink_ == nullptr || severity < options_.least) return;
  std::uint64_t left_out = 0;
  if (!Admit(event, &left_out)) return;
  std::string line = StrCat("level=", Name(severity), " event=", event);
  for (const LogField& field : fields) Append(field.name, field.value, &line);
  if (left_out > 0) StrAppend(&line, " left_out_before=", left_out);
  sink_->Emit(severity, line);
}

bool Logger::Admit(std::string_view event, std::uint64_t* left_out) {
  const BootTime now = clock_->Now();
  MutexLock lock(&mutex_);
  auto it = windows_.find(std::string(event));
  if (it == windows_.end()) {
    // At the bound all further events share one window.
    const std::string_view name =
        windows_.size() < kMaxEvents ? event : std::string_view("other");
    it = windows_.try_emplace(std::string(name)).first;
  }
  Window& window = it->second;
  if (now >= window.ends_at) {
    *left_out = window.left_out;
    window = {.ends_at = now + options_.interval, .lines = 0, .left_out = 0};
  }
  if (window.lines >= options_.lines_an_interval) {
    ++window.left_out;
    return false;
  }
  ++window.lines;
  return true;
}

}  // namespace firnkv
