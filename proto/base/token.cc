#include "proto/base/token.h"

#include "proto/base/limits.h"
#include "proto/base/sha256.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

// What the MAC is over begins with it, terminating zero included, so that no
// MAC made for another purpose by the same secret is a token.
constexpr std::string_view kDomainTag("FirnKV token v2", 16);
constexpr std::uint8_t kTokenVersion = 2;

// version, role, 2 zeros, cluster, tenant, session, expiry, credentials; then
// the MAC.
constexpr std::size_t kClaimsBytes = 4 + 3 * 16 + 2 * 8;
constexpr std::size_t kMacBytes = 32;
static_assert(kClaimsBytes + kMacBytes <= kMaxTokenBytes);

Sha256Bytes Mac(std::string_view claims, const ClusterSecret& secret) {
  return HmacSha256(secret.view(), StrCat(kDomainTag, claims));
}

absl::Status Refused(std::string_view why) {
  return absl::UnauthenticatedError(StrCat("token: ", why));
}

bool IsRole(std::uint8_t number) {
  return number >= static_cast<std::uint8_t>(Role::kTenant) &&
         number <= static_cast<std::uint8_t>(Role::kAdmin);
}

}  // namespace

std::string MintToken(const TokenClaims& claims, const ClusterSecret& secret) {
  std::string token;
  WireWriter writer(&token);
  writer.U8(kTokenVersion);
  writer.U8(static_cast<std::uint8_t>(claims.role));
  writer.U16(0);
  writer.Id(claims.cluster);
  writer.Id(claims.tenant);
  writer.Id(claims.session);
  writer.U64(static_cast<std::uint64_t>(absl::ToUnixMicros(claims.expires)));
  writer.U64(claims.credentials);
  const Sha256Bytes mac = Mac(token, secret);
  token.append(mac.begin(), mac.end());
  return token;
}

absl::StatusOr<TokenClaims> CheckToken(std::string_view token,
                                       ClusterId cluster,
                                       const ClusterSecret& secret,
                                       std::uint64_t credentials,
                                       absl::Time now) {
  if (token.size() != kClaimsBytes + kMacBytes) {
    return Refused(StrCat("has ", token.size(), " bytes instead of ",
                          kClaimsBytes + kMacBytes));
  }
  const std::string_view signed_bytes = token.substr(0, kClaimsBytes);
  WireReader reader(signed_bytes);
  // The version says how to check, so it alone is looked at before the MAC.
  if (reader.U8() != kTokenVersion) return Refused("is of an unknown version");
  const Sha256Bytes mac = Mac(signed_bytes, secret);
  if (!EqualInConstantTime(
          {reinterpret_cast<const char*>(mac.data()), mac.size()},
          token.substr(kClaimsBytes))) {
    return Refused("was not made with this cluster's secret");
  }
  const std::uint8_t role = reader.U8();
  const std::uint16_t zeros = reader.U16();
  if (!IsRole(role) || zeros != 0) return Refused("has an unknown role");
  TokenClaims claims;
  claims.role = static_cast<Role>(role);
  claims.cluster = reader.TakeId<ClusterId>();
  claims.tenant = reader.TakeId<TenantId>();
  claims.session = reader.TakeId<SessionId>();
  claims.expires =
      absl::FromUnixMicros(static_cast<std::int64_t>(reader.U64()));
  claims.credentials = reader.U64();
  if (claims.cluster != cluster) return Refused("is of another cluster");
  if (claims.role == Role::kTenant && claims.tenant.IsZero()) {
    return Refused("names no tenant");
  }
  if (claims.role == Role::kTenant && claims.credentials < credentials) {
    return Refused(
        "is from before the catalog's restore was accepted: connect again");
  }
  if (now > claims.expires + kTokenSkew) {
    return Refused(StrCat("has expired ",
                          absl::FormatDuration(now - claims.expires), " ago"));
  }
  return claims;
}

}  // namespace firnkv
