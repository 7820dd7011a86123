#include "tools/replay/json.h"

#include <cmath>

#include "gtest/gtest.h"

namespace firnkv {
namespace {

TEST(JsonTest, MembersKeepTheirOrder) {
  Json json = Json::Object();
  json.Set("b", 1).Set("a", Json::Array().Append("x").Append(true));

  EXPECT_EQ(json.Text(),
            "{\n  \"b\": 1,\n  \"a\": [\n    \"x\",\n    true\n  ]\n}\n");
}

TEST(JsonTest, EmptyOnesHaveNoLines) {
  EXPECT_EQ(Json::Object().Text(), "{}\n");
  EXPECT_EQ(Json::Array().Text(), "[]\n");
  EXPECT_EQ(Json().Text(), "null\n");
}

TEST(JsonTest, TextsAreEscaped) {
  EXPECT_EQ(Json("a\"b\\c\n\x01").Text(), "\"a\\\"b\\\\c\\u000a\\u0001\"\n");
}

TEST(JsonTest, Utf8StaysAndOtherBytesAreReplaced) {
  EXPECT_EQ(Json("\xc3\xa9\xe2\x82\xac").Text(), "\"\xc3\xa9\xe2\x82\xac\"\n");
  EXPECT_EQ(Json("a\xff\xc3").Text(), "\"a\\ufffd\\ufffd\"\n");
  EXPECT_EQ(Json("\xed\xa0\x80").Text(), "\"\\ufffd\\ufffd\\ufffd\"\n");
}

TEST(JsonTest, NumbersAreExactOrNull) {
  EXPECT_EQ(Json(~std::uint64_t{0}).Text(), "18446744073709551615\n");
  EXPECT_EQ(Json(-3).Text(), "-3\n");
  EXPECT_EQ(Json(1.5).Text(), "1.500\n");
  EXPECT_EQ(Json(std::nan("")).Text(), "null\n");
}

}  // namespace
}  // namespace firnkv
