// Which cluster this node belongs to, and the tokens that it mints and checks
// by the cluster's secret (proto/base/token.h).
//
// The cluster is known from the start where the node has met one before
// (node_state.h) or embeds its catalog; else from its first registration.
// Until then nothing is minted and every token is refused.
//
// A restored catalog, once accepted, outdates every token of before (rule A9):
// a tenant's older one is refused from then on.
//
// Threading. Thread-safe.
//
// Owned by Node.

#ifndef FIRNKV_SERVER_NODE_NODE_CREDENTIALS_H_
#define FIRNKV_SERVER_NODE_NODE_CREDENTIALS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
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

  // What runs when older tokens are outdated. Set once, before anything else;
  // never runs under the lock.
  void SetOnOutdated(absl::AnyInvocable<void()> on_outdated) {
    on_outdated_ = std::move(on_outdated);
  }
  // Incarnation::credentials of the catalog; a lower one than before changes
  // nothing.
  void Outdate(std::uint64_t credentials) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (credentials <= credentials_) return;
      credentials_ = credentials;
    }
    if (on_outdated_) on_outdated_();
  }

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
                      .expires = clock_->WallNow() + kTokenLife,
                      .credentials = credentials()},
                     secret_);
  }

  absl::StatusOr<TokenClaims> Check(std::string_view token) const {
    const ClusterId known = cluster();
    if (known.IsZero()) {
      return absl::UnavailableError("this node has not met its catalog yet");
    }
    return CheckToken(token, known, secret_, credentials(), clock_->WallNow());
  }

  // Whether claims that were checked at the start of a connection still hold.
  bool StillValid(const TokenClaims& claims) const {
    return clock_->WallNow() <= claims.expires + kTokenSkew &&
           (claims.role != Role::kTenant ||
            claims.credentials >= credentials());
  }

 private:
  std::uint64_t credentials() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return credentials_;
  }

  const ClusterSecret secret_;
  const Clock* const clock_;
  // Set once, before there are calls.
  absl::AnyInvocable<void()> on_outdated_;
  mutable Mutex mutex_;
  ClusterId cluster_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t credentials_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_CREDENTIALS_H_
