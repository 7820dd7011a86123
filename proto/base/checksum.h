// CRC32C (Castagnoli), the checksum of every piece of every copy. ISA-L's
// vectorised implementation; a fused copy-and-checksum costs little over the
// copy alone.

#ifndef FIRNKV_PROTO_BASE_CHECKSUM_H_
#define FIRNKV_PROTO_BASE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace firnkv {

// CRC32C as iSCSI has it: initial value and final xor of all ones. The CRC of
// "123456789" is 0xe3069283. Chained: Crc32c(b, Crc32c(a)) is that of ab.
std::uint32_t Crc32c(absl::Span<const std::byte> bytes,
                     std::uint32_t so_far = 0);

// Copies `from` to `to`, which must not overlap, and returns the CRC of what
// landed in `to`, read back after the copy in cache-sized steps, so that what
// is checked is what is there.
std::uint32_t CopyWithCrc32c(std::byte* to, absl::Span<const std::byte> from,
                             std::uint32_t so_far = 0);

// One CRC a piece of kPieceBytes (limits.h), the last one over what is left.
std::vector<std::uint32_t> PieceChecksums(absl::Span<const std::byte> block);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_CHECKSUM_H_
