// What one fuzz target is made of: LLVMFuzzerTestOneInput, which decodes bytes
// of an outsider and CHECKs properties of what came of them, and seeds.
//
// Seeds are real messages, made by the product's own encoders, so that they
// stay right when a format changes. tests/fuzz/corpus/<name>/ keeps what once
// broke something.
//
// A format with a checksum over it is fuzzed through it: the target computes
// the right one for the bytes it was given, as an attacker would.
//
// Threading. One thread.

#ifndef FIRNKV_TESTS_FUZZ_FUZZ_TARGET_H_
#define FIRNKV_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/wire.h"

// Never returns anything but 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size);

namespace firnkv {

// Inputs to begin with, at least one for each branch of the target.
std::vector<std::string> FuzzSeeds();

// An input, read from its front; zeros and empty texts beyond its end.
class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* bytes, std::size_t size)
      : left_(reinterpret_cast<const char*>(bytes), size) {}

  std::uint8_t U8() { return Raw<std::uint8_t>(); }
  std::uint16_t U16() { return Raw<std::uint16_t>(); }
  std::uint64_t U64() { return Raw<std::uint64_t>(); }
  // As many of `most` as there are.
  std::string_view Bytes(std::size_t most) {
    const std::string_view taken = left_.substr(0, most);
    left_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view Rest() { return Bytes(left_.size()); }
  bool empty() const { return left_.empty(); }

 private:
  template <typename T>
  T Raw() {
    T value = 0;
    const std::string_view bytes = Bytes(sizeof(T));
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::string_view left_;
};

// `content` with what a format puts behind it: the CRC32C of it.
std::string WithCrc(std::string_view content);
// `sealed` without its last 4 bytes.
std::string WithoutCrc(std::string_view sealed);

// A seed: its leading byte says which part of the target it is for.
std::string Seed(std::uint8_t part, std::string_view bytes);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FUZZ_FUZZ_TARGET_H_
