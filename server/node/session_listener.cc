#include "server/node/session_listener.h"

#include <string>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

SessionListener::SessionListener(const Options& options,
                                 const SessionSocket::Parts& parts)
    : options_(options), parts_(parts) {}

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

absl::Status SessionListener::CheckCaps(std::uint32_t uid) const {
  if (sockets_.size() >= options_.max_sessions) {
    return absl::ResourceExhaustedError(StrCat(
        "this node serves at most ", options_.max_sessions, " sessions"));
  }
  const auto it = by_uid_.find(uid);
  if (it != by_uid_.end() && it->second >= options_.max_sessions_a_uid) {
    return absl::ResourceExhaustedError(
        StrCat("uid ", uid, " has ", it->second, " sessions already"));
  }
  return absl::OkStatus();
}

void SessionListener::OnAccept(std::unique_ptr<LocalSocket> socket) {
  counters_.accepted.Add();
  const std::uint32_t uid = socket->credentials().uid;
  std::uint64_t number = 0;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = closed_ ? absl::UnavailableError("the node is closing")
                     : CheckCaps(uid);
    if (status.ok()) {
      number = next_number_++;
      ++by_uid_[uid];
      sockets_[number] = nullptr;  // Counted from here on.
    }
  }
  // Shared: see SocketPtr.
  const auto session = std::make_shared<SessionSocket>(
      options_.session, parts_, std::move(socket),
      [this, number, uid] { OnEnded(number, uid); });
  if (!status.ok()) {
    counters_.over_caps.Add();
    return session->End(status);
  }
  {
    MutexLock lock(&mutex_);
    const auto it = sockets_.find(number);
    // Closed meanwhile: the session ends with this scope.
    if (it == sockets_.end()) return;
    it->second = session;
  }
  session->Start();
}

void SessionListener::OnEnded(std::uint64_t number, std::uint32_t uid) {
  MutexLock lock(&mutex_);
  const auto it = sockets_.find(number);
  if (it == sockets_.end()) return;
  // Destroyed by a task: this may be a callback of the socket.
  ended_.push_back(std::move(it->second));
  sockets_.erase(it);
  const auto count = by_uid_.find(uid);
  if (--count->second == 0) by_uid_.erase(count);
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

std::size_t SessionListener::connections() const {
  MutexLock lock(&mutex_);
  return sockets_.size();
}

void SessionListener::StopAccepting() {
  std::unique_ptr<LocalListener> listener;
  MutexLock lock(&mutex_);
  listener = std::move(listener_);
}

void SessionListener::Close() {
  std::unique_ptr<LocalListener> listener;
  absl::flat_hash_map<std::uint64_t, SocketPtr> sockets;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    listener = std::move(listener_);
    sockets.swap(sockets_);
    by_uid_.clear();
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
