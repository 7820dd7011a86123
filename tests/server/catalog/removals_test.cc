// What nodes are told to remove: each once, and nothing counts as done that was
// not told.

#include "server/catalog/removals.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RemovalsTest : public ::testing::Test {
 protected:
  RemovalsTest() { removals_.Begin(10); }
  Removal Make() {
    const Removal made = {
        .block = {NamespaceId::Make(&random_), BlockKey::Make(&random_)},
        .generation = Generation{++generations_}};
    EXPECT_TRUE(removals_.Add(node_, epoch_, made));
    return made;
  }

  SeededRandom random_{1};
  std::uint64_t generations_ = 0;
  const NodeId node_ = NodeId::Make(&random_);
  const NodeEpoch epoch_{7};
  Removals removals_{{}};
};

TEST_F(RemovalsTest, WhatWasNotToldIsNotDone) {
  const Removal first = Make();
  const Removal second = Make();
  const Removal third = Make();

  const Removals::Due due = removals_.Take(node_, epoch_, 0, 2);
  EXPECT_THAT(due.removals, ElementsAre(first, second));
  const Removals::Due rest = removals_.Take(node_, epoch_, due.number, 2);

  EXPECT_THAT(rest.removals, ElementsAre(third));
  EXPECT_THAT(removals_.Take(node_, epoch_, rest.number, 2).removals,
              IsEmpty());
  EXPECT_EQ(removals_.pending(), 0u);
}

TEST_F(RemovalsTest, WhatIsNotConfirmedIsToldAgain) {
  const Removal one = Make();
  removals_.Take(node_, epoch_, 0, 2);

  EXPECT_THAT(removals_.Take(node_, epoch_, 0, 2).removals, ElementsAre(one));
}

TEST_F(RemovalsTest, AnotherRunOfTheNodeHasNothingToRemove) {
  Make();

  EXPECT_THAT(removals_.Take(node_, NodeEpoch{8}, 0, 2).removals, IsEmpty());
}

}  // namespace
}  // namespace firnkv
