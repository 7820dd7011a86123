// What a trace file may say, and what is said about one that says something
// else.

#include "tools/replay/trace.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/text.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<Trace> Read(const std::string& text, TraceOptions options = {}) {
  std::istringstream in(text);
  return ReadTrace(in, options);
}

std::string Line(int millis, int tokens, const std::string& ids) {
  return StrCat("{\"timestamp\": ", millis, ", \"input_length\": ", tokens,
                ", \"output_length\": 7, \"hash_ids\": [", ids, "]}\n");
}

TEST(TraceTest, ALineHasItsTimeItsLengthsAndItsBlocks) {
  ASSERT_OK_AND_ASSIGN(
      const TraceRequest request,
      ParseTraceLine("{\"timestamp\": 1250, \"input_length\": 1300,"
                     " \"output_length\": 52, \"hash_ids\": [0, 14, 15]}"));

  EXPECT_EQ(request.at, absl::Milliseconds(1250));
  EXPECT_EQ(request.input_tokens, 1300u);
  EXPECT_EQ(request.output_tokens, 52u);
  EXPECT_THAT(request.ids, ElementsAre(0u, 14u, 15u));
}

TEST(TraceTest, FieldsStandInAnyOrderAndOthersAreIgnored) {
  ASSERT_OK_AND_ASSIGN(
      const TraceRequest request,
      ParseTraceLine("{ \"hash_ids\":[7] ,\"x\": {\"a\": [1, {\"b\": null}], "
                     "\"c\\\"\": \"}\\\"\"}, \"input_length\" :512, "
                     "\"timestamp\":0.5, \"tag\": true}\r"));

  EXPECT_EQ(request.at, absl::Microseconds(500));
  EXPECT_THAT(request.ids, ElementsAre(7u));
}

TEST(TraceTest, TheLargestIdIsRead) {
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       Read(Line(0, 512, "18446744073709551615")));

  EXPECT_THAT(trace.requests[0].ids, ElementsAre(18446744073709551615u));
}

struct BadLine {
  const char* line;
  const char* why;
};

class BadTraceLineTest : public testing::TestWithParam<BadLine> {};

TEST_P(BadTraceLineTest, IsRefusedWithItsReason) {
  EXPECT_THAT(ParseTraceLine(GetParam().line),
              StatusIs(kInvalid, HasSubstr(GetParam().why)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadTraceLineTest,
    testing::Values(
        BadLine{"", "expected '{'"}, BadLine{"[]", "expected '{'"},
        BadLine{"{}", "no field \"timestamp\""},
        BadLine{"{\"timestamp\": 1, \"input_length\": 1}", "\"hash_ids\""},
        BadLine{"{\"timestamp\": 1", "expected '}'"},
        BadLine{"{\"timestamp\" 1}", "expected ':'"},
        BadLine{"{\"timestamp\": -1}", "'-1' is no time"},
        BadLine{"{\"timestamp\": nan}", "no time"},
        BadLine{"{\"timestamp\": 1e300}", "no time"},
        BadLine{"{\"timestamp\": \"1\"}", "no time"},
        BadLine{"{\"timestamp\": 1, \"timestamp\": 1}", "twice"},
        BadLine{"{\"input_length\": 1.5}", "'1.5' is no whole number"},
        BadLine{"{\"input_length\": 4294967296}", "no whole number from 0 to"},
        BadLine{"{\"hash_ids\": [1, 2}", "expected ']'"},
        BadLine{"{\"hash_ids\": [1,, 2]}", "column 17"},
        BadLine{"{\"hash_ids\": [-1]}", "'-1' is no whole number"},
        BadLine{"{\"hash_ids\": [18446744073709551616]}", "no whole number"},
        BadLine{"{\"hash_ids\": 5}", "expected '['"},
        BadLine{"{\"a\": \"unended", "text without an end"},
        BadLine{"{\"a\\", "text without an end"},
        BadLine{"{\"a\": [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}", "deeply"},
        BadLine{"{\"a\": }", "expected a value"},
        BadLine{"{\"timestamp\": 1, \"input_length\": 0, \"hash_ids\": []} x",
                "after the closing"}));

TEST(TraceTest, NoCutOfALineIsTakenForAWholeOne) {
  const std::string line = Line(5, 1024, "1, 2");

  for (std::size_t size = 0; size + 2 < line.size(); ++size) {
    EXPECT_FALSE(ParseTraceLine(line.substr(0, size)).ok()) << size;
  }
}

TEST(TraceTest, SpoiltLinesAreRefusedOrReadNeverMore) {
  SeededRandom random(7);
  const std::string line = Line(5, 1024, "1, 2");

  for (int round = 0; round < 20'000; ++round) {
    std::string spoilt = line;
    for (std::uint64_t n = random.Below(4) + 1; n > 0; --n) {
      spoilt[random.Below(spoilt.size())] =
          static_cast<char>(random.Below(256));
    }
    const absl::StatusOr<TraceRequest> request = ParseTraceLine(spoilt);
    if (!request.ok()) continue;
    EXPECT_LE(request->ids.size(), spoilt.size());
  }
}

TEST(TraceTest, ABadLineIsNamedByItsNumber) {
  EXPECT_THAT(Read(Line(0, 512, "1") + "\n" + "{\"timestamp\": x}\n"),
              StatusIs(kInvalid, HasSubstr("line 3: column")));
}

TEST(TraceTest, ATrailingPartialBlockIsDropped) {
  ASSERT_OK_AND_ASSIGN(const Trace trace, Read(Line(0, 1300, "4, 5, 6")));

  EXPECT_THAT(trace.requests[0].ids, ElementsAre(4u, 5u));
  EXPECT_EQ(trace.references, 2u);
  EXPECT_EQ(trace.distinct, 2u);
  EXPECT_EQ(trace.input_tokens, 1300u);
}

TEST(TraceTest, ARequestWithoutAFullBlockStaysARequest) {
  ASSERT_OK_AND_ASSIGN(const Trace trace, Read(Line(0, 100, "4")));

  EXPECT_EQ(trace.requests.size(), 1u);
  EXPECT_EQ(trace.references, 0u);
}

TEST(TraceTest, IdsThatDoNotFitTheBlockTokensAreRefused) {
  EXPECT_THAT(Read(Line(0, 1300, "4, 5")), IsOk());
  EXPECT_THAT(Read(Line(0, 1300, "4")),
              StatusIs(kInvalid, HasSubstr("is the number of block tokens")));
  EXPECT_THAT(Read(Line(0, 1300, "4, 5, 6, 7")),
              StatusIs(kInvalid, HasSubstr("line 1: 1300 tokens in blocks")));
}

TEST(TraceTest, OtherBlockTokensCutElsewhere) {
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       Read(Line(0, 40, "4, 5, 6"), {.block_tokens = 16}));

  EXPECT_THAT(trace.requests[0].ids, ElementsAre(4u, 5u));
}

TEST(TraceTest, AnIdThatFollowsTwoDifferentOnesIsNoChain) {
  EXPECT_THAT(Read(Line(0, 1024, "1, 3") + Line(1, 1024, "2, 3")),
              StatusIs(kInvalid, HasSubstr("line 2: hash_id 3")));
}

TEST(TraceTest, AnIdAtTwoPositionsIsNoChain) {
  EXPECT_THAT(Read(Line(0, 512, "0") + Line(1, 1024, "0, 0")),
              StatusIs(kInvalid, HasSubstr("hash_id 0")));
}

TEST(TraceTest, RequestsComeInOrderOfArrival) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      Read(Line(9, 512, "1") + Line(3, 512, "2") + Line(3, 512, "3")));

  EXPECT_EQ(trace.requests[0].ids[0], 2u);
  EXPECT_EQ(trace.requests[1].ids[0], 3u);
  EXPECT_EQ(trace.requests[2].ids[0], 1u);
}

