#include "proto/base/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "proto/base/bytes.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

// Half of a first-level cache of 32 KiB, shared by what is read and what is
// written: the checksum finds the copied bytes still there.
constexpr std::size_t kStepBytes = 8 * kKiB;

// ISA-L counts in int.
constexpr std::size_t kLargestCall = 1 * kGiB;

}  // namespace

// ISA-L's function does neither the initial value nor the final xor.
std::uint32_t Crc32c(absl::Span<const std::byte> bytes, std::uint32_t so_far) {
  std::uint32_t crc = ~so_far;
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), kLargestCall);
    // Takes a pointer to non-const bytes and only reads them.
    auto* const first = const_cast<unsigned char*>(
        reinterpret_cast<const unsigned char*>(bytes.data()));
    crc = crc32_iscsi(first, static_cast<int>(size), crc);
    bytes.remove_prefix(size);
  }
  return ~crc;
}

std::uint32_t CopyWithCrc32c(std::byte* to, absl::Span<const std::byte> from,
                             std::uint32_t so_far) {
  while (!from.empty()) {
    const std::size_t size = std::min(from.size(), kStepBytes);
    std::memcpy(to, from.data(), size);
    so_far = Crc32c({to, size}, so_far);
    to += size;
    from.remove_prefix(size);
  }
  return so_far;
}

std::vector<std::uint32_t> PieceChecksums(absl::Span<const std::byte> block) {
  std::vector<std::uint32_t> pieces;
  pieces.reserve(DivideUp(block.size(), kPieceBytes));
  while (!block.empty()) {
    const std::size_t size = std::min<std::size_t>(block.size(), kPieceBytes);
    pieces.push_back(Crc32c(block.first(size)));
    block.remove_prefix(size);
  }
  return pieces;
}

}  // namespace firnkv
