// Numbers are checked against the golden list in tests/format.

#include "proto/base/outcome.h"

#include <cctype>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

TEST(Outcome, ZeroAndUnknownNumbersAreRefused) {
  EXPECT_EQ(OutcomeFromWire(0), std::nullopt);
  for (int number = kLastOutcome + 1; number < 256; ++number) {
    EXPECT_EQ(OutcomeFromWire(static_cast<std::uint8_t>(number)), std::nullopt);
  }
}

TEST(Outcome, EveryKnownNumberIsItself) {
  for (std::uint8_t number = 1; number <= kLastOutcome; ++number) {
    EXPECT_THAT(OutcomeFromWire(number), Optional(Outcome{number}));
  }
}

TEST(Outcome, NamesAndLabelsAreDistinctAndSayTheSame) {
  std::set<std::string_view> names;
  for (std::uint8_t number = 0; number <= kLastOutcome; ++number) {
    const std::string_view name = OutcomeName(Outcome{number});
    std::string label;
    for (const char c : name.substr(1)) {
      if (std::isupper(c) && !label.empty()) label.push_back('_');
      label.push_back(static_cast<char>(std::tolower(c)));
    }

    EXPECT_EQ(OutcomeLabel(Outcome{number}), label);
    names.insert(name);
  }
  EXPECT_EQ(names.size(), kLastOutcome + 1u);
  EXPECT_EQ(names.count("kInvalid"), 0u);
}

TEST(Outcome, OnlyTheThreeGoodOnesAreAnOkStatus) {
  std::set<Outcome> good;
  for (std::uint8_t number = 0; number <= kLastOutcome; ++number) {
    const Outcome outcome{number};
    if (OutcomeStatus(outcome, "block").ok()) good.insert(outcome);
  }

  EXPECT_THAT(good, ::testing::ElementsAre(Outcome::kHit, Outcome::kStored,
                                           Outcome::kAlreadyThere));
}

TEST(Outcome, AStatusSaysWhichBlockAndWhatBecameOfIt) {
  EXPECT_THAT(
      OutcomeStatus(Outcome::kMiss, "block 17"),
      StatusIs(absl::StatusCode::kNotFound,
               ::testing::AllOf(HasSubstr("block 17"), HasSubstr("kMiss"))));
}

}  // namespace
}  // namespace firnkv
