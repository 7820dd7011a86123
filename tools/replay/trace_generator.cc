#include "tools/replay/trace_generator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/base/random.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Prompts beyond it end their conversation.
constexpr std::uint32_t kLongestPromptTokens = 128 * 1024;

class Generator {
 public:
  explicit Generator(const TraceGeneratorOptions& options)
      : options_(options), random_(options.seed) {
    for (std::uint32_t i = 0;
         i < options.system_prompt_tokens / options.block_tokens; ++i) {
      system_prompt_.push_back(next_id_++);
    }
  }

  absl::StatusOr<Trace> Make() {
    const absl::Duration gap =
        absl::Minutes(1) / options_.conversations_a_minute;
    absl::Duration at;
    while (at < options_.duration) {
      RETURN_IF_ERROR(MakeConversation(at));
      at += Exponential(1) * gap;
    }
    std::stable_sort(trace_.requests.begin(), trace_.requests.end(),
                     [](const TraceRequest& a, const TraceRequest& b) {
                       return a.at < b.at;
                     });
    trace_.distinct = next_id_;
    return std::move(trace_);
  }

 private:
  // Of mean `mean`: times between independent events, and lengths, most of them
  // short and a few very long.
  double Exponential(double mean) {
    const double uniform =
        static_cast<double>((random_.Next64() >> 11) + 1) * 0x1.0p-53;
    return -std::log(uniform) * mean;
  }

  std::uint32_t Tokens(std::uint32_t mean) {
    return 1 + static_cast<std::uint32_t>(Exponential(mean));
  }

  absl::Status MakeConversation(absl::Duration at) {
    std::vector<std::uint64_t> ids = system_prompt_;
    std::uint32_t tokens = options_.system_prompt_tokens;
    while (at < options_.duration) {
      tokens += Tokens(options_.question_tokens);
      if (tokens > kLongestPromptTokens) break;
      while (ids.size() < tokens / options_.block_tokens) {
        ids.push_back(next_id_++);
      }
      const std::uint32_t answer = Tokens(options_.answer_tokens);
      RETURN_IF_ERROR(Add({.at = absl::Floor(at, absl::Milliseconds(1)),
                           .input_tokens = tokens,
                           .output_tokens = answer,
                           .ids = ids}));
      tokens += answer;
      // One turn in `turns` is the last one.
      if (random_.Below(1 << 20) <
          static_cast<std::uint64_t>((1 << 20) / options_.turns)) {
        break;
      }
      at += Exponential(1) * options_.thinking;
    }
    return absl::OkStatus();
  }

  absl::Status Add(TraceRequest request) {
    trace_.references += request.ids.size();
    trace_.input_tokens += request.input_tokens;
    if (trace_.requests.size() == kMaxTraceRequests ||
        trace_.references > kMaxTraceReferences) {
      return absl::ResourceExhaustedError(
          "the trace grows too large: less time, or fewer conversations");
    }
    trace_.requests.push_back(std::move(request));
    return absl::OkStatus();
  }

  const TraceGeneratorOptions options_;
  SeededRandom random_;
  std::uint64_t next_id_ = 0;
  std::vector<std::uint64_t> system_prompt_;
  Trace trace_;
};

absl::Status Check(const TraceGeneratorOptions& options) {
  if (options.duration <= absl::ZeroDuration() ||
      options.duration > absl::Hours(24 * 7)) {
    return absl::InvalidArgumentError("duration must be up to a week");
  }
  if (!(options.conversations_a_minute > 0 &&
        options.conversations_a_minute <= 1e6)) {
    return absl::InvalidArgumentError(
        "conversations a minute must be up to a million");
  }
  if (!(options.turns >= 1 && options.turns <= 1000)) {
    return absl::InvalidArgumentError("turns must be from 1 to 1000");
  }
  if (options.block_tokens == 0 ||
      options.system_prompt_tokens > kLongestPromptTokens ||
      options.question_tokens > kLongestPromptTokens ||
      options.answer_tokens > kLongestPromptTokens) {
    return absl::InvalidArgumentError(
        StrCat("block tokens must not be 0, and no length above ",
               kLongestPromptTokens, " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Trace> GenerateTrace(const TraceGeneratorOptions& options) {
  RETURN_IF_ERROR(Check(options));
  return Generator(options).Make();
}

}  // namespace firnkv
