// A file descriptor with one owner: closed when the owner ends.
//
// Does not know what kind of file it is. Not thread-safe, as an int is not.

#ifndef FIRNKV_CLIENT_TRANSPORT_DESCRIPTOR_H_
#define FIRNKV_CLIENT_TRANSPORT_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace firnkv {

class Descriptor {
 public:
  Descriptor() = default;
  // Takes over `fd`; negative means none.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // Somebody else closes it from now on.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }

  // Closes now. The status of close(2) is of no use: on Linux the descriptor is
  // gone in every case.
  void Reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_DESCRIPTOR_H_
