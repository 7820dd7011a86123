// Memory into which a measuring program reads, or from which it writes: several
// batches' worth, taken in turn, so that what is read does not lie in a cache
// just because the last batch was put there.
//
// Both sides of a comparison use it, so that they differ in nothing but the
// path. Anonymous memory, every page there before it is used.
//
// Threading. One thread's.

#ifndef FIRNKV_TOOLS_BENCH_LANDING_H_
#define FIRNKV_TOOLS_BENCH_LANDING_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>

#include "absl/types/span.h"
#include "proto/base/bytes.h"
#include "proto/base/check.h"

namespace firnkv {

class Landing {
 public:
  // Beyond the caches of any machine's cores, within any machine's memory.
  static constexpr std::size_t kBytes = 64 * kMiB;

  explicit Landing(std::size_t batch_bytes)
      : batch_bytes_(batch_bytes),
        batches_(std::max<std::size_t>(1, kBytes / batch_bytes)) {
    void* const memory =
        mmap(nullptr, batch_bytes_ * batches_, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
  }
  ~Landing() { munmap(memory_, batch_bytes_ * batches_); }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  absl::Span<std::byte> all() { return {memory_, batch_bytes_ * batches_}; }
  // The next batch's; again the first one after the last.
  absl::Span<std::byte> Next() {
    const std::size_t at = next_++ % batches_;
    return {memory_ + at * batch_bytes_, batch_bytes_};
  }

 private:
  const std::size_t batch_bytes_;
  const std::size_t batches_;
  std::byte* memory_ = nullptr;
  std::size_t next_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_BENCH_LANDING_H_
