// Bytes as a hostile or broken peer sends them: for tests that a decoder
// refuses each, and reads past the end of none (each is given in a buffer of
// its own exact size, so that ASan sees a byte too many).

#ifndef FIRNKV_TESTS_PROTO_BROKEN_BYTES_H_
#define FIRNKV_TESTS_PROTO_BROKEN_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "proto/base/id.h"
#include "proto/base/random.h"

namespace firnkv {

using Accepts = absl::FunctionRef<bool(std::string_view)>;

inline bool AcceptsExactly(std::string_view bytes, Accepts accepts) {
  const auto copy = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return accepts({copy.get(), bytes.size()});
}

// Every proper prefix.
inline void ExpectNoTruncationAccepted(std::string_view valid,
                                       Accepts accepts) {
  for (std::size_t size = 0; size < valid.size(); ++size) {
    EXPECT_FALSE(AcceptsExactly(valid.substr(0, size), accepts))
        << "cut to " << size << " of " << valid.size() << " bytes";
  }
}

// Every single bit.
inline void ExpectNoBitFlipAccepted(std::string_view valid, Accepts accepts) {
  std::string broken(valid);
  for (std::size_t bit = 0; bit < valid.size() * 8; ++bit) {
    const char mask = static_cast<char>(1 << (bit % 8));
    broken[bit / 8] ^= mask;
    EXPECT_FALSE(AcceptsExactly(broken, accepts))
        << "bit " << bit % 8 << " of byte " << bit / 8 << " flipped";
    broken[bit / 8] ^= mask;
  }
}

// `count` strings of up to `most` bytes, from a seed; some begin as `valid`
// does, so that they pass the first checks.
inline void ExpectNoRandomBytesAccepted(std::string_view valid,
                                        std::size_t most, std::uint64_t seed,
                                        int count, Accepts accepts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRandom random(seed);
  for (int i = 0; i < count; ++i) {
    std::string bytes(random.Below(most + 1), '\0');
    random.Fill({reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()});
    const std::size_t kept = std::min<std::size_t>(
        {random.Below(valid.size() + 1), bytes.size(), valid.size()});
    bytes.replace(0, kept, valid.substr(0, kept));
    if (bytes == valid) continue;
    EXPECT_FALSE(AcceptsExactly(bytes, accepts))
        << "string " << i << ": " << ToHex(bytes).substr(0, 200);
  }
}

// All of the above, and a byte too many.
inline void ExpectNothingBrokenAccepted(std::string_view valid,
                                        Accepts accepts) {
  ASSERT_TRUE(AcceptsExactly(valid, accepts));
  ExpectNoTruncationAccepted(valid, accepts);
  ExpectNoBitFlipAccepted(valid, accepts);
  ExpectNoRandomBytesAccepted(valid, 2 * valid.size(), 1, 5'000, accepts);
  EXPECT_FALSE(AcceptsExactly(std::string(valid) + '\0', accepts))
      << "a byte too many";
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROTO_BROKEN_BYTES_H_
