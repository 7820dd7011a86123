#include "proto/base/token.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/limits.h"
#include "proto/base/sha256.h"
#include "tests/proto/broken_bytes.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

const ClusterSecret kSecret = CountingId<ClusterSecret>(0xa0);
const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

TokenClaims Claims() {
  return TokenClaims{.cluster = CountingId<ClusterId>(1),
                     .tenant = CountingId<TenantId>(2),
                     .role = Role::kTenant,
                     .session = CountingId<SessionId>(3),
                     .expires = kNow + kTokenLife,
                     .credentials = 5};
}

absl::StatusOr<TokenClaims> Check(std::string_view token, absl::Time now = kNow,
                                  std::uint64_t credentials = 0) {
  return CheckToken(token, CountingId<ClusterId>(1), kSecret, credentials, now);
}

TEST(Token, SaysWhatWasMinted) {
  const std::string token = MintToken(Claims(), kSecret);

  ASSERT_OK_AND_ASSIGN(const TokenClaims claims, Check(token));

  EXPECT_LE(token.size(), kMaxTokenBytes);
  EXPECT_EQ(claims.cluster, Claims().cluster);
  EXPECT_EQ(claims.tenant, Claims().tenant);
  EXPECT_EQ(claims.role, Role::kTenant);
  EXPECT_EQ(claims.session, Claims().session);
  EXPECT_EQ(claims.expires, Claims().expires);
  EXPECT_EQ(claims.credentials, Claims().credentials);
}

TEST(Token, NodesAndAdministratorsHaveNoTenant) {
  for (const Role role : {Role::kNode, Role::kAdmin}) {
    TokenClaims claims = Claims();
    claims.role = role;
    claims.tenant = TenantId{};

    ASSERT_OK_AND_ASSIGN(const TokenClaims got,
                         Check(MintToken(claims, kSecret)));
    EXPECT_EQ(got.role, role);
  }
}

TEST(Token, OfATenantWithoutItsNameIsRefused) {
  TokenClaims claims = Claims();
  claims.tenant = TenantId{};

  EXPECT_THAT(
      Check(MintToken(claims, kSecret)),
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("tenant")));
}

TEST(Token, WithoutTheSecretNothingIsMinted) {
  ClusterSecret guessed = kSecret;
  guessed.bytes[0] ^= 1;

  EXPECT_THAT(
      Check(MintToken(Claims(), guessed)),
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("secret")));
}

TEST(Token, OfAnotherClusterWithTheSameSecretIsRefused) {
  TokenClaims claims = Claims();
  claims.cluster = CountingId<ClusterId>(9);

  EXPECT_THAT(Check(MintToken(claims, kSecret)),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       HasSubstr("another cluster")));
}

TEST(Token, EndsAMinuteAfterItsExpiryAndNotBefore) {
  const std::string token = MintToken(Claims(), kSecret);
  const absl::Time end = Claims().expires + kTokenSkew;

  EXPECT_THAT(Check(token, end), IsOk());
  EXPECT_THAT(
      Check(token, end + absl::Microseconds(1)),
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("expired")));
}

// Rule A9.
TEST(Token, OfATenantFromBeforeAnAcceptedRestoreIsRefused) {
  const std::string token = MintToken(Claims(), kSecret);

  EXPECT_THAT(Check(token, kNow, 5), IsOk());
  EXPECT_THAT(
      Check(token, kNow, 6),
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("restore")));
}

TEST(Token, OfANodeHoldsBeyondAnAcceptedRestoreAndNotBeyondItsLife) {
  TokenClaims claims = Claims();
  claims.role = Role::kNode;
  const std::string token = MintToken(claims, kSecret);

  EXPECT_THAT(Check(token, kNow, 6), IsOk());
  EXPECT_THAT(Check(token, claims.expires + 2 * kTokenSkew, 6),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST(Token, OfAnUnknownRoleIsRefusedAlsoWithARightMac) {
  for (const int role : {0, 4, 255}) {
    TokenClaims claims = Claims();
    claims.role = static_cast<Role>(role);

    EXPECT_THAT(
        Check(MintToken(claims, kSecret)),
        StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("role")));
  }
}

TEST(Token, NoBrokenOneIsAccepted) {
  ExpectNothingBrokenAccepted(
      MintToken(Claims(), kSecret),
      [](std::string_view bytes) { return Check(bytes).ok(); });
}

TEST(Token, AnExpiryAtTheEndsOfTimeIsNoOverflow) {
  TokenClaims claims = Claims();

  claims.expires = absl::InfiniteFuture();
  EXPECT_THAT(Check(MintToken(claims, kSecret)), IsOk());
  claims.expires = absl::InfinitePast();
  EXPECT_THAT(Check(MintToken(claims, kSecret)),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

// RFC 4231, test cases 1, 2 and 6: the key of the last is longer than a block.
TEST(HmacSha256, HasTheValuesOfItsStandard) {
  const auto hex = [](const Sha256Bytes& bytes) {
    return ToHex(
        std::string_view(reinterpret_cast<const char*>(bytes.data()), 32));
  };

  EXPECT_EQ(hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hex(HmacSha256(std::string(131, '\xaa'),
                     "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace
}  // namespace firnkv
