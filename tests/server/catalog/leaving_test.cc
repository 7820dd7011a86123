// A node that ends by itself, through the services: Unregister and ListPeers.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/catalog/service_fixture.h"

namespace firnkv {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

class LeavingTest : public ServiceFixture {
 protected:
  absl::Status Unregister(const Member& member, std::string token) {
    v1::UnregisterRequest request;
    request.set_node(IdToProto(member.address.node));
    request.set_epoch(static_cast<std::uint64_t>(member.address.epoch));
    request.set_registration(member.registration);
    return Catalogs<v1::UnregisterResponse>("Unregister", std::move(token),
                                            request)
        .status();
  }
  absl::StatusOr<v1::ListPeersResponse> ListPeers(std::uint8_t asker,
                                                  std::string token) {
    v1::ListPeersRequest request;
    request.set_node(IdToProto(Node(asker)));
    return Catalogs<v1::ListPeersResponse>("ListPeers", std::move(token),
                                           request);
  }
  // Their control addresses.
  std::vector<std::string> PeersOf(std::uint8_t asker) {
    const auto response = ListPeers(asker, Token(Role::kNode));
    EXPECT_OK(response);
    std::vector<std::string> addresses;
    for (const v1::NodeAddress& one : response->nodes()) {
      addresses.push_back(one.control_address());
    }
    return addresses;
  }
  int Listed() {
    const auto response =
        Admins<v1::ListNodesResponse>("ListNodes", v1::ListNodesRequest());
    EXPECT_OK(response);
    return response->nodes_size();
  }

  const TenantId tenant_ = DefaultTenant();
};

// Rule A3: at once, not after lease and grace; the reaping follows.
TEST_F(LeavingTest, ANodeThatUnregistersIsGoneWithAllThatItHad) {
  const v1::NamespaceFacts facts = Open(tenant_, "granite")->facts();
  Member node = Join(1, 100);
  Publish(&node, facts, {1, 2, 3});
  ASSERT_THAT(OutcomesOf(tenant_, facts, {1, 2, 3}), Each(Outcome::kHit));

  ASSERT_OK(Unregister(node, Token(Role::kNode)));

  EXPECT_THAT(OutcomesOf(tenant_, facts, {1, 2, 3}), Each(Outcome::kMiss));
  EXPECT_EQ(Listed(), 0);
  EXPECT_EQ(CatalogStatus().nodes_expired(), 0u);
  EXPECT_TRUE(world_.RunUntil([&] { return store_.size(Family::kKeys) == 0; },
                              absl::Minutes(1)));
}

TEST_F(LeavingTest, WhatOtherNodesHaveStays) {
  const v1::NamespaceFacts facts = Open(tenant_, "granite")->facts();
  Member leaves = Join(1, 100);
  Member stays = Join(2, 200);
  Publish(&leaves, facts, {1, 2});
  Publish(&stays, facts, {2, 3});

  ASSERT_OK(Unregister(leaves, Token(Role::kNode)));
  world_.RunFor(absl::Seconds(5));

  EXPECT_THAT(OutcomesOf(tenant_, facts, {1, 2, 3}),
              ElementsAre(Outcome::kMiss, Outcome::kHit, Outcome::kHit));
}

TEST_F(LeavingTest, OnlyNodesUnregisterAndAskForPeers) {
  const Member node = Join(1, 100);
  for (const Role role : {Role::kTenant, Role::kAdmin}) {
    EXPECT_THAT(Unregister(node, Token(role, tenant_)),
                StatusIs(absl::StatusCode::kPermissionDenied));
    EXPECT_THAT(ListPeers(2, Token(role, tenant_)),
                StatusIs(absl::StatusCode::kPermissionDenied));
  }
  EXPECT_EQ(Listed(), 1);
}

TEST_F(LeavingTest, PeersAreTheOthersThatAreAlive) {
  Member first = Join(1, 100);
  Member second = Join(2, 200);
  Member third = Join(3, 300);
  Member fourth = Join(4, 400);
  ASSERT_OK(Unregister(third, Token(Role::kNode)));
  for (int i = 0; i < 6; ++i) {
    world_.RunFor(absl::Seconds(2));
    ASSERT_OK(KeepAlive(&first));
    ASSERT_OK(KeepAlive(&second));
  }

  // The third has left, the fourth's lease is over.
  EXPECT_THAT(PeersOf(1), ElementsAre("host-2:7410"));
  EXPECT_THAT(PeersOf(2), ElementsAre("host-1:7410"));
  EXPECT_THAT(PeersOf(9), ElementsAre("host-1:7410", "host-2:7410"));
}

TEST_F(LeavingTest, PeersComeWithWhatTheyHaveRoomFor) {
  Member node = Join(1, 100);
  v1::KeepAliveRequest beat;
  beat.set_node(IdToProto(node.address.node));
  beat.set_epoch(static_cast<std::uint64_t>(node.address.epoch));
  beat.set_registration(node.registration);
  beat.set_namespace_cursor(node.cursor);
  beat.set_dram_bytes(1000);
  beat.set_dram_used_bytes(400);
  *beat.mutable_seen() = node.seen;
  ASSERT_OK(
      Catalogs<v1::KeepAliveResponse>("KeepAlive", Token(Role::kNode), beat));

  const auto peers = ListPeers(2, Token(Role::kNode));

  ASSERT_OK(peers);
  EXPECT_THAT(peers->dram_bytes(), ElementsAre(1000u));
  EXPECT_THAT(peers->dram_used_bytes(), ElementsAre(400u));
  EXPECT_EQ(peers->nodes(0).labels().rack(), "r");
}

TEST_F(LeavingTest, ALoneNodeHasNoPeers) {
  Join(1, 100);

  EXPECT_THAT(PeersOf(1), IsEmpty());
}

}  // namespace
}  // namespace firnkv
