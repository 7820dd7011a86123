// Accepts local sessions, keeps them, and bounds how many there are: in all and
// by uid (rule S4). One beyond a cap is told so and closed. One that has ended
// counts for as long as its peer keeps it and has not received all that was
// sent: the node's memory is in it.
//
// Silent peers: a connection that says no hello is closed after
// SessionSocket::Options::hello_timeout, so the caps bound those too: 4,096
// connections of under 1 KiB each.
//
// Does not know: who may be which tenant, messages (session_socket.h).
//
// Threading. Thread-safe. One mutex, never held over a session's methods.
//
// Ownership. Owned by Node. Owns the sessions' sockets; one that has ended is
// destroyed by a task.

#ifndef FIRNKV_SERVER_NODE_SESSION_LISTENER_H_
#define FIRNKV_SERVER_NODE_SESSION_LISTENER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "client/transport/local_socket.h"
#include "proto/base/counter.h"
#include "proto/base/executor.h"
#include "proto/base/mutex.h"
#include "server/node/session_socket.h"

namespace firnkv {

class SessionListener {
 public:
  struct Options {
    std::size_t max_sessions = 4096;
    std::size_t max_sessions_a_uid = 1024;
    SessionSocket::Options session;
  };
  struct Counters {
    Counter accepted;
    Counter over_caps;
  };

  SessionListener(const Options& options, const SessionSocket::Parts& parts);
  // Close().
  ~SessionListener();

  // Sessions may come from now on.
  absl::Status Listen(LocalSockets* sockets, std::string_view path)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // No more of them, and those that there are end. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // As Close, but the sessions that there are go on.
  void StopAccepting() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends one session; unknown ones are ignored.
  void EndSession(SessionId id, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void EndAll(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells every session that maps it.
  void OnRegionRetiring(std::uint64_t region) ABSL_LOCKS_EXCLUDED(mutex_);

  // That count by the caps.
  std::size_t connections() const { return places_.size(); }
  std::size_t descriptors_in_flight() const {
    return parts_.descriptors->size();
  }
  const Counters& counters() const { return counters_; }

 private:
  // Shared: the table, and whoever calls a session's method just now.
  using SocketPtr = std::shared_ptr<SessionSocket>;

  void OnAccept(std::unique_ptr<LocalSocket> socket)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Why there is no place for it.
  absl::Status Full(std::uint32_t uid) const;
  void OnEnded(std::uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  void DropEnded() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<SocketPtr> All() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const SessionSocket::Parts parts_;
  Counters counters_;
  ConnectionCounts places_;

  mutable Mutex mutex_;
  std::unique_ptr<LocalListener> listener_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
  // In the order in which they came, so that what befalls all of them befalls
  // them in an order that a simulation repeats.
  absl::btree_map<std::uint64_t, SocketPtr> sockets_ ABSL_GUARDED_BY(mutex_);
  std::vector<SocketPtr> ended_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_SESSION_LISTENER_H_
