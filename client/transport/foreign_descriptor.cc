#include "client/transport/foreign_descriptor.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace firnkv {
namespace {

// Unix sockets that lie in the queues of unix sockets. Older kernels allow
// four of them, newer ones any number; nobody needs one.
constexpr int kDeepest = 8;

// Receives that empty a socket: the largest send buffer of a tuned host, in
// parts of a page.
constexpr int kMostUnread = 1 << 16;

void Disarm(int fd, int depth);

std::vector<Descriptor> Taken(msghdr* header, int depth) {
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
  for (const Descriptor& one : taken) Disarm(one.get(), depth);
  return taken;
}

// Nothing comes after the shutdown, so what is there is all.
void Empty(int fd, int depth) {
  int type = SOCK_STREAM;
  socklen_t type_size = sizeof(type);
  getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size);
  // A message of no bytes looks like the end, but for its sender's credentials.
  const bool packets = type != SOCK_STREAM;
  const int yes = 1;
  if (packets) setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes));
  shutdown(fd, SHUT_RDWR);
  std::array<char, 4096> bytes;
  for (int i = 0; i < kMostUnread; ++i) {
    iovec piece = {bytes.data(), bytes.size()};
    alignas(cmsghdr)
        std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors) +
                             CMSG_SPACE(sizeof(ucred))>
            control;
    msghdr header = {};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t size = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == EINTR) continue;
    const bool end = size == 0 && (!packets || header.msg_controllen == 0);
    if (size < 0 || end) return;
    Taken(&header, depth).clear();
  }
}

// From now on closing it waits for nothing.
void Disarm(int fd, int depth) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof(family);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0) return;
  const linger none = {};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
  if (family == AF_UNIX && depth > 0) Empty(fd, depth - 1);
  if (family != AF_INET && family != AF_INET6) return;
  // Whoever has it too could make it linger again, just before we close it:
  // without a connection there is nothing to wait for.
  sockaddr nobody = {};
  nobody.sa_family = AF_UNSPEC;
  connect(fd, &nobody, sizeof(nobody));
}

}  // namespace

std::vector<Descriptor> TakeDescriptors(msghdr* header) {
  return Taken(header, kDeepest);
}

void CloseForeign(Descriptor socket) {
  if (socket.valid()) Disarm(socket.get(), kDeepest);
}

}  // namespace firnkv
