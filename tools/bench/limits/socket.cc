#include "tools/bench/limits/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "proto/base/status.h"

namespace firnkv {
namespace {

constexpr char kUnix[] = "unix:";
constexpr int kBacklog = 64;
// The most that one call of the kernel takes.
constexpr std::size_t kPieces = 1024;

struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

absl::StatusOr<Address> Parse(const std::string& text) {
  Address address;
  if (text.rfind(kUnix, 0) == 0) {
    sockaddr_un local = {};
    local.sun_family = AF_UNIX;
    const std::string path = text.substr(sizeof(kUnix) - 1);
    if (path.size() >= sizeof(local.sun_path)) {
      return absl::InvalidArgumentError("the path is too long");
    }
    std::memcpy(local.sun_path, path.c_str(), path.size());
    std::memcpy(&address.storage, &local, sizeof(local));
    address.length = sizeof(local);
    return address;
  }
  const std::size_t colon = text.rfind(':');
  sockaddr_in remote = {};
  remote.sin_family = AF_INET;
  if (colon == std::string::npos ||
      inet_pton(AF_INET, text.substr(0, colon).c_str(), &remote.sin_addr) !=
          1) {
    return absl::InvalidArgumentError("no HOST:PORT");
  }
  remote.sin_port = htons(static_cast<std::uint16_t>(
      std::strtoul(text.c_str() + colon + 1, nullptr, 10)));
  std::memcpy(&address.storage, &remote, sizeof(remote));
  address.length = sizeof(remote);
  return address;
}

absl::StatusOr<Socket> Open(int family, int* fd) {
  *fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (*fd < 0) return absl::ErrnoToStatus(errno, "socket");
  Socket made(*fd);
  const int one = 1;
  if (family == AF_INET) {
    setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  }
  return made;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Socket> Socket::Connect(const std::string& text) {
  ASSIGN_OR_RETURN(Address address, Parse(text));
  int fd = -1;
  ASSIGN_OR_RETURN(Socket made, Open(address.storage.ss_family, &fd));
  if (connect(fd, address.get(), address.length) != 0) {
    return absl::ErrnoToStatus(errno, "connect");
  }
  return made;
}

absl::StatusOr<Socket> Socket::Listen(const std::string& text) {
  ASSIGN_OR_RETURN(Address address, Parse(text));
  int fd = -1;
  ASSIGN_OR_RETURN(Socket made, Open(address.storage.ss_family, &fd));
  if (bind(fd, address.get(), address.length) != 0 ||
      listen(fd, kBacklog) != 0) {
    return absl::ErrnoToStatus(errno, "listen");
  }
  return made;
}

absl::StatusOr<Socket> Socket::Accept() {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "accept");
  const int one = 1;
  // Refused by a unix socket, which needs it not.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return Socket(fd);
}

std::uint64_t Socket::port() const {
  sockaddr_in own = {};
  socklen_t length = sizeof(own);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      own.sin_family != AF_INET) {
    return 0;
  }
  return ntohs(own.sin_port);
}

absl::Status Socket::Send(absl::Span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return absl::ErrnoToStatus(errno, "send");
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status Socket::Receive(absl::Span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = recv(fd_, bytes.data(), bytes.size(), MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "recv");
    if (got == 0) return absl::OutOfRangeError("the peer has gone");
    bytes.remove_prefix(static_cast<std::size_t>(got));
  }
  return absl::OkStatus();
}

absl::Status Socket::ReceivePieces(std::vector<iovec>* pieces) {
  std::size_t first = 0;
  while (first < pieces->size()) {
    msghdr message = {};
    message.msg_iov = pieces->data() + first;
    message.msg_iovlen = std::min(pieces->size() - first, kPieces);
    const ssize_t got = recvmsg(fd_, &message, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "recvmsg");
    if (got == 0) return absl::OutOfRangeError("the peer has gone");
    auto left = static_cast<std::size_t>(got);
    while (first < pieces->size() && left >= (*pieces)[first].iov_len) {
      left -= (*pieces)[first].iov_len;
      ++first;
    }
    if (left > 0) {
      iovec& part = (*pieces)[first];
      part.iov_base = static_cast<char*>(part.iov_base) + left;
      part.iov_len -= left;
    }
  }
  return absl::OkStatus();
}

}  // namespace firnkv
