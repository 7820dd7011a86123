// One run of bytes that lies in several pieces of memory: a block in the pages
// of a paged engine.
//
// Pure code; the memory is the caller's.

#ifndef FIRNKV_CLIENT_TRANSPORT_BYTE_RUN_H_
#define FIRNKV_CLIENT_TRANSPORT_BYTE_RUN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace firnkv {

using ByteRun = std::vector<absl::Span<std::byte>>;

// Walks a run from its front.
class RunCursor {
 public:
  explicit RunCursor(absl::Span<const absl::Span<std::byte>> run) : run_(run) {}

  // The next bytes that lie together, at most `most`; empty at the run's end.
  absl::Span<std::byte> Take(std::uint64_t most) {
    while (next_ < run_.size() && within_ == run_[next_].size()) {
      ++next_;
      within_ = 0;
    }
    if (next_ == run_.size()) return {};
    const std::size_t size = static_cast<std::size_t>(
        std::min<std::uint64_t>(most, run_[next_].size() - within_));
    const absl::Span<std::byte> part = run_[next_].subspan(within_, size);
    within_ += size;
    return part;
  }

 private:
  absl::Span<const absl::Span<std::byte>> run_;
  std::size_t next_ = 0;
  std::size_t within_ = 0;
};

// Bytes of all pieces together.
std::uint64_t RunBytes(absl::Span<const absl::Span<std::byte>> run);

// Whether the first `length` bytes of `run` have exactly these checksums, one a
// piece of kPieceBytes. False also where run or checksums are too few or too
// many for `length`.
bool PiecesMatch(absl::Span<const absl::Span<std::byte>> run,
                 std::uint64_t length,
                 absl::Span<const std::uint32_t> checksums);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_BYTE_RUN_H_
