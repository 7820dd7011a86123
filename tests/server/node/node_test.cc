// A whole node: what it does over its life, and what it leaves behind.

#include "server/node/node.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/option.h"
#include "tests/server/node/whole_node.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

class NodeTest : public WholeNodeTest {};

TEST_F(NodeTest, WhatIsWrittenIsAnnounced) {
  StartNode();
  const auto session = Connect(kAliceUid);

  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  RunFor(absl::Milliseconds(100));

  EXPECT_EQ(catalog_.published.count({granite_.name_space, KeyOf(1)}), 1u);
}

TEST_F(NodeTest, WhatIsEvictedIsWithdrawn) {
  StartNode();
  const auto session = Connect(kAliceUid);

  for (std::uint64_t n = 0; n < 60; ++n) {
    ASSERT_EQ(Write(session.get(), granite_, n, 512 * kKiB), Outcome::kStored);
  }
  RunFor(absl::Seconds(1));

  EXPECT_GT(node_->pool().evicted_blocks, 0u);
  EXPECT_EQ(catalog_.published.size(), node_->pool().blocks);
  EXPECT_EQ(node_->Residents().size(), node_->pool().blocks);
}

TEST_F(NodeTest, WithoutACatalogItServesWhatItKnows) {
  StartNode();
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  catalog_.silent = true;
  RunFor(absl::Minutes(5));

  EXPECT_EQ(Read(session.get(), granite_, 1), Outcome::kHit);
  EXPECT_EQ(Write(session.get(), granite_, 2), Outcome::kStored);
  EXPECT_EQ(node_->link_state(), CatalogLink::State::kAway);

  catalog_.silent = false;
  RunFor(absl::Seconds(10));

  EXPECT_EQ(catalog_.published.size(), 2u);
}

// Rule C4.
TEST_F(NodeTest, WithoutMembershipAStrictNamespaceIsNotServed) {
  NamespaceFacts strict = catalog_.AddNamespace("alice");
  strict.strict_clear = true;
  catalog_.name_spaces[strict.name_space] = strict;
  StartNode();
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), strict, 1), Outcome::kStored);
  ASSERT_EQ(Read(session.get(), strict, 1), Outcome::kHit);
  catalog_.silent = true;
  RunFor(absl::Seconds(10));

  EXPECT_EQ(Read(session.get(), strict, 1), Outcome::kUnavailable);

  catalog_.silent = false;
  RunFor(absl::Seconds(10));
  EXPECT_EQ(Read(session.get(), strict, 1), Outcome::kHit);
}

