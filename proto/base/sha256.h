// SHA-256 and HMAC-SHA256 by libcrypto, which nothing else includes.

#ifndef FIRNKV_PROTO_BASE_SHA256_H_
#define FIRNKV_PROTO_BASE_SHA256_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace firnkv {

using Sha256Bytes = std::array<std::uint8_t, 32>;

Sha256Bytes Sha256(std::string_view bytes);
Sha256Bytes HmacSha256(std::string_view key, std::string_view bytes);

// Takes the same time wherever the two first differ. False if the lengths do.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_SHA256_H_
