// The limits of a copy within the machine, over memory of the kinds that the
// product has: a pool and staging in memfds, a caller's buffers in anonymous
// memory. CRC32C by ISA-L.
//
//     set bytes=SIZE                           the pool
//     copy_out batch=BYTES millis=80           pool to buffers, CRC of what
//                                              landed in the same pass
//     write_staged batch=BYTES millis=80       a CRC pass over staging, then
//                                              staging to pool with CRC
//     write_piped batch=BYTES millis=80        one thread copies buffers to
//                                              staging, another one staging to
//                                              pool with CRC, behind it

#include <isa-l/crc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/types/span.h"
#include "tools/bench/command_loop.h"
#include "tools/bench/landing.h"

namespace firnkv {
namespace {

// What the checksum reads is still in a first-level cache.
constexpr std::size_t kStep = 8 * kKiB;
// What one thread of a pipeline hands to the other.
constexpr std::size_t kHandover = 256 * kKiB;

std::uint32_t Crc(absl::Span<const std::byte> bytes, std::uint32_t so_far) {
  return crc32_iscsi(const_cast<unsigned char*>(
                         reinterpret_cast<const unsigned char*>(bytes.data())),
                     static_cast<int>(bytes.size()), so_far);
}

std::uint32_t CopyWithCrc(absl::Span<std::byte> to,
                          absl::Span<const std::byte> from) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (std::size_t at = 0; at < from.size(); at += kStep) {
    const std::size_t size = std::min(kStep, from.size() - at);
    std::memcpy(to.data() + at, from.data() + at, size);
    crc = Crc(to.subspan(at, size), crc);
  }
  return crc;
}

// A memfd that is mapped to be written, and once more to be read.
class Shared {
 public:
  explicit Shared(std::size_t bytes) : bytes_(bytes) {
    const int fd = memfd_create("firnkv-limit", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    written_ = Map(fd, PROT_READ | PROT_WRITE);
    std::memset(written_, 0x5a, bytes);
    read_ = Map(fd, PROT_READ);
    close(fd);
  }
  ~Shared() {
    munmap(written_, bytes_);
    munmap(read_, bytes_);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  // The next `bytes`, from its begin again after its end.
  std::size_t Next(std::size_t bytes) {
    if (next_ + bytes > bytes_) next_ = 0;
    const std::size_t at = next_;
    next_ += bytes;
    return at;
  }
  absl::Span<std::byte> Written(std::size_t at, std::size_t bytes) {
    return {written_ + at, bytes};
  }
  absl::Span<const std::byte> Read(std::size_t at, std::size_t bytes) const {
    return {read_ + at, bytes};
  }

 private:
  std::byte* Map(int fd, int protection) const {
    void* const memory =
        mmap(nullptr, bytes_, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
    CHECK(memory != MAP_FAILED);
    return static_cast<std::byte*>(memory);
  }

  const std::size_t bytes_;
  std::byte* written_ = nullptr;
  std::byte* read_ = nullptr;
  std::size_t next_ = 0;
};

class MemoryLimit {
 public:
  absl::StatusOr<Counts> Set(const Command& command) {
    pool_ = std::make_unique<Shared>(command.Number("bytes"));
    staging_ = std::make_unique<Shared>(Landing::kBytes);
    buffers_ = std::make_unique<Landing>(Landing::kBytes);
    return Counts();
  }

  absl::StatusOr<Counts> CopyOut(const Command& command) {
    const std::size_t batch = command.Number("batch");
    Landing landing(batch);
    return Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
      crc_ ^=
          CopyWithCrc(landing.Next(), pool_->Read(pool_->Next(batch), batch));
      return batch;
    });
  }

  absl::StatusOr<Counts> WriteStaged(const Command& command) {
    const std::size_t batch = command.Number("batch");
    return Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
      const auto staged = staging_->Read(staging_->Next(batch), batch);
      crc_ ^= Crc(staged, 0);
      crc_ ^= CopyWithCrc(pool_->Written(pool_->Next(batch), batch), staged);
      return batch;
    });
  }

  absl::StatusOr<Counts> WritePiped(const Command& command) {
    const std::size_t batch = command.Number("batch");
    // Bytes that the first thread has copied since the begin, and that the
    // second one was told to follow. Released and acquired: the bytes are there
    // before the count says so.
    std::atomic<std::uint64_t> copied{0};
    std::atomic<std::uint64_t> behind{0};
    std::atomic<bool> over{false};
    std::thread second([&] {
      std::uint64_t done = 0;
      while (!over.load(std::memory_order_acquire)) {
        if (copied.load(std::memory_order_acquire) <= done) {
          std::this_thread::yield();
          continue;
        }
        const auto staged = staging_->Read(done % Landing::kBytes, kHandover);
        crc_ ^= CopyWithCrc(pool_->Written(pool_->Next(kHandover), kHandover),
                            staged);
        done += kHandover;
        behind.store(done, std::memory_order_release);
      }
    });
    std::uint64_t told = 0;
    auto counts = Measure(command, [&](int) -> absl::StatusOr<std::uint64_t> {
      const std::uint64_t end = told + batch;
      for (; told < end; told += kHandover) {
        const std::size_t at = told % Landing::kBytes;
        std::memcpy(staging_->Written(at, kHandover).data(),
                    buffers_->all().data() + at, kHandover);
        copied.store(told + kHandover, std::memory_order_release);
      }
      // A write is over when its last byte is in the pool.
      while (behind.load(std::memory_order_acquire) < end) {
        std::this_thread::yield();
      }
      return batch;
    });
    over.store(true, std::memory_order_release);
    second.join();
    return counts;
  }

  std::uint32_t crc() const { return crc_; }

 private:
  std::unique_ptr<Shared> pool_;
  std::unique_ptr<Shared> staging_;
  std::unique_ptr<Landing> buffers_;
  // So that no checksum is left out.
  std::uint32_t crc_ = 0;
};

}  // namespace
}  // namespace firnkv

int main() {
  firnkv::MemoryLimit limit;
  firnkv::CommandLoop loop;
  loop.Add("set",
           [&](const firnkv::Command& command) { return limit.Set(command); });
  loop.Add("copy_out", [&](const firnkv::Command& command) {
    return limit.CopyOut(command);
  });
  loop.Add("write_staged", [&](const firnkv::Command& command) {
    return limit.WriteStaged(command);
  });
  loop.Add("write_piped", [&](const firnkv::Command& command) {
    return limit.WritePiped(command);
  });
  loop.Add("crc", [&](const firnkv::Command&) {
    return firnkv::Counts{{"crc", limit.crc()}};
  });
  return loop.Run();
}
