#include "client/transport/unix_connection.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "client/transport/memfd.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Messages received before others have their turn.
constexpr int kMessagesATurn = 16;

// What the loop is woken for: always an end of the peer, as an edge.
constexpr std::uint32_t kEdge = EPOLLET;
constexpr std::uint32_t kReceiveEvents = EPOLLIN | EPOLLRDHUP | kEdge;
constexpr std::uint32_t kSendEvents = EPOLLOUT;

}  // namespace

UnixConnection::UnixConnection(EventLoop* loop, Descriptor socket,
                               const PeerCredentials& credentials)
    : loop_(loop), credentials_(credentials), socket_(std::move(socket)) {}

absl::StatusOr<std::shared_ptr<UnixConnection>> UnixConnection::Make(
    EventLoop* loop, Descriptor socket, const PeerCredentials& credentials) {
  const int fd = socket.get();
  // The constructor is private. NOLINTNEXTLINE
  std::shared_ptr<UnixConnection> connection(
      new UnixConnection(loop, std::move(socket), credentials));
  MutexLock lock(&connection->mutex_);
  ASSIGN_OR_RETURN(connection->watch_,
                   loop->Watch(fd, kReceiveEvents, connection));
  return connection;
}

// Under the lock, since two changes in the wrong order would lose the later
// one's events; it does not block. A change also asks anew: what is there
// already is an event. Room to send is watched for only while it is wanted: the
// kernel says it with every message that the peer takes.
void UnixConnection::Watch() {
  const bool sending = (blocked_ && !closed_) || IsWatching();
  if (!socket_.valid() || (closed_ && !sending)) return;
  loop_->Change(watch_, socket_.get(),
                (lent_ || closed_ ? kEdge : kReceiveEvents) |
                    (sending ? kSendEvents : 0));
}

void UnixConnection::Start(LocalSocket::Callbacks callbacks) {
  {
    MutexLock lock(&mutex_);
    if (started_ || abandoned_) return;
    started_ = true;
    callbacks_ = std::move(callbacks);
    // Of one that has ended already nothing was ever sent.
    if (!closed_) on_gone_ = std::exchange(callbacks_.on_gone, nullptr);
  }
  // What came before is there already, and its edge is over.
  loop_->Post([self = shared_from_this()] {
    self->Receive();
    self->TellClosed();
  });
}

void UnixConnection::OnEvents(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    SendQueued();
    TellTaken();
  }
  Receive();
}

bool UnixConnection::BeginReceiving(int* fd) {
  if (!started_ || receiving_ || !BeginUse(fd)) return false;
  receiving_ = true;
  return true;
}

void UnixConnection::EndReceiving() {
  {
    MutexLock lock(&mutex_);
    receiving_ = false;
    // An edge that came meanwhile found a thread that received.
    if (std::exchange(lent_, false)) Watch();
  }
  EndUse();
}

void UnixConnection::Receive() {
  int fd = -1;
  {
    MutexLock lock(&mutex_);
    if (!BeginReceiving(&fd)) return;
  }
  const auto take = [](std::string_view) {
    return LocalSocket::Taken::kNotMine;
  };
  bool more = DeliverHandedBack();
  bool last = false;
  for (int i = 0; more; ++i) {
    if (i == kMessagesATurn) {
      loop_->Post([self = shared_from_this()] { self->Receive(); });
      break;
    }
    Received received = ReceiveOne(fd);
    if (received.kind == Received::Kind::kNothingNow) break;
    more = TakeOne(std::move(received), take, &last);
  }
  EndReceiving();
}

bool UnixConnection::ReceiveHere(
    absl::FunctionRef<LocalSocket::Taken(std::string_view message)> take,
    absl::FunctionRef<bool()> waits) {
  int fd = -1;
  bool has_waker = false;
  {
    MutexLock lock(&mutex_);
    if (loop_->InLoop() || !BeginReceiving(&fd)) return false;
    if (!std::exchange(lent_, true)) Watch();
    has_waker = waker_.valid();
  }
  Descriptor waker;
  if (!has_waker) waker = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  bool more = has_waker || waker.valid();
  if (waker.valid()) {
    MutexLock lock(&mutex_);
    waker_ = std::move(waker);
  }
  const bool receives = more;
  // Waits first: an answer is hardly ever there already.
  for (bool last = false; more && !last;) {
    more = waits() && AwaitMessage(fd);
    if (!more) break;
    Received received = ReceiveOne(fd);
    if (received.kind == Received::Kind::kNothingNow) continue;
    more = TakeOne(std::move(received), take, &last);
  }
  EndReceiving();
  return receives;
}

