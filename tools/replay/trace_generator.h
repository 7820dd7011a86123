// Makes a trace where there is none: conversations of several turns, all with
// one system prompt, each turn with the whole conversation so far as its
// prompt. Conversations begin at random, people think for a while, some never
// come back: what makes caches of prefixes worth having, and what makes them
// hard. The same options give the same trace.
//
// Threading: none.

#ifndef FIRNKV_TOOLS_REPLAY_TRACE_GENERATOR_H_
#define FIRNKV_TOOLS_REPLAY_TRACE_GENERATOR_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/replay/trace.h"

namespace firnkv {

struct TraceGeneratorOptions {
  std::uint64_t seed = 1;
  absl::Duration duration = absl::Minutes(10);
  // Conversations that begin in a minute, on average.
  double conversations_a_minute = 60;
  // Turns of one conversation, on average; at least one.
  double turns = 3.5;
  // Between an answer and the next question, on average.
  absl::Duration thinking = absl::Seconds(60);
  // One full block that everybody shares, as in recorded traces: routing by
  // affinity looks beyond the first.
  std::uint32_t system_prompt_tokens = 800;
  // A question and an answer, on average.
  std::uint32_t question_tokens = 2500;
  std::uint32_t answer_tokens = 350;
  std::uint32_t block_tokens = 512;
};

// INVALID_ARGUMENT naming the option that is out of its bounds.
absl::StatusOr<Trace> GenerateTrace(const TraceGeneratorOptions& options);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_TRACE_GENERATOR_H_
