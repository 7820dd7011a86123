#include "tools/firnkv/progress_bar.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"

namespace firnkv {
namespace {

using testing::HasSubstr;

class ProgressBarTest : public testing::Test {
 protected:
  ManualClock clock_;
  std::ostringstream out_;
};

TEST_F(ProgressBarTest, ItSaysHowFarItIsAndHowLongItTakes) {
  ProgressBar bar("replay", 200, ProgressBar::Style::kMoving, &out_, &clock_);
  clock_.Advance(absl::Seconds(10));

  bar.Show(50);

  EXPECT_THAT(out_.str(), HasSubstr("25 %  50 of 200  30 s left"));
}

TEST_F(ProgressBarTest, AMovingOneIsDrawnTenTimesASecondAtMost) {
  ProgressBar bar("replay", 1000, ProgressBar::Style::kMoving, &out_, &clock_);

  for (int i = 1; i <= 500; ++i) {
    clock_.Advance(absl::Milliseconds(1));
    bar.Show(i);
  }

  const std::string text = out_.str();
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 6);
}

TEST_F(ProgressBarTest, TheEndIsAlwaysDrawn) {
  ProgressBar bar("replay", 10, ProgressBar::Style::kMoving, &out_, &clock_);

  bar.Show(9);
  bar.Show(10);
  bar.End();

  EXPECT_THAT(out_.str(), HasSubstr("100 %"));
  EXPECT_EQ(out_.str().back(), '\n');
}

TEST_F(ProgressBarTest, ElsewhereItIsALineEveryTenth) {
  ProgressBar bar("replay", 1000, ProgressBar::Style::kLines, &out_, &clock_);

  for (int i = 0; i <= 1000; ++i) bar.Show(i);
  bar.End();

  const std::string text = out_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 0);
}

TEST_F(ProgressBarTest, NothingToDoIsNoDivisionByZero) {
  ProgressBar bar("replay", 0, ProgressBar::Style::kMoving, &out_, &clock_);

  bar.Show(0);
  bar.End();
}

}  // namespace
}  // namespace firnkv
