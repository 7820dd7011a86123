// Tokens (proto/base/token.h): as they come, and with a right MAC over whatever
// claims, as somebody with the secret could make them.

#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/sha256.h"
#include "proto/base/text.h"
#include "proto/base/token.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t { kAsIs, kSigned, kParts };

const ClusterSecret kSecret = CountingId<ClusterSecret>(0x70);
const ClusterId kCluster = CountingId<ClusterId>(1);
const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);
constexpr std::uint64_t kCredentials = 4;
constexpr std::size_t kMacBytes = 32;

std::string WithMac(std::string_view claims) {
  const Sha256Bytes mac = HmacSha256(
      kSecret.view(), StrCat(std::string_view("FirnKV token v2", 16), claims));
  std::string token(claims);
  token.append(mac.begin(), mac.end());
  return token;
}

std::string SampleToken() {
  return MintToken({.cluster = kCluster,
                    .tenant = CountingId<TenantId>(2),
                    .role = Role::kTenant,
                    .session = CountingId<SessionId>(3),
                    .expires = kNow + absl::Minutes(10),
                    .credentials = kCredentials},
                   kSecret);
}

void Try(const std::string& token) {
  const auto claims = CheckToken(token, kCluster, kSecret, kCredentials, kNow);
  if (!claims.ok()) {
    CHECK(absl::IsUnauthenticated(claims.status()));
    return;
  }
  CHECK(token.size() <= kMaxTokenBytes);
  CHECK(claims->cluster == kCluster);
  CHECK(claims->role >= Role::kTenant && claims->role <= Role::kAdmin);
  CHECK(claims->role != Role::kTenant ||
        (!claims->tenant.IsZero() && claims->credentials >= kCredentials));
  CHECK(claims->expires + kTokenSkew >= kNow);
  CHECK(MintToken(*claims, kSecret) == token);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string token = SampleToken();
  const std::string claims = token.substr(0, token.size() - kMacBytes);
  // Else nothing but the MAC would be fuzzed.
  CHECK(WithMac(claims) == token);
  return {Seed(kAsIs, token), Seed(kSigned, claims)};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  using namespace firnkv;  // NOLINT(google-build-using-namespace)
  FuzzInput input(bytes, size);
  const std::uint8_t part = input.U8() % kParts;
  const std::string_view rest = input.Rest();
  Try(part == kSigned ? WithMac(rest) : std::string(rest));
  return 0;
}
