#include "tools/replay/text_table.h"

#include "gtest/gtest.h"

namespace firnkv {
namespace {

TEST(TextTableTest, ColumnsAreAligned) {
  TextTable table({"name", ">count", "note"});
  table.Add({"a", "1"});
  table.Add({"longer", "1,000", "x"});

  EXPECT_EQ(table.Text(),
            "name    count  note\n"
            "a           1\n"
            "longer  1,000  x\n");
}

TEST(TextTableTest, CountsHaveCommas) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(12345678), "12,345,678");
}

TEST(TextTableTest, SizesHaveTheUnitThatFits) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(999), "999 B");
  EXPECT_EQ(FormatSize(65536), "64 KiB");
  EXPECT_EQ(FormatSize(1536.0 * 1024 * 1024), "1.50 GiB");
}

TEST(TextTableTest, TimesHaveTheUnitThatFits) {
  EXPECT_EQ(FormatTime(absl::ZeroDuration()), "0.00 us");
  EXPECT_EQ(FormatTime(absl::Microseconds(950)), "950 us");
  EXPECT_EQ(FormatTime(absl::Microseconds(1230)), "1.23 ms");
  EXPECT_EQ(FormatTime(absl::Seconds(61)), "61.0 s");
  EXPECT_EQ(FormatTime(absl::Minutes(20)), "20.0 min");
}

}  // namespace
}  // namespace firnkv
