// For targets of several kinds of bytes that each end in a checksum: the first
// byte of an input says of which kind the rest is, and whether the target puts
// the right checksum behind it, as an attacker would.

#ifndef FIRNKV_TESTS_FUZZ_SEALED_PARTS_H_
#define FIRNKV_TESTS_FUZZ_SEALED_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/fuzz/fuzz_target.h"

namespace firnkv {

// Added to a kind: the bytes have no checksum yet.
inline constexpr std::uint8_t kSeal = 0x80;

// Decodes bytes of one kind, and checks what came of them.
using TryPart = void (*)(const std::string& bytes);

// `parts` are numbered from 0.
inline void TryOnePart(FuzzInput input, absl::Span<const TryPart> parts) {
  const std::uint8_t part = input.U8();
  const std::string body =
      (part & kSeal) != 0 ? WithCrc(input.Rest()) : std::string(input.Rest());
  parts[static_cast<std::size_t>(part & ~kSeal) % parts.size()](body);
}

// A true message, whole, and without its checksum.
inline void AddSealed(std::uint8_t part, const std::string& bytes,
                      std::vector<std::string>* seeds) {
  seeds->push_back(Seed(part, bytes));
  seeds->push_back(Seed(part | kSeal, WithoutCrc(bytes)));
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FUZZ_SEALED_PARTS_H_
