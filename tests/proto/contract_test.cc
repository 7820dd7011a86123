// The state contract. Its encoding is checked byte for byte in tests/format.

#include "proto/base/contract.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/limits.h"
#include "tests/proto/broken_bytes.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct NamedText {
  const char* name;
  std::string StateContract::*member;
};
constexpr NamedText kMandatoryTexts[] = {
    {"model", &StateContract::model},
    {"weights_revision", &StateContract::weights_revision},
    {"tokenizer", &StateContract::tokenizer},
    {"preprocessing", &StateContract::preprocessing},
    {"positional", &StateContract::positional},
    {"kv_dtype", &StateContract::kv_dtype},
    {"layer_order", &StateContract::layer_order},
    {"kv_order", &StateContract::kv_order},
    {"head_grouping", &StateContract::head_grouping},
    {"page_order", &StateContract::page_order},
};
struct NamedNumber {
  const char* name;
  std::uint32_t StateContract::*member;
};
constexpr NamedNumber kMandatoryNumbers[] = {
    {"block_tokens", &StateContract::block_tokens},
    {"tensor_parallel", &StateContract::tensor_parallel},
    {"pipeline_parallel", &StateContract::pipeline_parallel},
    {"context_parallel", &StateContract::context_parallel},
    {"layout_version", &StateContract::layout_version},
};

// The sample with each single field changed, by the field's name.
std::vector<std::pair<std::string, StateContract>> EachChanged() {
  std::vector<std::pair<std::string, StateContract>> all;
  const StateContract sample = SampleContractWithOptions();
  for (const NamedText& text : kMandatoryTexts) {
    all.emplace_back(text.name, sample);
    all.back().second.*text.member += "x";
  }
  for (const NamedNumber& number : kMandatoryNumbers) {
    all.emplace_back(number.name, sample);
    all.back().second.*number.member += 1;
  }
  for (int change = 0; change < 4; ++change) {
    all.emplace_back("adapters", sample);
    std::vector<Adapter>& adapters = all.back().second.adapters;
    if (change == 0) adapters.pop_back();
    if (change == 1) std::swap(adapters[0], adapters[1]);
    if (change == 2) adapters[1].revision += "x";
    if (change == 3) adapters[0].name += "x";
  }
  all.emplace_back("cache_salt", sample);
  all.back().second.cache_salt = "";
  all.emplace_back("cache_salt", sample);
  all.back().second.cache_salt += "x";
  return all;
}

TEST(StateContract, TheSamplesAreValid) {
  EXPECT_THAT(Validate(SampleContract()), IsOk());
  EXPECT_THAT(Validate(SampleContractWithOptions()), IsOk());
}

TEST(StateContract, EachMissingMandatoryTextIsRefusedByItsName) {
  for (const NamedText& text : kMandatoryTexts) {
    StateContract contract = SampleContract();
    (contract.*text.member).clear();

    EXPECT_THAT(Validate(contract),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::string(text.name) + " is missing")));
  }
}

TEST(StateContract, EachMissingMandatoryNumberIsRefusedByItsName) {
  for (const NamedNumber& number : kMandatoryNumbers) {
    StateContract contract = SampleContract();
    contract.*number.member = 0;

    EXPECT_THAT(Validate(contract),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::string(number.name) + " is missing")));
  }
}

TEST(StateContract, AnEmptyOneIsRefusedByItsFirstField) {
  EXPECT_THAT(Validate(StateContract{}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model is missing")));
}

TEST(StateContract, EachTextHasABound) {
  for (const NamedText& text : kMandatoryTexts) {
    StateContract contract = SampleContract();
    contract.*text.member = std::string(kMaxContractTextBytes, 'x');
    EXPECT_THAT(Validate(contract), IsOk());

    (contract.*text.member).push_back('x');

    EXPECT_THAT(Validate(contract),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(text.name), HasSubstr("4097"))));
  }
}

TEST(StateContract, AnAdapterWithoutRevisionIsRefusedByItsPlace) {
  StateContract contract = SampleContractWithOptions();
  contract.adapters[1].revision.clear();

  EXPECT_THAT(Validate(contract),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("adapters[1].revision is missing")));
}

TEST(StateContract, HasABoundOfAdaptersAndOfTheSalt) {
  StateContract contract = SampleContract();
  contract.adapters.assign(kMaxContractAdapters, Adapter{"a", "1"});
  contract.cache_salt = std::string(kMaxContractTextBytes, 's');
  EXPECT_THAT(Validate(contract), IsOk());

  StateContract many = contract;
  many.adapters.push_back(Adapter{"a", "1"});
  StateContract salty = contract;
  salty.cache_salt.push_back('s');

  EXPECT_THAT(Validate(many), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("adapters has 65")));
  EXPECT_THAT(Validate(salty), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("cache_salt")));
}

TEST(CanonicalEncoding, ComesBackAsItWas) {
  for (const StateContract& contract :
       {SampleContract(), SampleContractWithOptions()}) {
    EXPECT_THAT(DecodeCanonical(CanonicalEncoding(contract)),
                IsOkAndHolds(contract));
  }
}

TEST(CanonicalEncoding, TextsOfAnyBytesComeBack) {
  StateContract contract = SampleContract();
  contract.cache_salt = std::string("\0\xff\n", 3);

  EXPECT_THAT(DecodeCanonical(CanonicalEncoding(contract)),
              IsOkAndHolds(contract));
}

