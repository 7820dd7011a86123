#include "tools/firnkv/units.h"

#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using testing::Eq;

TEST(UnitsTest, SizesHaveBinaryUnitsOrNone) {
  EXPECT_THAT(ParseSize("4096"), IsOkAndHolds(Eq(4096u)));
  EXPECT_THAT(ParseSize("4096B"), IsOkAndHolds(Eq(4096u)));
  EXPECT_THAT(ParseSize("64KiB"), IsOkAndHolds(Eq(65536u)));
  EXPECT_THAT(ParseSize("2GiB"), IsOkAndHolds(Eq(2ull << 30)));
  EXPECT_THAT(ParseSize("0"), IsOkAndHolds(Eq(0u)));
}

TEST(UnitsTest, WhatIsNoSizeIsRefused) {
  for (const char* text :
       {"", "B", "KiB", "64KB", "64kib", "1.5GiB", "-1", " 1", "1 KiB",
        "99999999999999999999", "9999999999TiB", "0x10"}) {
    EXPECT_THAT(ParseSize(text), StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
}

TEST(UnitsTest, TimesNeedAUnitAndAreMoreThanNothing) {
  EXPECT_THAT(ParseTime("250ms"), IsOkAndHolds(Eq(absl::Milliseconds(250))));
  EXPECT_THAT(ParseTime("1h30m"), IsOkAndHolds(Eq(absl::Minutes(90))));
  for (const char* text : {"", "5", "0s", "-1s", "5 s", "1d", "s"}) {
    EXPECT_THAT(ParseTime(text), StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
}

}  // namespace
}  // namespace firnkv