bool UnixConnection::TakeOne(
    Received received,
    absl::FunctionRef<LocalSocket::Taken(std::string_view message)> take,
    bool* last) {
  if (received.kind == Received::Kind::kEnd) {
    CloseWith(std::move(received.why));
    return false;
  }
  LocalSocket::Taken taken = LocalSocket::Taken::kNotMine;
  if (received.message.memory == nullptr) {
    taken = take(received.message.bytes);
  }
  *last = taken == LocalSocket::Taken::kLast;
  if (taken != LocalSocket::Taken::kNotMine) return true;
  if (loop_->InLoop()) return Deliver(std::move(received.message));
  {
    MutexLock lock(&mutex_);
    handed_back_.push_back(std::move(received.message));
  }
  loop_->Post([self = shared_from_this()] { self->DeliverHandedBack(); });
  return true;
}

bool UnixConnection::DeliverHandedBack() {
  for (;;) {
    Message message;
    {
      MutexLock lock(&mutex_);
      if (handed_back_.empty()) return true;
      message = std::move(handed_back_.front());
      handed_back_.pop_front();
    }
    if (!Deliver(std::move(message))) return false;
  }
}

bool UnixConnection::AwaitMessage(int fd) {
  std::array<pollfd, 2> events = {};
  {
    MutexLock lock(&mutex_);
    if (closed_ || std::exchange(stop_receiving_, false)) return false;
    events = {pollfd{.fd = fd, .events = POLLIN, .revents = 0},
              pollfd{.fd = waker_.get(), .events = POLLIN, .revents = 0}};
  }
  // No deadline: whoever lends itself is told to stop.
  poll(events.data(), events.size(), -1);
  if (events[1].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t size =
        read(events[1].fd, &count, sizeof(count));
  }
  return true;
}

void UnixConnection::LendSoon() {
  MutexLock lock(&mutex_);
  if (!started_ || closed_ || receiving_ || lent_ || loop_->InLoop()) return;
  lent_ = true;
  Watch();
}

void UnixConnection::TakeBack() {
  MutexLock lock(&mutex_);
  // Whoever receives gives it back at its end.
  if (receiving_ || !std::exchange(lent_, false)) return;
  Watch();
}

void UnixConnection::StopReceiving() {
  MutexLock lock(&mutex_);
  stop_receiving_ = true;
  // Under the lock, which also keeps the descriptor; it does not block.
  Wake();
}

void UnixConnection::Wake() {
  if (!waker_.valid()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(waker_.get(), &one, sizeof(one));
}

UnixConnection::Received UnixConnection::ReceiveOne(int fd) {
  const auto end = [](absl::Status why) {
    return Received{Received::Kind::kEnd, {}, std::move(why)};
  };
  buffer_.resize(kMaxSessionMessageBytes);
  iovec piece = {buffer_.data(), buffer_.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)>
      control;
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t size = 0;
  do {
    size = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Received{Received::Kind::kNothingNow, {}, absl::OkStatus()};
    }
    return end(
        absl::UnavailableError(StrCat("local socket: ", std::strerror(errno))));
  }
  // First of all, so that none is leaked whatever else is wrong.
  std::vector<Descriptor> descriptors = TakeDescriptors(&header);
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return end(absl::ResourceExhaustedError(
        "a descriptor came for which this process had no room"));
  }
  // An empty message looks the same; nobody sends one.
  if (size == 0) return end(absl::UnavailableError("the peer is gone"));
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return end(
        absl::InvalidArgumentError(StrCat("the peer's message is longer than ",
                                          kMaxSessionMessageBytes, " bytes")));
  }
  if (descriptors.size() > 1) {
    return end(absl::InvalidArgumentError(
        StrCat("the peer sent ", descriptors.size(), " descriptors at once")));
  }
  Received received = {Received::Kind::kMessage, {}, absl::OkStatus()};
  received.message.bytes.assign(buffer_.data(), static_cast<std::size_t>(size));
  if (descriptors.size() == 1) {
    auto memory = MemfdMemory::Adopt(std::move(descriptors.front()));
    if (!memory.ok()) return end(memory.status());
    received.message.memory = *std::move(memory);
  }
  return received;
}

