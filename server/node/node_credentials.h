// Which cluster this node belongs to, and the tokens that it mints and checks
// by the cluster's secret (proto/base/token.h).
//
// The cluster is known from the start where the node has met one before
// (node_state.h) or embeds its catalog; else from its first registration.
// Until then nothing is minted and every token is refused.
//
// Threading. Thread-safe.
//
// Owned by Node.

#ifndef FIRNKV_SERVER_NODE_NODE_CREDENTIALS_H_
#define FIRNKV_SERVER_NODE_NODE_CREDENTIALS_H_

#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/request.h"
#include "proto/base/token.h"

namespace firnkv {

class NodeCredentials {
 public:
  // `cluster` may be zero. `clock` must outlive this.
  NodeCredentials(const ClusterSecret& secret, ClusterId cluster,
                  const Clock* clock)
      : secret_(secret), clock_(clock), cluster_(cluster) {}

  // Zero: not yet known.
  ClusterId cluster() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return cluster_;
  }
  void SetCluster(ClusterId cluster) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    cluster_ = cluster;
  }

  // What this node says first on every connection.
  Handshake handshake() const {
    return Handshake{.cluster = cluster(),
                     .test_vector = HandshakeTestVector()};
  }

  // For this node's own calls to the catalog; empty without a cluster.
  std::string NodeToken() const {
    const ClusterId known = cluster();
    if (known.IsZero()) return {};
    return MintToken({.cluster = known,
                      .tenant = {},
                      .role = Role::kNode,
                      .session = {},
                      .expires = clock_->WallNow() + kTokenLife},
                     secret_);
  }

  // For a session of ours to show elsewhere.
  std::string SessionToken(TenantId tenant, SessionId session) const {
    return MintToken({.cluster = cluster(),
                      .tenant = tenant,
                      .role = Role::kTenant,
                      .session = session,
                      .expires = clock_->WallNow() + kTokenLife},
                     secret_);
  }

  absl::StatusOr<TokenClaims> Check(std::string_view token) const {
    const ClusterId known = cluster();
    if (known.IsZero()) {
      return absl::UnavailableError("this node has not met its catalog yet");
    }
    return CheckToken(token, known, secret_, clock_->WallNow());
  }

  // Whether claims that were checked at the start of a connection still hold.
  bool StillValid(const TokenClaims& claims) const {
    return clock_->WallNow() <= claims.expires + kTokenSkew;
  }

 private:
  const ClusterSecret secret_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  ClusterId cluster_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_CREDENTIALS_H_
