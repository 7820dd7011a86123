// Tokens: who the caller is, wherever it is not a local session.
//
// HMAC-SHA256 by the cluster secret over the encoded claims. Minted by a node
// for its sessions, by a node for itself, by the catalog, and by the CLI of
// whoever can read the secret file. A later issuer may replace the mint, never
// the field.

#ifndef FIRNKV_PROTO_BASE_TOKEN_H_
#define FIRNKV_PROTO_BASE_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/id.h"

namespace firnkv {

// What a caller may do. Numbers are wire format.
enum class Role : std::uint8_t {
  kTenant = 1,  // Blocks and namespaces of its own tenant.
  kNode = 2,    // Registers, announces, reads for its own tenants.
  kAdmin = 3,   // Everything administrative; no blocks.
};

// 32 random bytes shared by all daemons of a cluster; a file, 0600.
using ClusterSecret = ByteId<struct ClusterSecretTag, 32>;

struct TokenClaims {
  ClusterId cluster;
  TenantId tenant;  // Zero for nodes and admins.
  Role role = Role::kTenant;
  SessionId session;  // Zero where it speaks for no session.
  // Wall clock: tokens cross hosts. Checked with kTokenSkew of leniency.
  absl::Time expires;
  // Incarnation::credentials when it was minted (rule A9).
  std::uint64_t credentials = 0;
};

inline constexpr absl::Duration kTokenLife = absl::Hours(1);
inline constexpr absl::Duration kTokenSkew = absl::Minutes(1);

std::string MintToken(const TokenClaims& claims, const ClusterSecret& secret);

// UNAUTHENTICATED with the reason: malformed, wrong MAC, other cluster,
// expired, or a tenant's that names a lower number than `credentials`: it is
// older than the last accept-restore. Nodes and administrators hold the secret
// and mint for a call at a time, before they can know that number, so their
// short lives bound theirs. Compares in constant time.
absl::StatusOr<TokenClaims> CheckToken(std::string_view token,
                                       ClusterId cluster,
                                       const ClusterSecret& secret,
                                       std::uint64_t credentials,
                                       absl::Time now);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_TOKEN_H_
