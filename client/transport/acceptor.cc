#include "client/transport/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <utility>

#include "proto/base/status.h"

namespace firnkv {
namespace {

// Level-triggered, so what one turn leaves is there for the next.
constexpr int kAcceptsATurn = 32;

// How long a socket that cannot be accepted from is left alone.
constexpr absl::Duration kPause = absl::Milliseconds(100);

Descriptor OpenSpare() {
  return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

Acceptor::Acceptor(EventLoop* loop, Descriptor listening, OnSocket on_socket)
    : loop_(loop),
      on_socket_(std::move(on_socket)),
      spare_(OpenSpare()),
      listening_(std::move(listening)) {}

absl::StatusOr<std::shared_ptr<Acceptor>> Acceptor::Start(EventLoop* loop,
                                                          Descriptor listening,
                                                          OnSocket on_socket) {
  const int fd = listening.get();
  // The constructor is private. NOLINTNEXTLINE
  std::shared_ptr<Acceptor> acceptor(
      new Acceptor(loop, std::move(listening), std::move(on_socket)));
  // Under the lock, so that the first event finds the watch's name.
  MutexLock lock(&acceptor->mutex_);
  ASSIGN_OR_RETURN(acceptor->watch_, loop->Watch(fd, EPOLLIN, acceptor));
  return acceptor;
}

void Acceptor::OnEvents(std::uint32_t) {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    int fd = -1;
    int error = 0;
    bool out_of_descriptors = false;
    {
      // Under the lock although they are system calls: neither blocks, and
      // Stop must not close the socket between.
      MutexLock lock(&mutex_);
      if (stopped_) return;
      fd = accept4(listening_.get(), nullptr, nullptr,
                   SOCK_NONBLOCK | SOCK_CLOEXEC);
      error = errno;
      out_of_descriptors = fd < 0 && (error == EMFILE || error == ENFILE);
      if (out_of_descriptors && spare_.valid()) {
        TurnOneAway(listening_.get());
        continue;
      }
    }
    if (fd >= 0) {
      if (!Deliver(Descriptor(fd))) return;
      continue;
    }
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    // The connection is gone again, or accept(2) reports an error of its.
    if (!out_of_descriptors && error != ENOBUFS && error != ENOMEM) continue;
    PauseAWhile();
    return;
  }
}

void Acceptor::TurnOneAway(int listening) {
  spare_.Reset();
  Descriptor turned_away(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
  if (turned_away.valid()) turned_away_.Add();
  turned_away.Reset();
  spare_ = OpenSpare();
}

bool Acceptor::Deliver(Descriptor socket) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) return false;
    gate_.Enter();
  }
  on_socket_(std::move(socket));
  MutexLock lock(&mutex_);
  gate_.Leave();
  return !stopped_;
}

void Acceptor::PauseAWhile() {
  MutexLock lock(&mutex_);
  if (stopped_) return;
  loop_->Change(watch_, listening_.get(), 0);
  loop_->PostAt(loop_->clock()->Now() + kPause,
                [self = shared_from_this()] { self->Resume(); });
}

void Acceptor::Resume() {
  if (!spare_.valid()) spare_ = OpenSpare();
  MutexLock lock(&mutex_);
  if (!stopped_) loop_->Change(watch_, listening_.get(), EPOLLIN);
}

void Acceptor::Stop() {
  Descriptor listening;
  WatchId watch = WatchId::kNone;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    listening = std::move(listening_);
    watch = watch_;
    while (gate_.OthersRun()) gate_.Wait(&mutex_);
  }
  if (listening.valid()) loop_->Unwatch(watch, listening.get());
}

}  // namespace firnkv
