#include "server/node/session_listener.h"

#include <string>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

SessionListener::SessionListener(const Options& options,
                                 const SessionSocket::Parts& parts)
    : options_(options),
      parts_(parts),
      places_({.in_all = options.max_sessions,
               .a_key = options.max_sessions_a_uid}) {}

SessionListener::~SessionListener() { Close(); }

absl::Status SessionListener::Listen(LocalSockets* sockets,
                                     std::string_view path) {
  absl::StatusOr<std::unique_ptr<LocalListener>> listener =
      sockets->Listen(path, [this](std::unique_ptr<LocalSocket> socket) {
        OnAccept(std::move(socket));
      });
  if (!listener.ok()) {
    return Annotate(listener.status(), StrCat("listen on ", path));
  }
  MutexLock lock(&mutex_);
  listener_ = *std::move(listener);
  return absl::OkStatus();
}

absl::Status SessionListener::Full(std::uint32_t uid) const {
  const std::size_t of_uid = places_.Of(uid);
  if (of_uid >= options_.max_sessions_a_uid) {
    return absl::ResourceExhaustedError(
        StrCat("uid ", uid, " has ", of_uid, " sessions already"));
  }
  return absl::ResourceExhaustedError(
      StrCat("this node serves at most ", options_.max_sessions, " sessions"));
}

void SessionListener::OnAccept(std::unique_ptr<LocalSocket> socket) {
  counters_.accepted.Add();
  const std::uint32_t uid = socket->credentials().uid;
  std::uint64_t number = 0;
  ConnectionCounts::Receipt place = places_.Take(uid);
  absl::Status status;
  if (!place) {
    counters_.over_caps.Add();
    status = Full(uid);
  }
  {
    MutexLock lock(&mutex_);
    if (closed_) status = absl::UnavailableError("the node is closing");
    if (status.ok()) {
      number = next_number_++;
      sockets_[number] = nullptr;
    }
  }
  // Shared: see SocketPtr.
  const auto session = std::make_shared<SessionSocket>(
      options_.session, parts_, std::move(socket), std::move(place),
      [this, number] { OnEnded(number); });
  if (!status.ok()) return session->End(status);
  {
    MutexLock lock(&mutex_);
    const auto it = sockets_.find(number);
    // Closed meanwhile: the session ends with this scope.
    if (it == sockets_.end()) return;
    it->second = session;
  }
  session->Start();
}

void SessionListener::OnEnded(std::uint64_t number) {
  MutexLock lock(&mutex_);
  const auto it = sockets_.find(number);
  if (it == sockets_.end()) return;
  // Destroyed by a task: this may be a callback of the socket.
  ended_.push_back(std::move(it->second));
  sockets_.erase(it);
  parts_.executor->Post(scope_.Wrap([this] { DropEnded(); }));
}

void SessionListener::DropEnded() {
  std::vector<SocketPtr> ended;
  MutexLock lock(&mutex_);
  ended.swap(ended_);
}

std::vector<SessionListener::SocketPtr> SessionListener::All() const {
  std::vector<SocketPtr> all;
  MutexLock lock(&mutex_);
  all.reserve(sockets_.size());
  for (const auto& one : sockets_) {
    if (one.second != nullptr) all.push_back(one.second);
  }
  return all;
}

void SessionListener::EndAll(const absl::Status& why) {
  for (const SocketPtr& socket : All()) socket->End(why);
}

void SessionListener::EndSession(SessionId id, const absl::Status& why) {
  for (const SocketPtr& socket : All()) {
    if (socket->id() == id) return socket->End(why);
  }
}

void SessionListener::OnRegionRetiring(std::uint64_t region) {
  for (const SocketPtr& socket : All()) socket->OnRegionRetiring(region);
}

void SessionListener::StopAccepting() {
  std::unique_ptr<LocalListener> listener;
  MutexLock lock(&mutex_);
  listener = std::move(listener_);
}

void SessionListener::Close() {
  std::unique_ptr<LocalListener> listener;
  absl::btree_map<std::uint64_t, SocketPtr> sockets;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    listener = std::move(listener_);
    sockets.swap(sockets_);
  }
  listener.reset();
  const absl::Status why = absl::UnavailableError("the node is closing");
  for (const auto& one : sockets) {
    if (one.second != nullptr) one.second->End(why);
  }
  sockets.clear();
  scope_.Close();
  DropEnded();
}

}  // namespace firnkv
