// One line of a trace: a JSON value, read once from left to right, with no
// recursion but a bounded one.

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "tools/replay/trace.h"

namespace firnkv {
namespace {

// Fields that are ignored may hold values as deep as this.
constexpr int kMaxDepth = 16;
// 30 years: anything above is another unit.
constexpr double kMaxTimestampMillis = 1e12;

class LineReader {
 public:
  explicit LineReader(std::string_view text) : text_(text) {}

  absl::StatusOr<TraceRequest> Read() {
    RETURN_IF_ERROR(Expect('{'));
    if (!Take('}')) {
      do {
        ASSIGN_OR_RETURN(const std::string_view name, ReadText());
        RETURN_IF_ERROR(Expect(':'));
        RETURN_IF_ERROR(ReadField(name));
      } while (Take(','));
      RETURN_IF_ERROR(Expect('}'));
    }
    SkipSpace();
    if (place_ != text_.size()) return Wrong("something after the closing '}'");
    for (const Field& field : fields_) {
      if (field.mandatory && !field.seen) {
        return absl::InvalidArgumentError(
            StrCat("no field \"", field.name, "\""));
      }
    }
    return std::move(request_);
  }

 private:
  struct Field {
    std::string_view name;
    bool mandatory;
    bool seen = false;
  };

  absl::Status Wrong(std::string_view what) const {
    return absl::InvalidArgumentError(
        StrCat("column ", place_ + 1, ": ", what));
  }

  void SkipSpace() {
    while (place_ < text_.size() &&
           (text_[place_] == ' ' || text_[place_] == '\t' ||
            text_[place_] == '\r' || text_[place_] == '\n')) {
      ++place_;
    }
  }

  // True, and past it, if `wanted` is next.
  bool Take(char wanted) {
    SkipSpace();
    if (place_ == text_.size() || text_[place_] != wanted) return false;
    ++place_;
    return true;
  }

  absl::Status Expect(char wanted) {
    if (Take(wanted)) return absl::OkStatus();
    return Wrong(StrCat("expected '", std::string_view(&wanted, 1), "'"));
  }

  // As it stands, escapes and all: no field that we know has any.
  absl::StatusOr<std::string_view> ReadText() {
    RETURN_IF_ERROR(Expect('"'));
    const std::size_t begin = place_;
    while (place_ < text_.size() && text_[place_] != '"') {
      place_ += text_[place_] == '\\' ? 2 : 1;
    }
    if (place_ >= text_.size()) {
      place_ = begin;
      return Wrong("text without an end");
    }
    return text_.substr(begin, place_++ - begin);
  }

  // The longest run of characters of which numbers and words are made.
  std::string_view ReadWord() {
    SkipSpace();
    const std::size_t begin = place_;
    while (place_ < text_.size()) {
      const char c = text_[place_];
      const bool part = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                        c == '-' || c == '+' || c == '.' || c == 'E';
      if (!part) break;
      ++place_;
    }
    return text_.substr(begin, place_ - begin);
  }

  absl::StatusOr<std::uint64_t> ReadWhole(std::uint64_t most) {
    SkipSpace();
    const std::size_t begin = place_;
    const std::string_view word = ReadWord();
    std::uint64_t value = 0;
    if (absl::SimpleAtoi(ToAbsl(word), &value) && value <= most) return value;
    place_ = begin;
    return Wrong(StrCat("'", word.substr(0, 40),
                        "' is no whole number from 0 to ", most));
  }

  absl::Status ReadTimestamp() {
    SkipSpace();
    const std::size_t begin = place_;
    const std::string_view word = ReadWord();
    double millis = 0;
    if (!absl::SimpleAtod(ToAbsl(word), &millis) || !std::isfinite(millis) ||
        millis < 0 || millis > kMaxTimestampMillis) {
      place_ = begin;
      return Wrong(StrCat("timestamp '", word.substr(0, 40),
                          "' is no time in milliseconds"));
    }
    request_.at = absl::Microseconds(std::llround(millis * 1000));
    return absl::OkStatus();
  }

  absl::Status ReadTokens(std::uint32_t* tokens) {
    ASSIGN_OR_RETURN(const std::uint64_t value,
                     ReadWhole(std::numeric_limits<std::int32_t>::max()));
    *tokens = static_cast<std::uint32_t>(value);
    return absl::OkStatus();
  }

  absl::Status ReadIds() {
    RETURN_IF_ERROR(Expect('['));
    if (Take(']')) return absl::OkStatus();
    do {
      if (request_.ids.size() == kMaxTraceIds) {
        return Wrong(StrCat("more than ", kMaxTraceIds, " hash_ids"));
      }
      ASSIGN_OR_RETURN(const std::uint64_t id,
                       ReadWhole(std::numeric_limits<std::uint64_t>::max()));
      request_.ids.push_back(id);
    } while (Take(','));
    return Expect(']');
  }

  absl::Status ReadField(std::string_view name) {
    for (std::size_t i = 0; i < std::size(fields_); ++i) {
      if (fields_[i].name != name) continue;
      if (fields_[i].seen) return Wrong(StrCat("\"", name, "\" twice"));
      fields_[i].seen = true;
      if (i == 0) return ReadTimestamp();
      if (i == 1) return ReadTokens(&request_.input_tokens);
      if (i == 2) return ReadTokens(&request_.output_tokens);
      return ReadIds();
    }
    return SkipValue(0);
  }

  absl::Status SkipValue(int depth) {
    if (depth == kMaxDepth) return Wrong("values nested too deeply");
    if (Take('[')) {
      if (Take(']')) return absl::OkStatus();
      do {
        RETURN_IF_ERROR(SkipValue(depth + 1));
      } while (Take(','));
      return Expect(']');
    }
    if (Take('{')) {
      if (Take('}')) return absl::OkStatus();
      do {
        RETURN_IF_ERROR(ReadText().status());
        RETURN_IF_ERROR(Expect(':'));
        RETURN_IF_ERROR(SkipValue(depth + 1));
      } while (Take(','));
      return Expect('}');
    }
    SkipSpace();
    if (place_ < text_.size() && text_[place_] == '"') {
      return ReadText().status();
    }
    if (ReadWord().empty()) return Wrong("expected a value");
    return absl::OkStatus();
  }

  const std::string_view text_;
  std::size_t place_ = 0;
  TraceRequest request_;
  Field fields_[4] = {{"timestamp", true},
                      {"input_length", true},
                      {"output_length", false},
                      {"hash_ids", true}};
};

}  // namespace

absl::StatusOr<TraceRequest> ParseTraceLine(std::string_view line) {
  if (line.size() > kMaxTraceLineBytes) {
    return absl::InvalidArgumentError(
        StrCat("longer than ", kMaxTraceLineBytes, " bytes"));
  }
  return LineReader(line).Read();
}

}  // namespace firnkv
