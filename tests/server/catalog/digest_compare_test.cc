// CompareDigests as a node calls it (rule A5): what differs is named, and
// nothing is compared that cannot be.

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/copy_digest.h"
#include "tests/server/catalog/service_fixture.h"

namespace firnkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DigestCompareTest : public ServiceFixture {
 protected:
  DigestCompareTest() { Settle(); }

  // The store is read, and what was cleared is gone.
  void Settle() {
    world_.RunFor(absl::Seconds(1));
    ASSERT_OK(KeepAlive(&node_));
  }

  // What the node says that it has: `keys`, as Publish names them.
  BucketSums SumsOf(const std::vector<std::uint64_t>& keys) {
    BucketSums sums;
    const NamespaceId id = *NamespaceId::FromBytes(facts_.name_space());
    for (const std::uint64_t key : keys) {
      sums.Add({.name_space = id, .key = Key(key)}, 0, Generation{key + 1});
    }
    return sums;
  }
  v1::CompareDigestsRequest Request(const BucketSums& sums,
                                    const std::vector<std::uint32_t>& groups) {
    v1::CompareDigestsRequest request;
    request.set_node(IdToProto(node_.address.node));
    request.set_epoch(static_cast<std::uint64_t>(node_.address.epoch));
    request.set_registration(node_.registration);
    request.set_number(node_.number);
    for (const std::uint32_t group : groups) {
      request.add_groups(group);
      for (std::size_t i = 0; i < kBucketsAGroup; ++i) {
        request.add_digests(sums.Bucket(group * kBucketsAGroup + i));
      }
    }
    for (std::size_t i = 0; groups.empty() && i < kCopyGroups; ++i) {
      request.add_digests(sums.Group(i));
    }
    return request;
  }
  absl::StatusOr<v1::CompareDigestsResponse> Send(
      const v1::CompareDigestsRequest& request) {
    return Catalogs<v1::CompareDigestsResponse>("CompareDigests",
                                                Token(Role::kNode), request);
  }
  v1::CompareDigestsResponse Compare(
      const std::vector<std::uint64_t>& keys,
      const std::vector<std::uint32_t>& groups = {}) {
    const auto response = Send(Request(SumsOf(keys), groups));
    EXPECT_OK(response);
    return *response;
  }

  const TenantId tenant_ = DefaultTenant();
  const v1::NamespaceFacts facts_ = Open(tenant_, "granite")->facts();
  Member node_ = Join(1, 100);
};

TEST_F(DigestCompareTest, WhatIsEqualIsNotNamed) {
  Publish(&node_, facts_, {1, 2, 3});

  const v1::CompareDigestsResponse response = Compare({1, 2, 3});

  EXPECT_EQ(response.applied(), node_.number);
  EXPECT_FALSE(response.loading());
  EXPECT_THAT(response.different(), IsEmpty());
}

TEST_F(DigestCompareTest, GroupsAndThenBucketsThatDifferAreNamed) {
  Publish(&node_, facts_, {1, 2, 3});
  const std::uint32_t lost = CopyBucket(Key(2));
  const std::uint32_t left = CopyBucket(Key(9));
  ASSERT_NE(lost / kBucketsAGroup, left / kBucketsAGroup);
  std::vector<std::uint32_t> groups = {
      static_cast<std::uint32_t>(lost / kBucketsAGroup),
      static_cast<std::uint32_t>(left / kBucketsAGroup)};
  std::sort(groups.begin(), groups.end());

  EXPECT_THAT(Compare({1, 3, 9}).different(),
              ElementsAre(groups[0], groups[1]));
  EXPECT_THAT(Compare({1, 3, 9}, groups).different(),
              ElementsAre(std::min(lost, left), std::max(lost, left)));
}

// The same key under another generation is another copy.
TEST_F(DigestCompareTest, AnotherGenerationDiffers) {
  Publish(&node_, facts_, {1});
  BucketSums sums;
  sums.Add({.name_space = *NamespaceId::FromBytes(facts_.name_space()),
            .key = Key(1)},
           0, Generation{77});

  const auto response = Send(Request(sums, {}));

  ASSERT_OK(response);
  EXPECT_EQ(response->different_size(), 1);
}

