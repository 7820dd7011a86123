#include "tests/fuzz/fuzz_target.h"

#include "proto/base/check.h"
#include "proto/base/checksum.h"

namespace firnkv {

std::string WithCrc(std::string_view content) {
  std::string sealed(content);
  WireWriter(&sealed).U32(Crc32c(
      {reinterpret_cast<const std::byte*>(content.data()), content.size()}));
  return sealed;
}

std::string WithoutCrc(std::string_view sealed) {
  CHECK(sealed.size() >= 4);
  return std::string(sealed.substr(0, sealed.size() - 4));
}

std::string Seed(std::uint8_t part, std::string_view bytes) {
  std::string seed(1, static_cast<char>(part));
  seed += bytes;
  return seed;
}

}  // namespace firnkv
