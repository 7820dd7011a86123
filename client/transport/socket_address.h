// Numeric addresses of TCP sockets: "127.0.0.1:7411", "[::1]:7411".
//
// Names are not looked up here (host_resolver.h does that).

#ifndef FIRNKV_CLIENT_TRANSPORT_SOCKET_ADDRESS_H_
#define FIRNKV_CLIENT_TRANSPORT_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace firnkv {

// A value; any thread.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  int family() const { return storage.ss_family; }

  // "127.0.0.1:7411", "[::1]:7411".
  std::string ToString() const;

  friend bool operator==(const SocketAddress& a, const SocketAddress& b);

  // Of the two ends of `fd`; an empty address where the socket has none.
  static SocketAddress LocalOf(int fd);
  static SocketAddress PeerOf(int fd);
};

// The parts of "host:port" or "[v6]:port".
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// INVALID_ARGUMENT, naming `text`, where it is neither.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);

// For options that name an address, or may.
absl::Status CheckHostPort(std::string_view text);
absl::Status CheckHostPortOrEmpty(std::string_view text);

// nullopt where the host is a name and not a number.
std::optional<SocketAddress> NumericAddress(const HostPort& host_port);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_SOCKET_ADDRESS_H_
