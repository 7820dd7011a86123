#include "client/location_cache.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"

namespace firnkv {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kLife = absl::Seconds(5);

BlockKey KeyOf(int number) {
  return MakeBlockKey(std::to_string(number), Shard{});
}

class LocationCacheTest : public ::testing::Test {
 protected:
  void Learn(int number, int copies = 1) {
    Locations locations;
    for (int i = 0; i < copies; ++i) {
      KnownLocation location;
      location.node.bytes.fill(static_cast<std::uint8_t>(i + 1));
      locations.push_back(location);
    }
    cache_.Learn({name_space_, KeyOf(number)}, locations, clock_.Now());
  }
  Locations Find(int number) {
    return cache_.Find(name_space_, {KeyOf(number)})[0];
  }

  ManualClock clock_;
  NamespaceId name_space_;
  LocationCache cache_{3, kLife, &clock_};
};

TEST_F(LocationCacheTest, WhatWasLearntIsBelievedForItsLife) {
  Learn(1);

  clock_.Advance(kLife - absl::Nanoseconds(1));
  EXPECT_THAT(Find(1), SizeIs(1));
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(Find(1), IsEmpty());
  EXPECT_EQ(cache_.size(), 0u);
}

TEST_F(LocationCacheTest, TheLifeCountsFromBeforeTheQuestion) {
  const BootTime asked = clock_.Now();
  clock_.Advance(absl::Seconds(2));
  cache_.Learn({name_space_, KeyOf(1)}, {KnownLocation{}}, asked);

  clock_.Advance(absl::Seconds(3));

  EXPECT_THAT(Find(1), IsEmpty());
}

TEST_F(LocationCacheTest, ManyAreLearntInOneStepInTheirOrder) {
  Learn(1);
  const std::vector<BlockKey> keys = {KeyOf(2), KeyOf(1), KeyOf(3), KeyOf(4)};
  const std::vector<Locations> locations(4, {KnownLocation{}});

  cache_.LearnAll(name_space_, keys, locations, clock_.Now());

  // There is room for three: the second one was told longest ago.
  EXPECT_EQ(cache_.size(), 3u);
  EXPECT_THAT(Find(2), IsEmpty());
  for (const int number : {1, 3, 4}) EXPECT_THAT(Find(number), SizeIs(1));
}

TEST_F(LocationCacheTest, AtTheBoundTheOneToldLongestAgoMakesRoom) {
  for (int i = 1; i <= 3; ++i) Learn(i);
  Learn(1);

  Learn(4);

  EXPECT_THAT(Find(1), SizeIs(1));
  EXPECT_THAT(Find(2), IsEmpty());
  EXPECT_EQ(cache_.size(), 3u);
}

TEST_F(LocationCacheTest, WhatIsForgottenIsNotBelieved) {
  Learn(1);

  cache_.Forget({name_space_, KeyOf(1)});

  EXPECT_THAT(Find(1), IsEmpty());
}

TEST_F(LocationCacheTest, AFewCopiesAreKept) {
  Learn(1, 10);

  EXPECT_THAT(Find(1), SizeIs(LocationCache::kCopiesKept));
}

// Rule C1.
TEST_F(LocationCacheTest, AnotherNamespacesBlockOfTheSameKeyIsAnother) {
  Learn(1);
  NamespaceId other;
  other.bytes.fill(9);

  EXPECT_THAT(cache_.Find(other, {KeyOf(1)})[0], IsEmpty());
}

}  // namespace
}  // namespace firnkv
