#include "client/transport/tcp_connector.h"

#include <errno.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "proto/base/text.h"

namespace firnkv {

TcpConnector::TcpConnector(EventLoop* loop, std::string address, Done done)
    : loop_(loop), address_(std::move(address)), done_(std::move(done)) {}

void TcpConnector::Arm(absl::Duration timeout) {
  timer_ = loop_->PostAt(
      loop_->clock()->Now() + timeout, [self = shared_from_this(), timeout] {
        self->Finish(absl::DeadlineExceededError(
            StrCat("no connection to ", self->address_, " within ",
                   absl::FormatDuration(timeout))));
      });
}

void TcpConnector::Begin(absl::StatusOr<std::vector<SocketAddress>> addresses) {
  if (done_ == nullptr) return;
  if (!addresses.ok()) return Finish(std::move(addresses).status());
  addresses_ = *std::move(addresses);
  last_failure_ =
      absl::UnavailableError(StrCat("'", address_, "' has no address"));
  TryNext();
}

void TcpConnector::TryNext() {
  while (next_ < addresses_.size()) {
    const SocketAddress& address = addresses_[next_++];
    socket_ = Descriptor(socket(address.family(),
                                SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_.valid()) {
      // Another address would fare no better.
      return Finish(absl::ErrnoToStatus(
          errno, StrCat("socket to connect to ", address_)));
    }
    if (connect(socket_.get(), address.get(), address.length) == 0) {
      return Connected();
    }
    if (errno != EINPROGRESS) {
      Failed(errno);
      continue;
    }
    absl::StatusOr<WatchId> watch =
        loop_->Watch(socket_.get(), EPOLLOUT, shared_from_this());
    if (!watch.ok()) return Finish(std::move(watch).status());
    watch_ = *watch;
    return;
  }
  Finish(std::move(last_failure_));
}

void TcpConnector::OnEvents(std::uint32_t) {
  if (done_ == nullptr || !socket_.valid()) return;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return Connected();
  Failed(error);
  TryNext();
}

void TcpConnector::Connected() {
  // To a port of this host that nobody listens on, and that the kernel happened
  // to choose for this end, a socket connects to itself.
  if (SocketAddress::LocalOf(socket_.get()) ==
      SocketAddress::PeerOf(socket_.get())) {
    Failed(ECONNREFUSED);
    return TryNext();
  }
  if (watch_ != WatchId::kNone) {
    loop_->Unwatch(std::exchange(watch_, WatchId::kNone), socket_.get());
  }
  Finish(std::move(socket_));
}

void TcpConnector::Failed(int error) {
  last_failure_ = absl::UnavailableError(
      StrCat("connect to ", address_, ": ", std::strerror(error)));
  DropSocket();
}

void TcpConnector::DropSocket() {
  if (watch_ != WatchId::kNone) {
    loop_->Unwatch(std::exchange(watch_, WatchId::kNone), socket_.get());
  }
  socket_.Reset();
}

void TcpConnector::OnLoopStopped() {
  Finish(absl::CancelledError("the network is closed"));
}

void TcpConnector::Finish(absl::StatusOr<Descriptor> result) {
  if (done_ == nullptr) return;
  DropSocket();
  loop_->Cancel(std::exchange(timer_, TimerId::kNone));
  std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace firnkv
