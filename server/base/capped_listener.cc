#include "server/base/capped_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "client/transport/foreign_descriptor.h"
#include "client/transport/unix_socket.h"
#include "proto/base/status.h"

namespace firnkv {

CappedListener::CappedListener(const Options& options,
                               absl::AnyInvocable<void(Descriptor)> on_socket)
    : on_socket_(std::move(on_socket)),
      turned_away_(options.turned_away),
      places_({.in_all = options.most, .a_key = options.most_a_uid}) {}

CappedListener::~CappedListener() {
  listener_.reset();
  loop_.reset();
}

absl::StatusOr<std::unique_ptr<CappedListener>> CappedListener::Start(
    std::string_view path, const Options& options,
    absl::AnyInvocable<void(Descriptor)> on_socket) {
  // The constructor is private. NOLINTNEXTLINE
  std::unique_ptr<CappedListener> started(
      new CappedListener(options, std::move(on_socket)));
  CappedListener* const listener = started.get();
  ASSIGN_OR_RETURN(started->loop_,
                   EventLoop::Start("firnkv-accept", &started->clock_));
  ASSIGN_OR_RETURN(started->listener_,
                   ListenForStreams(started->loop_.get(), path,
                                    [listener](Descriptor socket) {
                                      listener->OnSocket(std::move(socket));
                                    }));
  return started;
}

CappedListener::File CappedListener::FileOf(int fd) {
  struct stat stat = {};
  if (fstat(fd, &stat) != 0) return {};
  return {.device = stat.st_dev, .inode = stat.st_ino};
}

void CappedListener::OnSocket(Descriptor socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return;
  }
  CappedCounts<std::uint32_t>::Receipt place = places_.Take(peer.uid);
  if (!place) {
    ForgetClosed();
    place = places_.Take(peer.uid);
  }
  if (!place) {
    if (turned_away_ != nullptr) turned_away_->Add();
    return CloseForeign(std::move(socket));
  }
  Connection connection;
  connection.fd = socket.get();
  connection.file = FileOf(socket.get());
  connection.place = std::move(place);
  connections_.push_back(std::move(connection));
  on_socket_(std::move(socket));
}

void CappedListener::ForgetClosed() {
  connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                    [](const Connection& connection) {
                                      return FileOf(connection.fd) !=
                                             connection.file;
                                    }),
                     connections_.end());
}

}  // namespace firnkv
