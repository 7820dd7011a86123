#include "client/router.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/support/manual_clock.h"

namespace firnkv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    router_.SetOwnLabels({.zone = "z", .rack = "r", .host = "h"});
  }

  NodeAddress Add(int number, Labels labels, std::uint64_t epoch = 1) {
    NodeAddress address;
    address.node.bytes.fill(static_cast<std::uint8_t>(number));
    address.epoch = NodeEpoch{epoch};
    address.stream_address = "node" + std::to_string(number);
    address.labels = std::move(labels);
    router_.Learn({address});
    return address;
  }
  static KnownLocation At(const NodeAddress& address) {
    return {.node = address.node, .epoch = address.epoch};
  }
  std::optional<NodeAddress> Pick(
      Locations locations, absl::InlinedVector<NodeId, 1> excluded = {}) {
    return router_.Pick({{.locations = std::move(locations),
                          .excluded = std::move(excluded)}})[0];
  }
  std::vector<NodeAddress> Probes(Locations locations) {
    return router_.TakeProbes(
        {{.locations = std::move(locations), .excluded = {}}});
  }
  void Fail(const NodeAddress& address) {
    ASSERT_TRUE(router_.Begin(address.node, 1));
    router_.End(address.node, 1, Router::Verdict::kFailed);
  }

  ManualClock clock_;
  SeededRandom random_{3};
  Router router_{&clock_, &random_};
};

TEST_F(RouterTest, SameHostBeforeRackBeforeZoneBeforeAny) {
  const auto any = Add(1, {.zone = "y"});
  const auto zone = Add(2, {.zone = "z"});
  const auto rack = Add(3, {.zone = "z", .rack = "r"});
  const auto host = Add(4, {.zone = "z", .rack = "r", .host = "h"});

  EXPECT_EQ(Pick({At(any), At(zone), At(rack), At(host)}), host);
  EXPECT_EQ(Pick({At(any), At(zone), At(rack)}), rack);
  EXPECT_EQ(Pick({At(any), At(zone)}), zone);
  EXPECT_EQ(Pick({At(any)}), any);
}

TEST_F(RouterTest, EmptyLabelsAreNearToNothing) {
  router_.SetOwnLabels({});
  const auto nameless = Add(1, {});
  const auto busy = Add(2, {});
  ASSERT_TRUE(router_.Begin(nameless.node, 3));

  EXPECT_EQ(Pick({At(nameless), At(busy)}), busy);
}

TEST_F(RouterTest, AmongEqualsTheLessLoadedIsTaken) {
  const auto one = Add(1, {.zone = "z"});
  const auto two = Add(2, {.zone = "z"});
  ASSERT_TRUE(router_.Begin(one.node, 5));

  EXPECT_EQ(Pick({At(one), At(two)}), two);
  router_.End(one.node, 5, Router::Verdict::kServed);
  ASSERT_TRUE(router_.Begin(two.node, 5));
  EXPECT_EQ(Pick({At(one), At(two)}), one);
}

TEST_F(RouterTest, OneCallSpreadsItsBlocksOverReplicas) {
  const auto one = Add(1, {});
  const auto two = Add(2, {});
  std::vector<Router::Wanted> wanted(
      4, {.locations = {At(one), At(two)}, .excluded = {}});

  int ones = 0;
  for (const auto& picked : router_.Pick(wanted)) {
    if (picked->node == one.node) ++ones;
  }

  EXPECT_EQ(ones, 2);
}

TEST_F(RouterTest, ExcludedNodesAndOtherRunsAreNotPicked) {
  const auto one = Add(1, {});
  KnownLocation earlier = At(one);
  earlier.epoch = NodeEpoch{77};

  EXPECT_EQ(Pick({At(one)}, {one.node}), std::nullopt);
  EXPECT_EQ(Pick({earlier}), std::nullopt);
}

TEST_F(RouterTest, ANodeThatKeepsFailingIsLeftAloneUntilAProbeSucceeds) {
  const auto one = Add(1, {});
  Fail(one);
  EXPECT_EQ(Pick({At(one)}), one) << "once may be an idle connection's end";
  Fail(one);

  EXPECT_EQ(Pick({At(one)}), std::nullopt);
  EXPECT_FALSE(router_.Begin(one.node, 1));
  EXPECT_THAT(Probes({At(one)}), IsEmpty()) << "not yet";
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Pick({At(one)}), std::nullopt) << "no read is the probe";
  EXPECT_THAT(Probes({At(one)}), ElementsAre(one));
  EXPECT_THAT(Probes({At(one)}), IsEmpty()) << "one at a time";

  router_.End(one.node, 0, Router::Verdict::kServed);

  EXPECT_EQ(Pick({At(one)}), one);
}

TEST_F(RouterTest, ANodeThatCannotBeReachedIsLeftAloneAtOnce) {
  const auto one = Add(1, {});
  ASSERT_TRUE(router_.Begin(one.node, 1));

  router_.End(one.node, 1, Router::Verdict::kAway);

  EXPECT_EQ(Pick({At(one)}), std::nullopt);
}

TEST_F(RouterTest, ProbesThatFailComeEverMoreSeldom) {
  const auto one = Add(1, {});
  ASSERT_TRUE(router_.Begin(one.node, 1));
  router_.End(one.node, 1, Router::Verdict::kAway);

  int probes = 0;
  for (int millis = 0; millis < 60'000; ++millis) {
    clock_.Advance(absl::Milliseconds(1));
    for (const NodeAddress& probe : Probes({At(one)})) {
      ++probes;
      router_.End(probe.node, 0, Router::Verdict::kAway);
    }
  }

  // 50 ms doubled up to 1 s, each drawn from its upper half.
  EXPECT_GE(probes, 60);
  EXPECT_LE(probes, 2 * 60 + 5);
}

TEST_F(RouterTest, OnlyWhatIsWantedIsProbed) {
  const auto one = Add(1, {});
  const auto two = Add(2, {});
  for (const auto& node : {one, two}) {
    ASSERT_TRUE(router_.Begin(node.node, 1));
    router_.End(node.node, 1, Router::Verdict::kAway);
  }
  clock_.Advance(absl::Seconds(1));

  EXPECT_THAT(Probes({At(two)}), ElementsAre(two));
}

TEST_F(RouterTest, AnotherRunOfANodeBeginsWithACleanSlate) {
  const auto one = Add(1, {});
  Fail(one);
  Fail(one);

  const auto again = Add(1, {}, 2);

  EXPECT_EQ(Pick({At(again)}), again);
}

}  // namespace
}  // namespace firnkv
