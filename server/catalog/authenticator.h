// Who calls the catalog: by token and by nothing else, in-process too. What a
// caller may do is decided by the methods, with Require.
//
// Threading. Thread-safe; has no state of its own.

#ifndef FIRNKV_SERVER_CATALOG_AUTHENTICATOR_H_
#define FIRNKV_SERVER_CATALOG_AUTHENTICATOR_H_

#include <algorithm>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/request.h"
#include "proto/base/token.h"
#include "server/catalog/cluster_state.h"

namespace firnkv {

class Authenticator {
 public:
  // `cluster` and `clock` outlive it.
  Authenticator(const ClusterState* cluster, const Clock* clock,
                const ClusterSecret& secret)
      : cluster_(cluster), clock_(clock), secret_(secret) {}

  // UNAUTHENTICATED: no token, or not one of this cluster that is still good.
  absl::StatusOr<TokenClaims> Check(const RequestHeader& header) const {
    if (header.token.empty()) {
      return absl::UnauthenticatedError("the catalog needs a token");
    }
    return CheckToken(header.token, cluster_->cluster(), secret_,
                      cluster_->incarnation().credentials, clock_->WallNow());
  }

  // A token of this cluster that expires after `life`.
  std::string Mint(Role role, TenantId tenant, absl::Duration life) const {
    return MintToken(
        TokenClaims{.cluster = cluster_->cluster(),
                    .tenant = tenant,
                    .role = role,
                    .session = {},
                    .expires = clock_->WallNow() + life,
                    .credentials = cluster_->incarnation().credentials},
        secret_);
  }

 private:
  const ClusterState* const cluster_;
  const Clock* const clock_;
  const ClusterSecret secret_;
};

// PERMISSION_DENIED unless the caller has one of `roles`.
inline absl::Status Require(const TokenClaims& caller,
                            std::initializer_list<Role> roles) {
  if (std::find(roles.begin(), roles.end(), caller.role) != roles.end()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError("the token's role may not make this call");
}

}  // namespace firnkv

#endif  // FIRNKV_SERVER_CATALOG_AUTHENTICATOR_H_
