// Peers that keep no rules: plain sockets in the test's own hands.

#ifndef FIRNKV_TESTS_CLIENT_TRANSPORT_RAW_SOCKET_H_
#define FIRNKV_TESTS_CLIENT_TRANSPORT_RAW_SOCKET_H_

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "client/transport/descriptor.h"
#include "client/transport/socket_address.h"

namespace firnkv {

inline SocketAddress Numeric(const std::string& address) {
  return *NumericAddress(*ParseHostPort(address));
}

// A blocking TCP connection to `address`.
inline Descriptor RawTcpConnect(const std::string& address) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress to = Numeric(address);
  if (connect(fd.get(), to.get(), to.length) != 0) return {};
  return fd;
}

// Listens on loopback, at a port of the kernel's choice; never accepts.
inline Descriptor RawTcpListen(int backlog) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress any = Numeric("127.0.0.1:0");
  if (bind(fd.get(), any.get(), any.length) != 0) return {};
  if (listen(fd.get(), backlog) != 0) return {};
  return fd;
}

// A TCP connection whose other end takes nothing: who closes it last would wait
// for an hour.
struct RawLingering {
  RawLingering() {
    const Descriptor listening = RawTcpListen(1);
    sockaddr_storage at = {};
    socklen_t size = sizeof(at);
    getsockname(listening.get(), reinterpret_cast<sockaddr*>(&at), &size);
    end = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connect(end.get(), reinterpret_cast<const sockaddr*>(&at), size);
    other =
        Descriptor(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::array<char, 65536> bytes = {};
    while (send(end.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger hour = {.l_onoff = 1, .l_linger = 3600};
    setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof(hour));
  }
  Descriptor end;
  Descriptor other;
};

inline sockaddr_un RawUnixAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}
inline Descriptor RawUnixConnect(const std::string& path,
                                 int type = SOCK_SEQPACKET) {
  Descriptor fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const sockaddr_un to = RawUnixAddress(path);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) !=
      0) {
    return {};
  }
  return fd;
}
inline Descriptor RawUnixListen(const std::string& path, int type) {
  Descriptor fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const sockaddr_un at = RawUnixAddress(path);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
      listen(fd.get(), 16) != 0) {
    return {};
  }
  return fd;
}

// One message with descriptors beside it. False: the kernel refused.
inline bool RawSend(int socket, std::string message,
                    const std::vector<int>& descriptors) {
  iovec piece = {message.data(), message.size()};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * descriptors.size()));
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(rights), descriptors.data(),
                sizeof(int) * descriptors.size());
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) >= 0;
}

// Everything until the end or a failure; `*error` is errno then, 0 for an
// orderly end.
inline std::string RawReadAll(int socket, int* error) {
  std::string all;
  std::array<char, 65536> part;
  for (;;) {
    const ssize_t got = read(socket, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    *error = got < 0 ? errno : 0;
    if (got <= 0) return all;
    all.append(part.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_TRANSPORT_RAW_SOCKET_H_
