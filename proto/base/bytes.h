// Byte units and alignment arithmetic.

#ifndef FIRNKV_PROTO_BASE_BYTES_H_
#define FIRNKV_PROTO_BASE_BYTES_H_

#include <bit>
#include <concepts>
#include <cstdint>

namespace firnkv {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// Every format of FirnKV, on the wire and at rest, is little-endian, and so are
// the machines that it runs on: structs are copied as they lie.
static_assert(std::endian::native == std::endian::little,
              "FirnKV's formats are little-endian");

// `alignment` must not be 0. No overflow check: callers bound their sizes by
// limits.h first.
constexpr std::uint64_t AlignUp(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
constexpr std::uint64_t DivideUp(std::uint64_t value, std::uint64_t by) {
  return (value + by - 1) / by;
}

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_BYTES_H_
