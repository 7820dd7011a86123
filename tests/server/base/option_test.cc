// Options are declared once and refuse what they cannot take.

#include "server/base/option.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/bytes.h"

namespace firnkv {
namespace {

class OptionTest : public testing::Test {
 protected:
  OptionTest() {
    list_.Bytes("dram.bytes", &bytes_,
                {.help = "Size.", .least = kMiB, .most = 4 * kGiB});
    list_.Duration("lease", &duration_,
                   {.help = "Term.",
                    .least = absl::Milliseconds(1),
                    .most = absl::Seconds(60)});
    list_.Count("keys", &count_, {.help = "Keys.", .least = 1, .most = 10});
    list_.Text("mode", &text_, {.help = "Mode.", .one_of = {"on", "off"}});
    list_.Flag("plain", &flag_, {.help = "Plain."});
    list_.List("tenants", &values_, {.help = "Tenants.", .most = 2});
  }
  absl::Status Set(const char* name, const char* value) {
    return list_.Find(name)->set(value);
  }

  std::uint64_t bytes_ = kGiB;
  absl::Duration duration_ = absl::Seconds(10);
  std::uint64_t count_ = 5;
  std::string text_ = "off";
  bool flag_ = false;
  std::vector<std::string> values_;
  OptionList list_;
};

TEST_F(OptionTest, ASizeNeedsAUnit) {
  EXPECT_EQ(Set("dram.bytes", "1024").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(bytes_, kGiB);
}

TEST_F(OptionTest, ADecimalUnitIsRefusedInsteadOfBeingTakenForABinaryOne) {
  EXPECT_FALSE(Set("dram.bytes", "1GB").ok());
}

TEST_F(OptionTest, ASizeWithAUnitIsTaken) {
  ASSERT_TRUE(Set("dram.bytes", "1.5GiB").ok());
  EXPECT_EQ(bytes_, 1536 * kMiB);
}

TEST_F(OptionTest, ASizeOutOfBoundsSaysWhatItIsAndTheBounds) {
  const absl::Status status = Set("dram.bytes", "8GiB");
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(),
            "'8GiB' is out of bounds; it must be 1MiB to 4GiB");
}

TEST_F(OptionTest, AnAstronomicalSizeIsRefusedAndDoesNotOverflow) {
  EXPECT_FALSE(Set("dram.bytes", "99999999999999999999TiB").ok());
}

TEST_F(OptionTest, ADurationNeedsAUnit) {
  EXPECT_FALSE(Set("lease", "10").ok());
  ASSERT_TRUE(Set("lease", "250ms").ok());
  EXPECT_EQ(duration_, absl::Milliseconds(250));
}

TEST_F(OptionTest, ACountIsAWholeNumberWithinItsBounds) {
  EXPECT_FALSE(Set("keys", "2.5").ok());
  EXPECT_FALSE(Set("keys", "-1").ok());
  EXPECT_FALSE(Set("keys", "11").ok());
  ASSERT_TRUE(Set("keys", "10").ok());
  EXPECT_EQ(count_, 10u);
}

TEST_F(OptionTest, ATextOutsideItsChoicesNamesThem) {
  const absl::Status status = Set("mode", "maybe");
  EXPECT_NE(std::string(status.message()).find("on, off"), std::string::npos);
}

TEST_F(OptionTest, ATextIsWhatItsOwnCheckLetsPass) {
  std::string text = "even";
  list_.Text("even", &text,
             {.help = "Of even length.", .check = [](std::string_view value) {
                return value.size() % 2 == 0
                           ? absl::OkStatus()
                           : absl::InvalidArgumentError("is odd");
              }});

  EXPECT_EQ(Set("even", "odd").message(), "is odd");
  EXPECT_EQ(text, "even");
  ASSERT_TRUE(Set("even", "four").ok());
  EXPECT_EQ(text, "four");
}

TEST_F(OptionTest, AFlagIsTrueOrFalseAndNothingElse) {
  EXPECT_FALSE(Set("plain", "yes").ok());
  ASSERT_TRUE(Set("plain", "true").ok());
  EXPECT_TRUE(flag_);
}

TEST_F(OptionTest, AListOverItsBoundChangesNothing) {
  ASSERT_TRUE(Set("tenants", "a,b").ok());
  EXPECT_FALSE(Set("tenants", "a,b,c").ok());
  EXPECT_EQ(values_, (std::vector<std::string>{"a", "b"}));
}

TEST_F(OptionTest, TheDefaultIsTheValueAtTheTimeOfTheDeclaration) {
  ASSERT_TRUE(Set("dram.bytes", "2GiB").ok());
  EXPECT_EQ(list_.Find("dram.bytes")->default_text, "1GiB");
  EXPECT_EQ(list_.Find("dram.bytes")->get(), "2GiB");
}

}  // namespace
}  // namespace firnkv
