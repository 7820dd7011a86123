#include "client/transport/unix_connection.h"

#include <errno.h>
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

// The kernel passes at most SCM_MAX_FD descriptors with a message. There is
// room for all of them, so that each can be closed by name.
constexpr std::size_t kMaxDescriptors = 253;

// Takes every descriptor of `header` into possession.
std::vector<Descriptor> TakeDescriptors(msghdr* header) {
  std::vector<Descriptor> taken;
  for (cmsghdr* control = CMSG_FIRSTHDR(header); control != nullptr;
       control = CMSG_NXTHDR(header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(fd));
      taken.push_back(Descriptor(fd));
    }
  }
  return taken;
}

// Sends one whole message; the value is errno, 0 for success.
int SendOne(int fd, const std::string& bytes, int memory_fd) {
  iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (memory_fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &memory_fd, sizeof(memory_fd));
  }
  while (sendmsg(fd, &header, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

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
  ASSIGN_OR_RETURN(
      connection->watch_,
      loop->Watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, connection));
  return connection;
}

void UnixConnection::Start(LocalSocket::Callbacks callbacks) {
  {
    MutexLock lock(&mutex_);
    if (started_ || abandoned_) return;
    started_ = true;
    callbacks_ = std::move(callbacks);
  }
  // What came before is there already, and its edge is over.
  loop_->Post([self = shared_from_this()] {
    self->Receive();
    self->TellClosed();
  });
}

void UnixConnection::OnEvents(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) SendQueued();
  Receive();
}

void UnixConnection::Receive() {
  for (int i = 0;; ++i) {
    int fd = -1;
    {
      MutexLock lock(&mutex_);
      if (!started_ || !BeginUse(&fd)) return;
    }
    if (i == kMessagesATurn) {
      EndUse();
      loop_->Post([self = shared_from_this()] { self->Receive(); });
      return;
    }
    Received received = ReceiveOne(fd);
    EndUse();
    switch (received.kind) {
      case Received::Kind::kNothingNow:
        return;
      case Received::Kind::kEnd:
        CloseWith(std::move(received.why));
        return;
      case Received::Kind::kMessage:
        if (!Deliver(std::move(received.message))) return;
    }
  }
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

absl::Status UnixConnection::Send(std::string message,
                                  std::shared_ptr<SharedMemory> memory) {
  if (message.empty() || message.size() > kMaxSessionMessageBytes) {
    return absl::InvalidArgumentError(
        StrCat("a message of the local session has 1 to ",
               kMaxSessionMessageBytes, " bytes, this one ", message.size()));
  }
  if (memory != nullptr &&
      dynamic_cast<const MemfdMemory*>(memory.get()) == nullptr) {
    return absl::InvalidArgumentError("the memory is not a memfd");
  }
  {
    MutexLock lock(&mutex_);
    if (closed_) return Annotate(closed_why_, "local socket closed");
    const std::size_t descriptors =
        queued_descriptors_ + (memory != nullptr ? 1 : 0);
    if (queue_.size() >= kMaxQueuedMessages ||
        queued_bytes_ + message.size() > kMaxQueuedBytes ||
        descriptors > kMaxQueuedDescriptors) {
      return absl::ResourceExhaustedError(StrCat(
          "the peer does not read: ", queue_.size(), " messages wait for it"));
    }
    queued_bytes_ += message.size();
    queued_descriptors_ = descriptors;
    queue_.push_back(Message{std::move(message), std::move(memory)});
  }
  SendQueued();
  return absl::OkStatus();
}

// As in TcpConnection::Pump: an edge that comes while somebody sends is
// remembered, one that comes while nothing is queued is of no interest.
void UnixConnection::SendQueued() {
  for (;;) {
    int fd = -1;
    Message* front = nullptr;
    {
      MutexLock lock(&mutex_);
      send_again_ = sending_;
      if (sending_ || queue_.empty() || !BeginUse(&fd)) return;
      sending_ = true;
      // A deque's elements stay where they are while others are added behind.
      front = &queue_.front();
    }
    const auto* memory = static_cast<const MemfdMemory*>(front->memory.get());
    const int error = SendOne(fd, front->bytes,
                              memory == nullptr ? -1 : memory->descriptor());
    const bool blocked = error == EAGAIN || error == EWOULDBLOCK;
    bool again = false;
    Message sent;
    {
      MutexLock lock(&mutex_);
      sending_ = false;
      again = send_again_;
      if (error == 0) {
        sent = std::move(queue_.front());
        queue_.pop_front();
        queued_bytes_ -= sent.bytes.size();
        if (sent.memory != nullptr) --queued_descriptors_;
      }
    }
    EndUse();
    if (blocked && !again) return;
    if (error != 0 && !blocked) {
      return CloseWith(absl::UnavailableError(
          StrCat("send to local socket: ", std::strerror(error))));
    }
  }
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
  // Whoever called keeps this connection alive, so the loop's is not the last
  // share.
  loop_->Unwatch(watch_, socket_.get());
  return Remains{std::move(socket_), std::exchange(queue_, {})};
}

}  // namespace firnkv