TEST(TraceTest, OnlyTheFirstMinutesAreRead) {
  const std::string text =
      Line(0, 512, "1") + Line(59'999, 512, "2") + Line(60'000, 512, "3");

  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       Read(text, {.first = absl::Minutes(1)}));

  EXPECT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.distinct, 2u);
}

TEST(TraceTest, OnlySoManyRequestsAreRead) {
  ASSERT_OK_AND_ASSIGN(
      const Trace trace,
      Read(Line(0, 512, "1") + Line(1, 512, "2"), {.most_requests = 1}));

  EXPECT_EQ(trace.requests.size(), 1u);
}

TEST(TraceTest, AnEmptyTraceIsRefused) {
  EXPECT_THAT(Read("\n \n"), StatusIs(kInvalid, HasSubstr("no request")));
}

TEST(TraceTest, ALineWithoutAnEndIsRefusedBeforeItFillsMemory) {
  EXPECT_THAT(Read(std::string(kMaxTraceLineBytes + 1, ' ')),
              StatusIs(kInvalid, HasSubstr("line 1: longer than")));
}

TEST(TraceTest, TooManyIdsAreRefused) {
  std::string ids = "0";
  for (std::size_t i = 0; i < kMaxTraceIds; ++i) ids += ",0";

  EXPECT_THAT(Read(Line(0, 512, ids)),
              StatusIs(kInvalid, HasSubstr("more than 262144 hash_ids")));
}

TEST(TraceTest, AFileThatIsNotThereIsNotFound) {
  EXPECT_THAT(ReadTraceFile("/nowhere/trace.jsonl", {}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("trace /nowhere/trace.jsonl")));
}

TEST(TraceTest, WhatIsWrittenIsRead) {
  ASSERT_OK_AND_ASSIGN(const Trace trace,
                       Read(Line(0, 512, "1") + Line(1, 1300, "1, 2, 3")));
  std::ostringstream out;

  WriteTrace(trace, out);

  ASSERT_OK_AND_ASSIGN(const Trace again, Read(out.str()));
  EXPECT_EQ(again.requests[1].ids, trace.requests[1].ids);
  EXPECT_EQ(again.requests[1].input_tokens, 1300u);
  EXPECT_EQ(again.references, trace.references);
}

}  // namespace
}  // namespace firnkv
