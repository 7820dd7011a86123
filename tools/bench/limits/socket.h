// Blocking stream sockets of the limit programs, with nothing around them.
//
// Addresses are "unix:PATH" and "HOST:PORT" with a numeric host.
//
// Threading. One thread a socket.

#ifndef FIRNKV_TOOLS_BENCH_LIMITS_SOCKET_H_
#define FIRNKV_TOOLS_BENCH_LIMITS_SOCKET_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace firnkv {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  static absl::StatusOr<Socket> Connect(const std::string& address);
  // Port 0 takes any that is free.
  static absl::StatusOr<Socket> Listen(const std::string& address);
  absl::StatusOr<Socket> Accept();
  std::uint64_t port() const;

  // All of it. OUT_OF_RANGE where the peer has gone.
  absl::Status Send(absl::Span<const std::byte> bytes);
  absl::Status Receive(absl::Span<std::byte> bytes);
  // Into all pieces, in order; changes them.
  absl::Status ReceivePieces(std::vector<iovec>* pieces);

 private:
  int fd_ = -1;
};

template <typename T>
absl::Span<std::byte> BytesOf(T* value) {
  return {reinterpret_cast<std::byte*>(value), sizeof(T)};
}

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_BENCH_LIMITS_SOCKET_H_