TEST(IdentityDigest, EachChangedFieldIsAnotherIdentity) {
  std::set<IdentityDigest> digests;
  digests.insert(MakeIdentityDigest(SampleContractWithOptions()));

  for (const auto& [name, contract] : EachChanged()) {
    EXPECT_TRUE(digests.insert(MakeIdentityDigest(contract)).second) << name;
  }
}

TEST(IdentityDigest, TextMovedFromOneFieldToTheNextIsAnotherIdentity) {
  StateContract moved = SampleContract();
  moved.kv_order = "k-then-";
  moved.head_grouping = "v8 kv heads";

  EXPECT_NE(MakeIdentityDigest(moved), MakeIdentityDigest(SampleContract()));
}

TEST(FirstDifference, NamesTheFieldThatWasChanged) {
  const StateContract sample = SampleContractWithOptions();

  for (const auto& [name, contract] : EachChanged()) {
    EXPECT_EQ(FirstDifference(sample, contract), name);
    EXPECT_EQ(FirstDifference(contract, sample), name);
  }
}

TEST(FirstDifference, OfEqualContractsIsNone) {
  EXPECT_EQ(FirstDifference(SampleContract(), SampleContract()), "");
}

TEST(FirstDifference, OfSeveralIsTheFirstInEncodingOrder) {
  StateContract other = SampleContract();
  other.cache_salt = "s";
  other.block_tokens = 32;
  other.kv_dtype = "fp8_e4m3";

  EXPECT_EQ(FirstDifference(SampleContract(), other), "kv_dtype");
}

// An encoding has no checksum, so a flipped bit may be another contract; but
// then the bytes are that contract's one encoding, and never a second one.
void ExpectRefusedOrCanonical(std::string_view bytes) {
  const absl::StatusOr<StateContract> contract = DecodeCanonical(bytes);
  if (contract.ok()) {
    EXPECT_EQ(CanonicalEncoding(*contract), bytes);
    EXPECT_THAT(Validate(*contract), IsOk());
  }
}

TEST(DecodeCanonical, RefusesEveryTruncation) {
  // Without its optional fields the longer one is the shorter one, so only cuts
  // inside of fields are no contract.
  ExpectNoTruncationAccepted(
      CanonicalEncoding(SampleContract()),
      [](std::string_view bytes) { return DecodeCanonical(bytes).ok(); });
}

TEST(DecodeCanonical, WhateverIsAcceptedIsTheOneEncodingOfSomeContract) {
  const std::string valid = CanonicalEncoding(SampleContractWithOptions());
  const auto look = [](std::string_view bytes) {
    ExpectRefusedOrCanonical(bytes);
    return false;
  };

  ExpectNoTruncationAccepted(valid, look);
  ExpectNoBitFlipAccepted(valid, look);
  ExpectNoRandomBytesAccepted(valid, 2 * valid.size(), 5, 5'000, look);
}

TEST(DecodeCanonical, RefusesTrailingBytes) {
  std::string bytes = CanonicalEncoding(SampleContract());
  bytes.push_back('\0');

  EXPECT_FALSE(DecodeCanonical(bytes).ok());
}

// Offset of the first field: domain tag and version.
constexpr std::size_t kFieldsBegin = 22 + 2;

std::string Field(std::uint16_t tag, std::string_view value) {
  std::string out;
  out.push_back(static_cast<char>(tag & 0xff));
  out.push_back(static_cast<char>(tag >> 8));
  const auto size = static_cast<std::uint32_t>(value.size());
  out.append(reinterpret_cast<const char*>(&size), 4);
  out.append(value);
  return out;
}

TEST(DecodeCanonical, RefusesAnUnknownVersion) {
  std::string bytes = CanonicalEncoding(SampleContract());
  bytes[kFieldsBegin - 2] = 2;

  EXPECT_THAT(DecodeCanonical(bytes),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("version 2 is unknown")));
}

TEST(DecodeCanonical, RefusesAnUnknownField) {
  const std::string bytes =
      CanonicalEncoding(SampleContract()) + Field(18, "new");

  EXPECT_THAT(DecodeCanonical(bytes),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field 18 is unknown")));
}

TEST(DecodeCanonical, RefusesARepeatedField) {
  std::string bytes = CanonicalEncoding(SampleContract());
  bytes.insert(kFieldsBegin, Field(1, "other model"));

  EXPECT_THAT(DecodeCanonical(bytes),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field 1 follows field 1")));
}

TEST(DecodeCanonical, RefusesFieldsOutOfOrder) {
  const std::string bytes = CanonicalEncoding(SampleContract()) +
                            Field(17, "salt") + Field(16, "adapters");

  EXPECT_THAT(DecodeCanonical(bytes),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field 16 follows field 17")));
}

TEST(DecodeCanonical, RefusesOptionalFieldsThatAreEncodedThoughEmpty) {
  const std::string base = CanonicalEncoding(SampleContract());

  EXPECT_FALSE(DecodeCanonical(base + Field(17, "")).ok());
  EXPECT_FALSE(DecodeCanonical(base + Field(16, std::string(4, '\0'))).ok());
}

TEST(DecodeCanonical, AHugeAdapterCountAllocatesNothing) {
  const std::string bytes =
      CanonicalEncoding(SampleContract()) + Field(16, "\xff\xff\xff\xff");

  EXPECT_FALSE(DecodeCanonical(bytes).ok());
}

}  // namespace
}  // namespace firnkv
