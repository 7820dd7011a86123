// The sessions that live now, and who each of them is: what node_service.h asks
// before it does anything for a session id.
//
// Rule S3: a session is 128 random bits; an id that is not here is nobody. A
// session's end takes it out of here first, then ends its leases and
// reservations; work that began before asks IsLive once more after it granted
// something, so that nothing is granted to a session that has ended.
//
// Does not know: sockets, leases, reservations.
//
// Threading. Thread-safe. One mutex, a leaf.
//
// Owned by Node; outlives everything that serves sessions.

#ifndef FIRNKV_SERVER_NODE_SESSION_REGISTRY_H_
#define FIRNKV_SERVER_NODE_SESSION_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"

namespace firnkv {

struct LiveSession {
  SessionId id;
  TenantId tenant;
  std::uint32_t uid = 0;
  // It may have pool memory mapped (rule P10).
  bool mapping = false;
};

class SessionRegistry {
 public:
  SessionRegistry() = default;
  SessionRegistry(const SessionRegistry&) = delete;
  SessionRegistry& operator=(const SessionRegistry&) = delete;

  // `session.id` must be new.
  void Add(const LiveSession& session) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(SessionId id) ABSL_LOCKS_EXCLUDED(mutex_);

  // nullopt: nobody.
  std::optional<LiveSession> Find(SessionId id) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsLive(SessionId id) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<SessionId, LiveSession> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_SESSION_REGISTRY_H_
