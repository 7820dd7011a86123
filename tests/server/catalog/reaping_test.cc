// Bounded steps of reaping and a node that comes back between them (rule A3),
// through the services.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/catalog/service_fixture.h"

namespace firnkv {
namespace {

using testing::Each;

class ReapingTest : public ServiceFixture {
 protected:
  static constexpr std::uint64_t kKeys = 200;

  ReapingTest() {
    options_.reaper.step_entries = 16;
    options_.reaper.pause = absl::Seconds(1);
    Restart();
    world_.RunFor(absl::Seconds(5));
    for (std::uint64_t key = 0; key < kKeys; ++key) keys_.push_back(key);
    facts_ = Open(tenant_, "granite")->facts();
    node_ = Join(1, 100);
    Publish(&node_, facts_, keys_);
  }
  // Until `entries` are left in the store.
  void ReapDownTo(std::size_t entries) {
    ASSERT_TRUE(
        world_.RunUntil([&] { return store_.size(Family::kKeys) <= entries; },
                        absl::Minutes(20)));
  }

  const TenantId tenant_ = DefaultTenant();
  std::vector<std::uint64_t> keys_;
  v1::NamespaceFacts facts_;
  Member node_;
};

// Rule A3: the first step is one write; what was named is removed in many.
TEST_F(ReapingTest, StepsAreBounded) {
  ReapDownTo(kKeys - 1);

  EXPECT_GE(store_.size(Family::kKeys), kKeys - 16);
  EXPECT_THAT(OutcomesOf(tenant_, facts_, keys_), Each(Outcome::kMiss));
}

// Rule A3.
TEST_F(ReapingTest, WhatANodeNamesBetweenTwoStepsStays) {
  ReapDownTo(kKeys - 40);
  ASSERT_GT(store_.size(Family::kKeys), 16u);

  Member back = Register(1, 100);
  EXPECT_FALSE(back.kept);
  Announce(&back, v1::AnnounceRequest::INVENTORY_BEGIN, {}, {});
  Announce(&back, v1::AnnounceRequest::INVENTORY_PART, facts_, keys_);
  for (int i = 0; i < 30; ++i) {
    world_.RunFor(absl::Seconds(2));
    ASSERT_OK(KeepAlive(&back));
  }

  EXPECT_THAT(OutcomesOf(tenant_, facts_, keys_), Each(Outcome::kHit));
  EXPECT_EQ(store_.size(Family::kKeys), kKeys);
  Announce(&back, v1::AnnounceRequest::INVENTORY_END, {}, {});
  world_.RunFor(absl::Seconds(5));
  EXPECT_THAT(OutcomesOf(tenant_, facts_, keys_), Each(Outcome::kHit));
}

// Rule A3: hidden is not removed, and back costs one write.
TEST_F(ReapingTest, ANodeThatComesBackInItsGraceBringsAllItsEntriesBack) {
  world_.RunFor(absl::Minutes(14));
  EXPECT_THAT(OutcomesOf(tenant_, facts_, keys_), Each(Outcome::kUnavailable));
  EXPECT_EQ(store_.size(Family::kKeys), kKeys);
  const std::uint64_t writes = store_.writes();

  const Member back = Register(1, 100);

  EXPECT_TRUE(back.kept);
  EXPECT_EQ(store_.writes(), writes + 1);
  EXPECT_THAT(OutcomesOf(tenant_, facts_, keys_), Each(Outcome::kHit));
}

// Rule A9: a cursor of a state that this catalog is not in confirms nothing
// here, and tells how many changes were lost.
TEST_F(ReapingTest, ACursorThatWasNeverGivenConfirmsNothing) {
  node_.cursor = 1'000'000;
  node_.drained = 1'000'000;
  ASSERT_OK(KeepAlive(&node_));

  const auto cleared = Clear("granite");

  ASSERT_OK(cleared);
  EXPECT_EQ(cleared->pending_nodes_size(), 1);
  ASSERT_OK((Admins<v1::AcceptRestoreResponse>("AcceptRestore",
                                               v1::AcceptRestoreRequest())));
  v1::ShowNamespaceRequest show;
  show.set_tenant_name("default");
  show.set_name("granite");
  const auto now = Admins<v1::NamespaceResponse>("ShowNamespace", show);
  ASSERT_OK(now);
  // Each of them may have been a clear of this namespace.
  EXPECT_GT(now->name_space().facts().clear_epoch(), 999'000u);
}

}  // namespace
}  // namespace firnkv
