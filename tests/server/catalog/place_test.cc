// Place: which node the catalog gives a remote writer's blocks.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "tests/server/catalog/service_fixture.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::Each;

class PlaceTest : public ServiceFixture {
 protected:
  void SetUp() override {
    tenant_ = DefaultTenant();
    auto opened = Open(tenant_, "granite");
    ASSERT_OK(opened);
    facts_ = opened->facts();
  }
  // Blocks [0, count) of one chain; anchors as the client makes them.
  v1::PlaceRequest ChainOf(std::uint64_t first, std::uint64_t count) {
    v1::PlaceRequest request;
    request.set_name_space(facts_.name_space());
    request.set_clear_epoch(facts_.clear_epoch());
    for (std::uint64_t i = 0; i < count; ++i) {
      request.mutable_keys()->append(Key(first + i).view());
      request.mutable_parents()->append(
          (i == 0 ? BlockKey{} : Key(first + i - 1)).view());
      request.mutable_anchors()->append(Key(first).view());
      request.add_lengths(4096);
    }
    return request;
  }
  absl::StatusOr<v1::PlaceResponse> Place(const v1::PlaceRequest& request) {
    return Catalogs<v1::PlaceResponse>("Place", Token(Role::kTenant, tenant_),
                                       request);
  }
  // Ids of the nodes, one a block.
  std::vector<std::string> NodesOf(const v1::PlaceRequest& request) {
    const auto response = Place(request);
    EXPECT_OK(response);
    std::vector<std::string> nodes;
    for (const std::uint32_t index : response->node_indexes()) {
      nodes.push_back(response->nodes(static_cast<int>(index)).node());
    }
    return nodes;
  }
  static std::string IdOf(const Member& member) {
    return IdToProto(member.address.node);
  }

  TenantId tenant_;
  v1::NamespaceFacts facts_;
};

TEST_F(PlaceTest, AChainGoesToOneNode) {
  for (std::uint8_t node = 1; node <= 4; ++node) Join(node, node);

  const std::vector<std::string> nodes = NodesOf(ChainOf(100, 6));

  ASSERT_EQ(nodes.size(), 6u);
  EXPECT_THAT(nodes, Each(nodes[0]));
}

TEST_F(PlaceTest, ManyChainsGoToAllNodes) {
  for (std::uint8_t node = 1; node <= 4; ++node) Join(node, node);

  std::set<std::string> nodes;
  for (std::uint64_t chain = 1; chain <= 64; ++chain) {
    nodes.insert(NodesOf(ChainOf(1000 * chain, 2))[0]);
  }

  EXPECT_EQ(nodes.size(), 4u);
}

TEST_F(PlaceTest, WhatSomebodyHasGoesThereAgain) {
  Member one = Join(1, 1);
  Member two = Join(2, 2);
  Publish(&two, facts_, {100, 101});

  EXPECT_THAT(NodesOf(ChainOf(100, 2)), Each(IdOf(two)));
}

TEST_F(PlaceTest, AContinuationGoesToItsParentsNode) {
  Member one = Join(1, 1);
  Member two = Join(2, 2);
  Publish(&one, facts_, {100});
  Publish(&two, facts_, {200});
  v1::PlaceRequest of_one = ChainOf(100, 2);
  v1::PlaceRequest of_two = ChainOf(200, 2);

  EXPECT_EQ(NodesOf(of_one)[1], IdOf(one));
  EXPECT_EQ(NodesOf(of_two)[1], IdOf(two));
}

TEST_F(PlaceTest, ANodeThatTheWriterCannotReachIsNotNamed) {
  Member one = Join(1, 1);
  Member two = Join(2, 2);
  Publish(&two, facts_, {100});
  v1::PlaceRequest request = ChainOf(100, 3);
  request.set_excluded_nodes(IdOf(two));

  EXPECT_THAT(NodesOf(request), Each(IdOf(one)));
}

TEST_F(PlaceTest, ANodeWhoseLeaseIsOverGetsNothing) {
  Member one = Join(1, 1);
  Join(2, 2);
  for (int i = 0; i < 12; ++i) {
    world_.RunFor(absl::Seconds(1));
    EXPECT_OK(KeepAlive(&one));
  }

  for (std::uint64_t chain = 1; chain <= 20; ++chain) {
    EXPECT_THAT(NodesOf(ChainOf(1000 * chain, 1)), Each(IdOf(one)));
  }
}

TEST_F(PlaceTest, WithoutANodeItIsUnavailable) {
  EXPECT_THAT(Place(ChainOf(100, 1)), StatusIs(absl::StatusCode::kUnavailable));
}

// Rule C2.
TEST_F(PlaceTest, OfALaterClearEpochItIsUnavailable) {
  Join(1, 1);
  v1::PlaceRequest request = ChainOf(100, 1);
  request.set_clear_epoch(facts_.clear_epoch() + 1);

  EXPECT_THAT(Place(request), StatusIs(absl::StatusCode::kUnavailable));
}

// Rule C2: a copy of before a clear is nobody's.
TEST_F(PlaceTest, WhatWasClearedHasNoPlace) {
  Join(1, 1);
  Member two = Join(2, 2);
  Publish(&two, facts_, {100, 101, 102, 103});
  EXPECT_OK(Clear("granite"));
  facts_.set_clear_epoch(facts_.clear_epoch() + 1);

  std::set<std::string> nodes;
  for (const std::uint64_t key : {100, 101, 102, 103}) {
    nodes.insert(NodesOf(ChainOf(key, 1))[0]);
  }

  EXPECT_EQ(nodes.size(), 2u);
}

// Rule C1.
TEST_F(PlaceTest, OnlyItsTenantIsAnswered) {
  Join(1, 1);
  v1::CreateTenantRequest create;
  create.set_name("bob");
  auto bob = Admins<v1::TenantResponse>("CreateTenant", create);
  ASSERT_OK(bob);
  const TenantId other = *TenantId::FromBytes(bob->tenant().tenant());

  EXPECT_THAT((Catalogs<v1::PlaceResponse>("Place", Token(Role::kTenant, other),
                                           ChainOf(100, 1))),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT((Catalogs<v1::PlaceResponse>("Place", Token(Role::kNode),
                                           ChainOf(100, 1))),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT((Catalogs<v1::PlaceResponse>("Place", "", ChainOf(100, 1))),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST_F(PlaceTest, ColumnsThatDifferAreRefused) {
  Join(1, 1);
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  v1::PlaceRequest request = ChainOf(100, 3);
  request.add_lengths(4096);
  EXPECT_THAT(Place(request), StatusIs(kInvalid));

  request = ChainOf(100, 3);
  request.mutable_parents()->resize(32);
  EXPECT_THAT(Place(request), StatusIs(kInvalid));

  request = ChainOf(100, 3);
  request.set_lengths(1, 0);
  EXPECT_THAT(Place(request), StatusIs(kInvalid));

  EXPECT_THAT(Place(ChainOf(100, 0)), StatusIs(kInvalid));
}

}  // namespace
}  // namespace firnkv
