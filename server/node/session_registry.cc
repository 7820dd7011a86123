#include "server/node/session_registry.h"

#include "proto/base/check.h"

namespace firnkv {

void SessionRegistry::Add(const LiveSession& session) {
  CHECK(!session.id.IsZero());
  MutexLock lock(&mutex_);
  CHECK(sessions_.emplace(session.id, session).second);
}

void SessionRegistry::Remove(SessionId id) {
  MutexLock lock(&mutex_);
  sessions_.erase(id);
}

std::optional<LiveSession> SessionRegistry::Find(SessionId id) const {
  MutexLock lock(&mutex_);
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return std::nullopt;
  return it->second;
}

bool SessionRegistry::IsLive(SessionId id) const {
  MutexLock lock(&mutex_);
  return sessions_.contains(id);
}

std::size_t SessionRegistry::size() const {
  MutexLock lock(&mutex_);
  return sessions_.size();
}

}  // namespace firnkv
