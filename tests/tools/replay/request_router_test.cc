#include "tools/replay/request_router.h"

#include "gtest/gtest.h"

namespace firnkv {
namespace {

TraceRequest Request(std::vector<std::uint64_t> ids) {
  TraceRequest request;
  request.ids = std::move(ids);
  return request;
}

TEST(RequestRouterTest, InTurnEveryWorkerGetsTheNext) {
  RequestRouter router(Routing::kInTurn, 2);

  EXPECT_EQ(router.Assign(Request({1, 2})), 0u);
  EXPECT_EQ(router.Assign(Request({1, 2})), 1u);
  EXPECT_EQ(router.Assign(Request({1, 2})), 0u);
}

TEST(RequestRouterTest, AConversationStaysWithItsWorker) {
  RequestRouter router(Routing::kAffinity, 3);
  router.Assign(Request({1, 2}));
  ASSERT_EQ(router.Assign(Request({1, 5})), 1u);

  EXPECT_EQ(router.Assign(Request({1, 5, 6})), 1u);
  EXPECT_EQ(router.Assign(Request({1, 2, 3})), 0u);
}

TEST(RequestRouterTest, TheFirstBlockAloneBindsNobody) {
  RequestRouter router(Routing::kAffinity, 2);

  EXPECT_EQ(router.Assign(Request({1, 2})), 0u);
  EXPECT_EQ(router.Assign(Request({1, 3})), 1u);
  EXPECT_EQ(router.Assign(Request({1})), 0u);
}

TEST(RequestRouterTest, TheLongestPrefixDecides) {
  RequestRouter router(Routing::kAffinity, 2);
  router.Assign(Request({1, 2, 3}));  // To worker 0.
  router.Assign(Request({1}));        // To worker 1.
  router.Assign(Request({1}));        // To worker 0.
  ASSERT_EQ(router.Assign(Request({1, 8})), 1u);

  EXPECT_EQ(router.Assign(Request({1, 2, 9})), 0u);
}

TEST(RequestRouterTest, ARequestWithoutBlocksGoesInTurn) {
  RequestRouter router(Routing::kAffinity, 2);

  EXPECT_EQ(router.Assign(Request({})), 0u);
  EXPECT_EQ(router.Assign(Request({})), 1u);
}

}  // namespace
}  // namespace firnkv