// Only at equal numbers.
TEST_F(DigestCompareTest, NothingIsComparedAtAnotherNumber) {
  Publish(&node_, facts_, {1});
  const v1::CompareDigestsRequest early = Request(SumsOf({}), {});
  Publish(&node_, facts_, {2});

  const auto response = Send(early);

  ASSERT_OK(response);
  EXPECT_EQ(response->applied(), node_.number);
  EXPECT_NE(response->applied(), early.number());
  EXPECT_THAT(response->different(), IsEmpty());
}

// A kept registration has no batches yet.
TEST_F(DigestCompareTest, AKeptRegistrationIsComparedAtNumberNone) {
  Publish(&node_, facts_, {1, 2});
  node_ = Register(1, 100);
  ASSERT_TRUE(node_.kept);

  EXPECT_THAT(Compare({1, 2}).different(), IsEmpty());
  EXPECT_EQ(Compare({1}).different_size(), 1);
}

TEST_F(DigestCompareTest, WhatTheStoreHasCountsAfterARestart) {
  Publish(&node_, facts_, {1, 2, 3});
  Restart();
  ASSERT_OK(KeepAlive(&node_));
  EXPECT_TRUE(Compare({1, 2, 3}).loading());

  Settle();

  EXPECT_FALSE(Compare({1, 2, 3}).loading());
  EXPECT_THAT(Compare({1, 2, 3}).different(), IsEmpty());
  EXPECT_EQ(Compare({1, 2}).different_size(), 1);
}

// The node has dropped at once what the catalog drops bit by bit.
TEST_F(DigestCompareTest, WhatIsClearedIsNotComparedUntilItIsReaped) {
  const v1::NamespaceFacts other = Open(tenant_, "other")->facts();
  Publish(&node_, facts_, {1});
  Publish(&node_, other, {2});
  ASSERT_OK(Clear("other"));
  EXPECT_TRUE(Compare({1}).loading());

  Settle();

  EXPECT_FALSE(Compare({1}).loading());
  EXPECT_THAT(Compare({1}).different(), IsEmpty());
}

TEST_F(DigestCompareTest, ARepairMakesThemEqual) {
  Publish(&node_, facts_, {1, 2, 3});
  ASSERT_EQ(Compare({1, 3}).different_size(), 1);
  v1::AnnounceRequest repair =
      BatchOf(node_, v1::AnnounceRequest::REPAIR, facts_, {});
  repair.add_buckets(CopyBucket(Key(2)));

  const auto applied =
      Catalogs<v1::AnnounceResponse>("Announce", Token(Role::kNode), repair);

  ASSERT_OK(applied);
  node_.number = applied->applied();
  EXPECT_THAT(Compare({1, 3}).different(), IsEmpty());
  EXPECT_THAT(OutcomesOf(tenant_, facts_, {1, 2, 3}),
              ElementsAre(Outcome::kHit, Outcome::kMiss, Outcome::kHit));
}

// Rule A1: as for a batch.
TEST_F(DigestCompareTest, WhoIsNotTheAnnouncerIsRefused) {
  v1::CompareDigestsRequest request = Request(SumsOf({}), {});
  const std::string registration = request.registration();
  request.set_registration(std::string(16, 'x'));
  EXPECT_THAT(Send(request), StatusIs(absl::StatusCode::kFailedPrecondition));
  request.set_registration(registration);
  request.set_epoch(99);
  EXPECT_THAT(Send(request), StatusIs(absl::StatusCode::kNotFound));
  request.set_epoch(100);
  EXPECT_OK(Send(request));

  EXPECT_THAT((Catalogs<v1::CompareDigestsResponse>(
                  "CompareDigests", Token(Role::kTenant, tenant_), request)),
              StatusIs(absl::StatusCode::kPermissionDenied));
  Announce(&node_, v1::AnnounceRequest::INVENTORY_BEGIN, {}, {});
  EXPECT_THAT(Send(Request(SumsOf({}), {})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(DigestCompareTest, ColumnsThatDoNotFitAreRefused) {
  const auto invalid = [](std::string_view why) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr(std::string(why)));
  };
  v1::CompareDigestsRequest request = Request(SumsOf({}), {});
  request.add_digests(0);
  EXPECT_THAT(Send(request), invalid("digests"));
  EXPECT_THAT(Send(Request(SumsOf({}), {2, 2})), invalid("rise"));
  request = Request(SumsOf({}), {2});
  request.set_groups(0, 256);
  EXPECT_THAT(Send(request), invalid("below 256"));
}

}  // namespace
}  // namespace firnkv
