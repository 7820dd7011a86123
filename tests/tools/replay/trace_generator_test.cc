#include "tools/replay/trace_generator.h"

#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"
#include "tools/replay/cache_simulator.h"

namespace firnkv {
namespace {

using testing::HasSubstr;

std::string Text(const Trace& trace) {
  std::ostringstream out;
  WriteTrace(trace, out);
  return out.str();
}

TEST(TraceGeneratorTest, TheSameSeedGivesTheSameTrace) {
  ASSERT_OK_AND_ASSIGN(const Trace a, GenerateTrace({.seed = 5}));
  ASSERT_OK_AND_ASSIGN(const Trace b, GenerateTrace({.seed = 5}));

  EXPECT_EQ(Text(a), Text(b));
}

TEST(TraceGeneratorTest, AnotherSeedGivesAnotherTrace) {
  ASSERT_OK_AND_ASSIGN(const Trace a, GenerateTrace({.seed = 5}));
  ASSERT_OK_AND_ASSIGN(const Trace b, GenerateTrace({.seed = 6}));

  EXPECT_NE(Text(a), Text(b));
}

TEST(TraceGeneratorTest, WhatItMakesIsAValidTraceWithTheSameCounts) {
  ASSERT_OK_AND_ASSIGN(const Trace made, GenerateTrace({}));
  std::istringstream in(Text(made));

  ASSERT_OK_AND_ASSIGN(const Trace read, ReadTrace(in, {}));

  EXPECT_EQ(read.references, made.references);
  EXPECT_EQ(read.distinct, made.distinct);
  EXPECT_EQ(read.input_tokens, made.input_tokens);
}

TEST(TraceGeneratorTest, AllRequestsShareTheSystemPromptAndNoMore) {
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       GenerateTrace({.system_prompt_tokens = 1100}));

  std::set<std::uint64_t> third;
  for (const TraceRequest& request : trace.requests) {
    ASSERT_GE(request.ids.size(), 2u);
    EXPECT_EQ(request.ids[0], 0u);
    EXPECT_EQ(request.ids[1], 1u);
    if (request.ids.size() > 2) third.insert(request.ids[2]);
  }
  EXPECT_GT(third.size(), 100u);
}

TEST(TraceGeneratorTest, ConversationsComeBack) {
  ASSERT_OK_AND_ASSIGN(const Trace trace, GenerateTrace({}));

  const HitCounts counts = SimulateCache(trace, CacheSimulator::kEndless, 512);

  EXPECT_GT(trace.requests.size(), 500u);
  EXPECT_GT(counts.block_rate(), 25);
  EXPECT_LT(counts.block_rate(), 90);
}

TEST(TraceGeneratorTest, OptionsOutOfBoundsAreRefusedByName) {
  EXPECT_THAT(GenerateTrace({.turns = 0.5}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("turns")));
  EXPECT_THAT(
      GenerateTrace({.block_tokens = 0}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block tokens")));
}

}  // namespace
}  // namespace firnkv
