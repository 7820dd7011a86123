#include "client/transport/byte_run.h"

#include "proto/base/bytes.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"

namespace firnkv {

std::uint64_t RunBytes(absl::Span<const absl::Span<std::byte>> run) {
  std::uint64_t bytes = 0;
  for (const absl::Span<std::byte>& part : run) bytes += part.size();
  return bytes;
}

bool PiecesMatch(absl::Span<const absl::Span<std::byte>> run,
                 std::uint64_t length,
                 absl::Span<const std::uint32_t> checksums) {
  if (checksums.size() != DivideUp(length, kPieceBytes)) return false;
  RunCursor cursor(run);
  for (const std::uint32_t checksum : checksums) {
    std::uint64_t left = std::min<std::uint64_t>(length, kPieceBytes);
    length -= left;
    std::uint32_t landed = 0;
    while (left > 0) {
      const absl::Span<std::byte> part = cursor.Take(left);
      if (part.empty()) return false;
      landed = Crc32c(part, landed);
      left -= part.size();
    }
    if (landed != checksum) return false;
  }
  return true;
}

}  // namespace firnkv
