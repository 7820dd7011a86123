// Log lines are one line each, and a storm of events is not a storm of lines.

#include "server/base/log.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"

namespace firnkv {
namespace {

class Lines : public LogSink {
 public:
  void Emit(Severity, std::string_view line) override {
    lines.emplace_back(line);
  }
  std::vector<std::string> lines;
};

class LogTest : public testing::Test {
 protected:
  ManualClock clock_;
  Lines sink_;
  Logger log_{
      {.lines_an_interval = 2, .interval = absl::Seconds(10)}, &clock_, &sink_};
};

TEST_F(LogTest, ALineHasAnEventAndItsFields) {
  log_.Write(Severity::kWarning, "session_refused",
             {{"uid", 1000}, {"why", "no tenant"}});

  ASSERT_EQ(sink_.lines.size(), 1u);
  EXPECT_EQ(sink_.lines[0],
            "level=warning event=session_refused uid=1000 why=\"no tenant\"");
}

TEST_F(LogTest, APeersTextCannotForgeALine) {
  log_.Write(Severity::kError, "peer", {{"name", "x\nlevel=error event=y"}});

  EXPECT_EQ(sink_.lines[0].find('\n'), std::string::npos);
}

TEST_F(LogTest, AStormIsLimitedAndCounted) {
  for (int i = 0; i < 100; ++i) log_.Write(Severity::kError, "storm", {});
  EXPECT_EQ(sink_.lines.size(), 2u);

  clock_.Advance(absl::Seconds(10));
  log_.Write(Severity::kError, "storm", {});

  EXPECT_NE(sink_.lines.back().find("left_out_before=98"), std::string::npos);
}

TEST_F(LogTest, OneEventsStormDoesNotSilenceAnother) {
  for (int i = 0; i < 100; ++i) log_.Write(Severity::kError, "storm", {});

  log_.Write(Severity::kError, "other", {});

  EXPECT_EQ(sink_.lines.back(), "level=error event=other");
}

TEST_F(LogTest, LinesBelowTheLeastSeverityAreNotWritten) {
  log_.Write(Severity::kDebug, "detail", {});

  EXPECT_TRUE(sink_.lines.empty());
}

}  // namespace
}  // namespace firnkv
