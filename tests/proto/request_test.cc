#include "proto/base/request.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/limits.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RequestHeader ValidHeader() {
  RequestHeader header;
  header.remaining = absl::Milliseconds(250);
  return header;
}

TEST(RequestHeader, IsValidUpToTheLongestDeadlineAndToken) {
  RequestHeader header = ValidHeader();
  header.remaining = kLongestDeadline;
  header.token = std::string(kMaxTokenBytes, 't');

  EXPECT_THAT(Validate(header), IsOk());
}

TEST(RequestHeader, WithoutTimeLeftIsTooLate) {
  RequestHeader header = ValidHeader();

  for (const absl::Duration left : {absl::ZeroDuration(), absl::Nanoseconds(-1),
                                    -absl::InfiniteDuration()}) {
    header.remaining = left;
    EXPECT_THAT(Validate(header),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
  }
}

TEST(RequestHeader, BeyondTheLongestDeadlineIsRefused) {
  RequestHeader header = ValidHeader();

  for (const absl::Duration left :
       {kLongestDeadline + absl::Nanoseconds(1), absl::InfiniteDuration()}) {
    header.remaining = left;
    EXPECT_THAT(Validate(header),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2m")));
  }
}

TEST(RequestHeader, OfAnUnknownClassIsRefused) {
  RequestHeader header = ValidHeader();

  for (const int number : {0, 5, 255}) {
    header.traffic = static_cast<TrafficClass>(number);
    EXPECT_THAT(Validate(header), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("traffic class")));
  }
}

TEST(RequestHeader, OfAForeignProtocolVersionIsRefused) {
  RequestHeader header = ValidHeader();

  for (const std::uint32_t version :
       {kOldestProtocolVersion - 1, kProtocolVersion + 1}) {
    header.protocol = version;
    EXPECT_THAT(Validate(header),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("protocol version")));
  }
}

TEST(RequestHeader, WithATokenOverItsBoundIsRefused) {
  RequestHeader header = ValidHeader();
  header.token = std::string(kMaxTokenBytes + 1, 't');

  EXPECT_THAT(Validate(header),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token")));
}

Handshake Speaks(std::uint32_t oldest, std::uint32_t newest) {
  return Handshake{.oldest_protocol = oldest,
                   .newest_protocol = newest,
                   .cluster = CountingId<ClusterId>(1),
                   .test_vector = HandshakeTestVector()};
}

TEST(Agree, TakesTheHighestCommonVersion) {
  EXPECT_THAT(Agree(Speaks(1, 3), Speaks(2, 5)), IsOkAndHolds(3u));
  EXPECT_THAT(Agree(Speaks(2, 5), Speaks(1, 3)), IsOkAndHolds(3u));
  EXPECT_THAT(Agree(Speaks(3, 3), Speaks(1, 9)), IsOkAndHolds(3u));
}

TEST(Agree, WithoutACommonVersionSaysBothRanges) {
  for (const auto& [oldest, newest] : {std::pair(5u, 6u), std::pair(1u, 1u)}) {
    EXPECT_THAT(Agree(Speaks(2, 4), Speaks(oldest, newest)),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("no common protocol version"),
                               HasSubstr("2 to 4"))));
  }
}

TEST(Agree, RefusesARangeThatIsNone) {
  EXPECT_THAT(Agree(Speaks(1, 9), Speaks(5, 3)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(Agree, RefusesAnotherCluster) {
  Handshake theirs = Speaks(1, 1);
  theirs.cluster = CountingId<ClusterId>(2);

  EXPECT_THAT(
      Agree(Speaks(1, 1), theirs),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(ToHex(theirs.cluster)), HasSubstr("cluster"))));
}

TEST(Agree, AClientThatHasMetNoClusterIsWelcome) {
  Handshake theirs = Speaks(1, 1);
  theirs.cluster = ClusterId{};

  EXPECT_THAT(Agree(Speaks(1, 1), theirs), IsOkAndHolds(1u));
  EXPECT_THAT(Agree(theirs, Speaks(1, 1)), IsOkAndHolds(1u));
}

TEST(Agree, RefusesABuildWithAnotherKeyRecipe) {
  Handshake theirs = Speaks(1, 1);
  theirs.test_vector.bytes[31] ^= 1;

  EXPECT_THAT(
      Agree(Speaks(1, 1), theirs),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("recipe")));
}

TEST(Agree, RefusesAPeerThatSentNoTestVector) {
  Handshake theirs = Speaks(1, 1);
  theirs.test_vector = BlockKey{};

  EXPECT_THAT(Agree(Speaks(1, 1), theirs),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace firnkv
