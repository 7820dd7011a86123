#include "client/transport/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

#include "absl/strings/numbers.h"
#include "proto/base/text.h"

namespace firnkv {

std::string SocketAddress::ToString() const {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (family() == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &storage, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return StrCat(text.data(), ":", ntohs(v4.sin_port));
  }
  if (family() == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &storage, sizeof(v6));
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return StrCat("[", text.data(), "]:", ntohs(v6.sin6_port));
  }
  return "unknown";
}

bool operator==(const SocketAddress& a, const SocketAddress& b) {
  return a.length == b.length &&
         std::memcmp(&a.storage, &b.storage, a.length) == 0;
}

SocketAddress SocketAddress::LocalOf(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage),
                  &address.length) != 0) {
    return SocketAddress{};
  }
  return address;
}

SocketAddress SocketAddress::PeerOf(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage),
                  &address.length) != 0) {
    return SocketAddress{};
  }
  return address;
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const auto bad = [text](std::string_view why) {
    return absl::InvalidArgumentError(
        StrCat("address '", text, "': ", why,
               "; wanted is host:port or [v6 address]:port"));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("there is no port");
  std::string_view host = text.substr(0, colon);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return bad("the bracket is not closed");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad("a v6 address needs brackets");
  }
  if (host.empty()) return bad("there is no host");
  std::uint32_t port = 0;
  if (!absl::SimpleAtoi(ToAbsl(text.substr(colon + 1)), &port) ||
      port > 65535) {
    return bad("the port is not a number up to 65535");
  }
  return HostPort{.host = std::string(host),
                  .port = static_cast<std::uint16_t>(port)};
}

absl::Status CheckHostPort(std::string_view text) {
  return ParseHostPort(text).status();
}

absl::Status CheckHostPortOrEmpty(std::string_view text) {
  return text.empty() ? absl::OkStatus() : CheckHostPort(text);
}

std::optional<SocketAddress> NumericAddress(const HostPort& host_port) {
  SocketAddress address;
  sockaddr_in v4 = {};
  if (inet_pton(AF_INET, host_port.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(host_port.port);
    std::memcpy(&address.storage, &v4, sizeof(v4));
    address.length = sizeof(v4);
    return address;
  }
  sockaddr_in6 v6 = {};
  if (inet_pton(AF_INET6, host_port.host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(host_port.port);
    std::memcpy(&address.storage, &v6, sizeof(v6));
    address.length = sizeof(v6);
    return address;
  }
  return std::nullopt;
}

}  // namespace firnkv