// Rule C4.
TEST_F(NodeTest, AStrictClearIsConfirmedOnceLeasesFromBeforeItHaveEnded) {
  NamespaceFacts strict = catalog_.AddNamespace("alice");
  strict.strict_clear = true;
  catalog_.name_spaces[strict.name_space] = strict;
  StartNode();
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), strict, 1), Outcome::kStored);
  RunFor(absl::Seconds(3));
  v1::OpenReadRequest open = OpenOf(session->id(), strict, 1);
  open.set_lease_millis(20'000);
  const auto opened = Call<v1::OpenReadResponse>("OpenRead", open);
  ASSERT_OK(opened);
  // Not beyond the node's membership: there nobody would wait for it.
  EXPECT_LT(opened->lease_millis(), 10'000);
  catalog_.Clear(strict.name_space);
  const std::uint64_t cursor = catalog_.beats.back().namespace_cursor();
  ASSERT_EQ(catalog_.beats.back().drained_cursor(), cursor);

  RunFor(absl::Seconds(4));
  EXPECT_GT(catalog_.beats.back().namespace_cursor(), cursor);
  EXPECT_EQ(catalog_.beats.back().drained_cursor(), cursor);

  RunFor(absl::Seconds(8));
  EXPECT_GT(catalog_.beats.back().drained_cursor(), cursor);
}

// Rule A6.
TEST_F(NodeTest, ARunThatFollowsNamesTheOneBefore) {
  StartNode();
  const NodeEpoch first = node_->address().epoch;
  StopNode();

  StartNode();

  EXPECT_NE(node_->address().epoch, first);
  EXPECT_EQ(catalog_.registrations.back().predecessor_epoch(),
            static_cast<std::uint64_t>(first));
}

TEST_F(NodeTest, ARestartedNodeIsEmptyAndSaysSo) {
  StartNode();
  {
    const auto session = Connect(kAliceUid);
    ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
    RunFor(absl::Seconds(1));
  }
  ASSERT_EQ(catalog_.published.size(), 1u);
  StopNode();

  StartNode();

  EXPECT_TRUE(catalog_.published.empty());
}

// Rule A6.
TEST_F(NodeTest, ASupersededNodeServesNothingMore) {
  StartNode();
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  const SessionId id = session->id();
  catalog_.FailNext("KeepAlive", absl::AbortedError("a later one runs"));

  RunFor(absl::Seconds(5));

  EXPECT_TRUE(superseded_);
  EXPECT_TRUE(session->closed());
  EXPECT_THAT(Call<v1::OpenReadResponse>("OpenRead", OpenOf(id, granite_, 1)),
              StatusIs(absl::StatusCode::kUnavailable));
  RawStreamPeer reader(NewClient(kAliceUid), kStream);
  RunFor(absl::Seconds(1));
  EXPECT_TRUE(reader.closed());
}

TEST_F(NodeTest, ANodeOfAnotherClusterDoesNotStart) {
  SeededRandom random(4);
  NodeMemory memory = state_.memory();
  memory.cluster = ClusterId::Make(&random);
  ASSERT_OK(state_.Save(memory));
  machine_ = world_.NewMachine("node", "node");
  Node::Parts parts;
  parts.state = &state_;
  parts.secret = secret_;
  parts.cluster = catalog_.cluster;
  Node node(DefaultOptions(), machine_->seams(), std::move(parts));

  EXPECT_THAT(node.Start(kTcpGrpc),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// A kStaleLocation; a look at digests is due after 45 s at the earliest.
TEST_F(NodeTest, ACopyThatARemoteReaderMissedIsSoonForgottenByTheCatalog) {
  StartNode();
  const auto session = Connect(kAliceUid);
  catalog_.published[{granite_.name_space, KeyOf(9)}] = Generation{1};
  RawStreamPeer reader(NewClient(kAliceUid), kStream);
  reader.SendHello(catalog_.cluster, session->welcome()->token());
  RunFor(absl::Milliseconds(10));
  reader.SendRead(1, granite_.name_space, {KeyOf(9)});

  RunFor(absl::Seconds(30));

  EXPECT_EQ(reader.OutcomesOf(1), std::vector<Outcome>{Outcome::kMiss});
  EXPECT_TRUE(catalog_.published.empty());
}

TEST_F(NodeTest, ANodeMayEndInTheMiddleOfEverything) {
  StartNode();
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1, 900'000), Outcome::kStored);
  RawStreamPeer reader(NewClient(kAliceUid), kStream);
  reader.SendHello(catalog_.cluster, session->welcome()->token());
  RunFor(absl::Milliseconds(10));
  reader.StopReading();
  reader.SendRead(1, granite_.name_space, {KeyOf(1)});
  SessionPeer asking(NewClient(kAliceUid), kSocket);
  catalog_.silent = true;
  asking.Send(SessionPeer::Hello(catalog_.cluster));
  ASSERT_OK(Call<v1::ReserveResponse>(
      "Reserve", ReserveOf(session->id(), granite_, 2, 4096)));
  ASSERT_OK(Call<v1::OpenReadResponse>("OpenRead",
                                       OpenOf(session->id(), granite_, 1)));
  RunFor(absl::Milliseconds(20));

  StopNode();
  RunFor(absl::Minutes(1));

  EXPECT_TRUE(session->closed());
}

// Rule P9.
TEST_F(NodeTest, ASessionWithAViewBeyondItsHardAgeIsClosed) {
  NodeOptions options = DefaultOptions();
  options.leases.longest_view = absl::Seconds(5);
  StartNode(options);
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  v1::OpenReadRequest open = OpenOf(session->id(), granite_, 1);
  open.set_for_view(true);
  ASSERT_OK(Call<v1::OpenReadResponse>("OpenRead", open));

  RunFor(absl::Seconds(4));
  EXPECT_FALSE(session->closed());
  RunFor(absl::Seconds(3));

  EXPECT_TRUE(session->closed());
}

TEST_F(NodeTest, ASessionIsToldWhenARegionThatItMapsRetires) {
  StartNode();
  const auto session = Connect(kAliceUid);
  ASSERT_EQ(Write(session.get(), granite_, 1), Outcome::kStored);
  const auto opened = Call<v1::OpenReadResponse>(
      "OpenRead", OpenOf(session->id(), granite_, 1));
  const std::uint64_t region = opened->extent_regions(0);
  session->WantDescriptor(region, 0);
  RunFor(absl::Milliseconds(10));
  session->Taken(region, 0);

  node_->SetDramTarget(0);
  RunFor(absl::Seconds(1));

  bool told = false;
  for (const auto& one : session->got) {
    told = told || (one.message.has_region_retired() &&
                    one.message.region_retired().region() == region);
  }
  EXPECT_TRUE(told);
}

TEST_F(NodeTest, EveryMetricHasANameOfItsOwnAndAHelp) {
  StartNode();
  MetricList list;

  node_->DescribeMetrics(&list);

  EXPECT_GT(list.metrics().size(), 50u);
  for (const Metric& metric : list.metrics()) {
    EXPECT_EQ(metric.name.rfind("firnkv_node_", 0), 0u) << metric.name;
    EXPECT_FALSE(metric.help.empty()) << metric.name;
    // A rate over what is no counter is none.
    EXPECT_EQ(
        metric.name.ends_with("_total"),
        std::holds_alternative<const Counter*>(metric.read) ||
            std::holds_alternative<std::function<std::uint64_t()>>(metric.read))
        << metric.name;
  }
}

// --- Options.

TEST(NodeOptionsTest, TheDefaultsAreWithinTheirBounds) {
  NodeOptions options;
  OptionList list;

  Describe(&options, &list);

  EXPECT_OK(Validate(options));
  for (const Option& option : list.options()) {
    EXPECT_FALSE(option.help.empty()) << option.name;
    if (option.set && option.kind != "list") {
      EXPECT_OK(option.set(option.get())) << option.name;
    }
  }
}

TEST(NodeOptionsTest, ABindBeyondLoopbackMustBeAskedFor) {
  NodeOptions options;
  options.stream = "0.0.0.0:7411";
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("plaintext_network")));
  options.plaintext_network = true;
  options.advertise_stream = "10.0.0.1:7411";
  EXPECT_OK(Validate(options));
}

// Others who are told "0.0.0.0" come to their own host.
TEST(NodeOptionsTest, ANodeOnAllAddressesSaysWhichOneIsForOthers) {
  for (const char* address : {"0.0.0.0:7411", "[::]:7411"}) {
    NodeOptions options;
    options.plaintext_network = true;
    options.stream = address;
    EXPECT_THAT(Validate(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         testing::HasSubstr("node.advertise_stream")));
    options.advertise_stream = "10.0.0.1:7411";
    options.control = address;
    EXPECT_THAT(Validate(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         testing::HasSubstr("node.advertise_control")));
    options.advertise_control = "10.0.0.1:7410";
    EXPECT_OK(Validate(options));
  }
}

TEST(NodeOptionsTest, WhatIsNoAddressIsRefused) {
  NodeOptions options;
  OptionList list;
  Describe(&options, &list);
  for (const char* name :
       {"node.stream", "node.control", "node.advertise_stream",
        "node.advertise_control", "node.catalog", "node.advertise_catalog"}) {
    EXPECT_FALSE(list.Find(name)->set("nonsense").ok()) << name;
    EXPECT_FALSE(list.Find(name)->set("127.0.0.1:99999").ok()) << name;
    EXPECT_OK(list.Find(name)->set("node1.example:7411"));
  }
  EXPECT_FALSE(list.Find("node.stream")->set("").ok());
  EXPECT_OK(list.Find("node.catalog")->set(""));
}

TEST(NodeOptionsTest, LoopbackIsWhatTheMachineKeepsToItself) {
  for (const char* address :
       {"127.0.0.1:1", "127.8.8.8:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "node:1",
                              "127.example.org:1", ":7411"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

TEST(NodeOptionsTest, AUidMapIsCheckedLineByLine) {
  EXPECT_OK(ParseUidMap({"0=root", "1000=alice"}));
  for (const char* line : {"alice", "=alice", "1000=", "-1=alice", "1x=alice",
                           "99999999999=alice"}) {
    EXPECT_THAT(
        ParseUidMap({line}),
        StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(line)));
  }
  EXPECT_FALSE(ParseUidMap({"1=a", "1=b"}).ok());
  // Rule S2: many users have it.
  EXPECT_FALSE(ParseUidMap({"65534=alice"}).ok());
}

TEST(NodeOptionsTest, RegionsMustFitThePool) {
  NodeOptions options;
  options.dram_bytes = 32 * kMiB;
  EXPECT_FALSE(Validate(options).ok());
  options.region_bytes = 8 * kMiB;
  EXPECT_OK(Validate(options));
  options.region_bytes = 8 * kMiB + 1;
  EXPECT_FALSE(Validate(options).ok());
}

}  // namespace
}  // namespace firnkv
