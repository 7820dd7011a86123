// Memory that a device knows beforehand (uring_device.h).

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/text.h"
#include "server/io/uring_device.h"

namespace firnkv {
namespace {

// The kernel's limit of one registered buffer.
constexpr std::uint64_t kMaxMemoryPiece = kGiB;

}  // namespace

void UringDevice::CallOnRing(absl::AnyInvocable<void()> call) {
  // Shared with the call, which may still be in its last step when this
  // returns.
  auto done = std::make_shared<bool>(false);
  bool signal = false;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    calls_.push_back([this, done, call = std::move(call)]() mutable {
      call();
      MutexLock inner(&mutex_);
      *done = true;
      changed_.SignalAll();
    });
    signal = !signalled_;
    signalled_ = true;
  }
  if (signal) Signal();
  MutexLock lock(&mutex_);
  while (!*done && !stopped_) changed_.Wait(&mutex_);
}

absl::Status UringDevice::RegisterMemory(absl::Span<std::byte> memory) {
  absl::Status status = absl::UnavailableError("the device is closed");
  CallOnRing([&] { status = AddMemory(memory); });
  return status;
}

void UringDevice::UnregisterMemory(absl::Span<std::byte> memory) {
  CallOnRing([&] { DropMemory(memory); });
}

absl::Status UringDevice::AddMemory(absl::Span<std::byte> memory) {
  const std::uint64_t pieces = DivideUp(memory.size(), kMaxMemoryPiece);
  if (pieces > free_pieces_.size()) {
    return absl::ResourceExhaustedError(
        StrCat("no room to register ", memory.size(), " bytes of memory"));
  }
  for (std::uint64_t at = 0; at < memory.size(); at += kMaxMemoryPiece) {
    const std::uint64_t bytes =
        std::min<std::uint64_t>(kMaxMemoryPiece, memory.size() - at);
    const iovec part{memory.data() + at, bytes};
    const unsigned index = free_pieces_.back();
    const __u64 tag = 0;
    const int result =
        io_uring_register_buffers_update_tag(&ring_, index, &part, &tag, 1);
    if (result < 0) {
      DropMemory(memory.subspan(0, at));
      return absl::ResourceExhaustedError(
          StrCat("registering ", memory.size(),
                 " bytes of memory: ", std::strerror(-result)));
    }
    free_pieces_.pop_back();
    memory_[memory.data() + at] = Piece{bytes, index};
  }
  return absl::OkStatus();
}

void UringDevice::DropMemory(absl::Span<std::byte> memory) {
  for (std::uint64_t at = 0; at < memory.size(); at += kMaxMemoryPiece) {
    const auto it = memory_.find(memory.data() + at);
    if (it == memory_.end()) continue;
    const iovec none{nullptr, 0};
    const __u64 tag = 0;
    io_uring_register_buffers_update_tag(&ring_, it->second.index, &none, &tag,
                                         1);
    free_pieces_.push_back(it->second.index);
    memory_.erase(it);
  }
}

}  // namespace firnkv
