// Of a local session's connection: how messages leave, and when their peer has
// them.

#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "client/transport/memfd.h"
#include "client/transport/unix_connection.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

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

// What waits at the peer of a unix socket, as the kernel counts it.
std::size_t Waiting(int fd) {
  int waiting = 0;
  return ioctl(fd, SIOCOUTQ, &waiting) == 0 && waiting > 0
             ? static_cast<std::size_t>(waiting)
             : 0;
}

}  // namespace

absl::Status UnixConnection::Send(std::string message,
                                  std::shared_ptr<SharedMemory> memory) {
  return Enqueue(Message{std::move(message), std::move(memory)}, nullptr);
}

absl::Status UnixConnection::SendWatched(std::string message,
                                         std::shared_ptr<SharedMemory> memory,
                                         LocalSocket::OnTaken on_taken) {
  return Enqueue(
      Message{std::move(message), std::move(memory), /*watched=*/true},
      std::move(on_taken));
}

absl::Status UnixConnection::Enqueue(Message message,
                                     LocalSocket::OnTaken on_taken) {
  const std::size_t bytes = message.bytes.size();
  if (bytes == 0 || bytes > kMaxSessionMessageBytes) {
    return absl::InvalidArgumentError(
        StrCat("a message of the local session has 1 to ",
               kMaxSessionMessageBytes, " bytes, this one ", bytes));
  }
  if (message.memory != nullptr &&
      dynamic_cast<const MemfdMemory*>(message.memory.get()) == nullptr) {
    return absl::InvalidArgumentError("the memory is not a memfd");
  }
  {
    MutexLock lock(&mutex_);
    if (closed_) return Annotate(closed_why_, "local socket closed");
    if (message.watched && watched_) {
      return absl::ResourceExhaustedError("one watched message at a time");
    }
    const std::size_t descriptors =
        queued_descriptors_ + (message.memory != nullptr ? 1 : 0);
    if (queue_.size() >= kMaxQueuedMessages ||
        queued_bytes_ + bytes > kMaxQueuedBytes ||
        descriptors > kMaxQueuedDescriptors) {
      return absl::ResourceExhaustedError(StrCat(
          "the peer does not read: ", queue_.size(), " messages wait for it"));
    }
    queued_bytes_ += bytes;
    queued_descriptors_ = descriptors;
    if (message.watched) watched_ = Watched{.on_taken = std::move(on_taken)};
    queue_.push_back(std::move(message));
  }
  SendQueued();
  return absl::OkStatus();
}

// As in TcpConnection::Pump: an edge that comes while somebody sends is
// remembered.
void UnixConnection::SendQueued() {
  for (;;) {
    int fd = -1;
    Message* front = nullptr;
    bool measured = false;
    {
      MutexLock lock(&mutex_);
      send_again_ = sending_;
      if (sending_ || queue_.empty() || !BeginUse(&fd)) return;
      sending_ = true;
      // A deque's elements stay where they are while others are added behind.
      front = &queue_.front();
      measured = watched_ && watched_->sent;
    }
    const std::size_t before = measured ? Waiting(fd) : 0;
    const auto* memory = static_cast<const MemfdMemory*>(front->memory.get());
    const int error = SendOne(fd, front->bytes,
                              memory == nullptr ? -1 : memory->descriptor());
    const std::size_t behind = measured ? Waiting(fd) : 0;
    const bool blocked = error == EAGAIN || error == EWOULDBLOCK;
    bool again = false;
    Message sent;
    {
      MutexLock lock(&mutex_);
      sending_ = false;
      again = send_again_;
      if (error == 0) sent = NoteSent(behind > before ? behind - before : 0);
      if (blocked_ != blocked || sent.watched) {
        blocked_ = blocked;
        Watch();
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

UnixConnection::Message UnixConnection::NoteSent(std::size_t grown) {
  Message sent = std::move(queue_.front());
  queue_.pop_front();
  queued_bytes_ -= sent.bytes.size();
  if (sent.memory != nullptr) --queued_descriptors_;
  if (sent.watched) {
    watched_->sent = true;
  } else if (watched_ && watched_->sent) {
    watched_->after += std::max(grown, sent.bytes.size());
  }
  return sent;
}

void UnixConnection::TellTaken() {
  int fd = -1;
  std::size_t after = 0;
  {
    MutexLock lock(&mutex_);
    if (!IsWatching() || !socket_.valid()) return;
    // What is sent from here on only adds to what waits.
    after = watched_ ? watched_->after : 0;
    ++users_;
    fd = socket_.get();
  }
  const std::size_t waiting = Waiting(fd);
  LocalSocket::OnTaken on_taken;
  LocalSocket::OnTaken on_gone;
  {
    MutexLock lock(&mutex_);
    if (watched_ && watched_->sent && waiting < after + kLeastMessage) {
      on_taken = std::move(watched_->on_taken);
      watched_.reset();
      Watch();
    }
    if (closed_ && waiting < kLeastMessage) {
      on_gone = std::exchange(on_gone_, nullptr);
    }
  }
  EndUse();
  if (on_taken) std::move(on_taken)();
  if (on_gone) std::move(on_gone)();
}

}  // namespace firnkv
