// When digests are compared, and what follows from what differs.

#include "server/node/digest_watch.h"

#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

using Verdict = DigestWatch::Verdict;

class DigestWatchTest : public testing::Test {
 protected:
  // One comparison in which exactly these buckets, of group 1, differ.
  Verdict Look(const std::vector<std::uint32_t>& buckets) {
    watch_.Begin(BucketSums());
    if (buckets.empty()) return watch_.OnAnswer({});
    EXPECT_EQ(watch_.OnAnswer({1}), Verdict::kAskBuckets);
    return watch_.OnAnswer(buckets);
  }

  SeededRandom random_{5};
  DigestWatch watch_{{.most_buckets = 3}, &random_};
};

// Rule A5.
TEST_F(DigestWatchTest, OnlyWhatDiffersAtBothLooksIsMended) {
  EXPECT_EQ(Look({260, 261}), Verdict::kLookAgain);
  EXPECT_EQ(Look({261, 262}), Verdict::kRepair);
  EXPECT_EQ(watch_.different(), std::vector<std::uint32_t>{261});
}

TEST_F(DigestWatchTest, WhatWasMendedIsLookedAtTwiceAgain) {
  Look({260});
  ASSERT_EQ(Look({260}), Verdict::kRepair);

  EXPECT_EQ(Look({260}), Verdict::kLookAgain);
}

TEST_F(DigestWatchTest, AfterALossOneLookIsEnoughAndOnlyOnce) {
  watch_.ExpectLoss();

  EXPECT_EQ(Look({260}), Verdict::kRepair);
  EXPECT_EQ(Look({260}), Verdict::kLookAgain);
}

TEST_F(DigestWatchTest, ALossIsExpectedUntilACompareWasMade) {
  watch_.ExpectLoss();
  watch_.Begin(BucketSums());
  watch_.OnFailure();

  EXPECT_EQ(Look({260}), Verdict::kRepair);
}

TEST_F(DigestWatchTest, TooManyBucketsAreNotNamed) {
  watch_.ExpectLoss();

  EXPECT_EQ(Look({260, 261, 262, 263}), Verdict::kInventory);
}

TEST_F(DigestWatchTest, BucketsThatWereNotAskedAboutDoNotCount) {
  EXPECT_EQ(Look({5, 70'000}), Verdict::kSame);
}

TEST_F(DigestWatchTest, TheSecondStepCarriesTheBucketsOfTheGroupsThatDiffer) {
  BucketSums sums;
  const BlockId block{NamespaceId::Make(&random_), BlockKey::Make(&random_)};
  sums.Add(block, 0, Generation{9});
  const std::uint32_t bucket = CopyBucket(block.key);
  watch_.Begin(sums);
  ASSERT_EQ(watch_.Digests().size(), kCopyGroups);
  EXPECT_EQ(watch_.Digests()[bucket / kBucketsAGroup], sums.Bucket(bucket));

  ASSERT_EQ(watch_.OnAnswer({bucket / std::uint32_t{kBucketsAGroup}}),
            Verdict::kAskBuckets);

  ASSERT_EQ(watch_.Digests().size(), kBucketsAGroup);
  EXPECT_EQ(watch_.Digests()[bucket % kBucketsAGroup], sums.Bucket(bucket));
}

TEST_F(DigestWatchTest, NodesDoNotCompareInStep) {
  const absl::Duration first = watch_.DelayAfter(Verdict::kSame);
  const absl::Duration second = watch_.DelayAfter(Verdict::kSame);

  EXPECT_NE(first, second);
  for (const absl::Duration delay : {first, second}) {
    EXPECT_GE(delay, absl::Seconds(45));
    EXPECT_LE(delay, absl::Seconds(75));
  }
}

}  // namespace
}  // namespace firnkv