bool UnixConnection::Deliver(Message message) {
  // What this one says that it has received, it has: told first.
  TellTaken();
  {
    MutexLock lock(&mutex_);
    if (closed_ || abandoned_) return false;
    gate_.Enter();
  }
  callbacks_.on_message(std::move(message.bytes), std::move(message.memory));
  LeaveCallback();
  MutexLock lock(&mutex_);
  return !closed_;
}

void UnixConnection::LeaveCallback() {
  // Ended after the lock.
  LocalSocket::Callbacks abandoned;
  MutexLock lock(&mutex_);
  gate_.Leave();
  if (abandoned_) abandoned = std::exchange(callbacks_, {});
}

void UnixConnection::OnLoopStopped() {
  // Nobody will see any more what the peer receives.
  std::optional<Watched> watched;
  LocalSocket::OnTaken on_gone;
  {
    MutexLock lock(&mutex_);
    watched = std::exchange(watched_, std::nullopt);
    on_gone = std::exchange(on_gone_, nullptr);
  }
  Close();
  Remains remains;
  MutexLock lock(&mutex_);
  remains = TakeRemains();
}

void UnixConnection::Close() {
  CloseWith(absl::CancelledError("the local socket was closed on this side"));
}

void UnixConnection::CloseWith(absl::Status why) {
  Remains remains;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    closed_why_ = std::move(why);
    remains = TakeRemains();
    Wake();
  }
  loop_->Post([self = shared_from_this()] { self->TellClosed(); });
}

void UnixConnection::TellClosed() {
  absl::Status why;
  {
    MutexLock lock(&mutex_);
    if (!closed_ || !started_ || abandoned_ || told_closed_) return;
    told_closed_ = true;
    // Not a share of it: Send still reads the one that stays.
    why = absl::Status(closed_why_.code(), closed_why_.message());
    gate_.Enter();
  }
  callbacks_.on_closed(std::move(why));
  LeaveCallback();
}

void UnixConnection::Abandon() {
  LocalSocket::Callbacks abandoned;
  {
    MutexLock lock(&mutex_);
    abandoned_ = true;
  }
  Close();
  MutexLock lock(&mutex_);
  while (gate_.OthersRun()) gate_.Wait(&mutex_);
  // If one runs still, this is called from inside it, and it takes them.
  if (!gate_.AnyRuns()) abandoned = std::exchange(callbacks_, {});
}

bool UnixConnection::BeginUse(int* fd) {
  if (closed_) return false;
  ++users_;
  *fd = socket_.get();
  return true;
}

void UnixConnection::EndUse() {
  Remains remains;
  MutexLock lock(&mutex_);
  --users_;
  remains = TakeRemains();
}

UnixConnection::Remains UnixConnection::TakeRemains() {
  if (!closed_ || users_ > 0 || !socket_.valid()) return {};
  Remains remains;
  remains.unsent = std::exchange(queue_, {});
  if (watched_ && !watched_->sent) {
    remains.watched = std::exchange(watched_, std::nullopt);
  }
  if (IsWatching()) {
    if (std::exchange(shut_down_, true)) return remains;
    shutdown(socket_.get(), SHUT_RDWR);
    // A change asks anew: what the peer has received by now is an event.
    Watch();
    return remains;
  }
  // Whoever called keeps this connection alive, so the loop's is not the last
  // share.
  loop_->Unwatch(watch_, socket_.get());
  remains.socket = std::move(socket_);
  return remains;
}

}  // namespace firnkv
