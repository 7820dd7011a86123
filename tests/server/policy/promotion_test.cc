// What deserves a copy here, and what is remembered for it.

#include "server/policy/promotion.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <typename Id>
Id MakeId(std::uint64_t number) {
  Id id;
  std::memcpy(id.bytes.data(), &number, sizeof(number));
  return id;
}

class PromotionTest : public testing::Test {
 protected:
  // Reads blocks first to last of the chain 1, 2, 3, ...
  PromotionPolicy::Choice Read(std::uint64_t first, std::uint64_t last) {
    std::vector<PromotionPolicy::Read> run;
    for (std::uint64_t n = first; n <= last; ++n) {
      run.push_back(
          {MakeId<BlockKey>(n), n == 1 ? BlockKey{} : MakeId<BlockKey>(n - 1)});
    }
    return ReadRun(run);
  }
  PromotionPolicy::Choice ReadRun(
      const std::vector<PromotionPolicy::Read>& run) {
    return policy_.OnRemoteRead(at_, Warmth{++warmth_}, tenant_, name_space_,
                                run);
  }

  PromotionPolicy policy_{PromotionPolicy::Options{
      .window = absl::Minutes(1), .max_notes = 8, .max_notes_a_tenant = 6}};
  BootTime at_ = BootTime() + absl::Hours(1);
  std::uint64_t warmth_ = 100;
  TenantId tenant_ = MakeId<TenantId>(1);
  NamespaceId name_space_ = MakeId<NamespaceId>(1);
};

TEST_F(PromotionTest, ABlockIsChosenAtItsSecondReadAndNotBefore) {
  EXPECT_THAT(Read(1, 1).blocks, IsEmpty());
  EXPECT_THAT(Read(1, 1).blocks, ElementsAre(0));
}

TEST_F(PromotionTest, ItMayPushOutOnlyWhatIsColderThanItsFirstRead) {
  Read(1, 2);  // At 101.
  Read(3, 3);

  EXPECT_EQ(Read(1, 3).evict_below, Warmth{101});
}

TEST_F(PromotionTest, ASecondReadAfterTheWindowIsAFirstOne) {
  Read(1, 1);
  at_ = at_ + absl::Seconds(61);

  EXPECT_THAT(Read(1, 1).blocks, IsEmpty());
  at_ = at_ + absl::Seconds(60);
  EXPECT_THAT(Read(1, 1).blocks, ElementsAre(0));
}

TEST_F(PromotionTest, WhatStandsBeforeAChosenBlockComesAlong) {
  Read(3, 4);

  // 5 is read for the first time, and comes behind all that is chosen.
  EXPECT_THAT(Read(1, 5).blocks, ElementsAre(0, 1, 2, 3));
}

TEST_F(PromotionTest, AnotherChainOfTheSameReadDoesNotComeAlong) {
  Read(2, 2);
  const std::vector<PromotionPolicy::Read> two = {
      {MakeId<BlockKey>(1), BlockKey{}},
      {MakeId<BlockKey>(50), BlockKey{}},
      {MakeId<BlockKey>(2), MakeId<BlockKey>(1)}};

  EXPECT_THAT(ReadRun(two).blocks, ElementsAre(0, 2));
}

TEST_F(PromotionTest, WhatWasChosenIsNotChosenAgainByTheNextRead) {
  Read(1, 3);
  ASSERT_THAT(Read(1, 3).blocks, ElementsAre(0, 1, 2));

  EXPECT_EQ(policy_.notes(), 0u);
  EXPECT_THAT(Read(1, 3).blocks, IsEmpty());
}

// Rule C1: equal keys in two namespaces are two blocks.
TEST_F(PromotionTest, EqualKeysOfAnotherNamespaceDoNotCount) {
  Read(1, 1);
  name_space_ = MakeId<NamespaceId>(2);

  EXPECT_THAT(Read(1, 1).blocks, IsEmpty());
}

TEST_F(PromotionTest, ATenantsNotesAreBoundedAndTheOldestGoes) {
  for (std::uint64_t n = 10; n < 17; ++n) Read(n, n);

  EXPECT_EQ(policy_.notes(), 6u);
  EXPECT_THAT(Read(11, 11).blocks, ElementsAre(0));
  EXPECT_THAT(Read(10, 10).blocks, IsEmpty());
}

TEST_F(PromotionTest, OneTenantsReadsDoNotMakeAnothersForgotten) {
  Read(1, 1);
  tenant_ = MakeId<TenantId>(2);
  name_space_ = MakeId<NamespaceId>(2);
  Read(2, 2);
  tenant_ = MakeId<TenantId>(3);
  name_space_ = MakeId<NamespaceId>(3);
  for (std::uint64_t n = 10; n < 40; ++n) Read(n, n);

  EXPECT_LE(policy_.notes(), 8u);
  tenant_ = MakeId<TenantId>(1);
  name_space_ = MakeId<NamespaceId>(1);
  EXPECT_THAT(Read(1, 1).blocks, ElementsAre(0));
}

}  // namespace
}  // namespace firnkv
