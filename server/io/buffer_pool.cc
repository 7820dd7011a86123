#include "server/io/buffer_pool.h"

#include <sys/mman.h>

#include <iterator>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "server/io/block_device.h"

namespace firnkv {

AlignedMemory::AlignedMemory(std::uint64_t bytes) {
  const std::uint64_t whole = AlignUp(bytes, kDeviceAlignment);
  void* const at = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  bytes_ = {static_cast<std::byte*>(at), whole};
}

AlignedMemory::~AlignedMemory() { ::munmap(bytes_.data(), bytes_.size()); }

void BufferPool::Buffer::GiveBack() {
  // Who waits runs inside, and may move or destroy this value.
  BufferPool* const pool = std::exchange(pool_, nullptr);
  const absl::Span<std::byte> bytes = std::exchange(bytes_, {});
  if (pool != nullptr) pool->GiveBack(bytes);
}

BufferPool::BufferPool(std::uint64_t bytes) : memory_(bytes) {
  free_[0] = memory_.bytes().size();
}

BufferPool::~BufferPool() {
  MutexLock lock(&mutex_);
  CHECK(free_.size() == 1 && free_.begin()->second == memory_.bytes().size());
}

absl::Span<std::byte> BufferPool::Cut(std::uint64_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [at, length] = *it;
    if (length < bytes) continue;
    free_.erase(it);
    if (length > bytes) free_[at + bytes] = length - bytes;
    return memory_.bytes().subspan(at, bytes);
  }
  return {};
}

void BufferPool::Take(std::uint64_t bytes, Got got) {
  const std::uint64_t whole = AlignUp(bytes, kDeviceAlignment);
  CHECK(whole > 0 && whole <= memory_.bytes().size());
  {
    MutexLock lock(&mutex_);
    waiting_.push_back({whole, std::move(got)});
  }
  Serve();
}

void BufferPool::Serve() {
  while (true) {
    Got got;
    absl::Span<std::byte> bytes;
    {
      MutexLock lock(&mutex_);
      if (waiting_.empty()) return;
      bytes = Cut(waiting_.front().bytes);
      if (bytes.empty()) return;
      got = std::move(waiting_.front().got);
      waiting_.pop_front();
    }
    std::move(got)(Buffer(this, bytes));
  }
}

void BufferPool::GiveBack(absl::Span<std::byte> bytes) {
  {
    MutexLock lock(&mutex_);
    const auto at =
        static_cast<std::uint64_t>(bytes.data() - memory_.bytes().data());
    auto [it, added] = free_.emplace(at, bytes.size());
    CHECK(added);
    const auto next = std::next(it);
    if (next != free_.end() && at + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it != free_.begin()) {
      const auto before = std::prev(it);
      if (before->first + before->second == at) {
        before->second += it->second;
        free_.erase(it);
      }
    }
  }
  Serve();
}

void BufferPool::DropWaiting() {
  std::deque<Waiting> dropped;
  MutexLock lock(&mutex_);
  dropped.swap(waiting_);
}

std::uint64_t BufferPool::free_bytes() const {
  MutexLock lock(&mutex_);
  std::uint64_t free = 0;
  for (const auto& [at, length] : free_) free += length;
  return free;
}

}  // namespace firnkv
