// Little-endian numbers and bytes on and off a string: what every hand-made
// format of FirnKV is written and read with.
//
// WireReader is for bytes of outsiders: it never reads past the end, and once
// something did not fit it is bad for ever, so that a decoder checks once, at
// its end.

#ifndef FIRNKV_PROTO_BASE_WIRE_H_
#define FIRNKV_PROTO_BASE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "proto/base/bytes.h"
#include "proto/base/id.h"

namespace firnkv {

class WireWriter {
 public:
  // `out` outlives the writer, which appends to it.
  explicit WireWriter(std::string* out) : out_(*out) {}

  void U8(std::uint8_t value) { Raw(value); }
  void U16(std::uint16_t value) { Raw(value); }
  void U32(std::uint32_t value) { Raw(value); }
  void U64(std::uint64_t value) { Raw(value); }
  void Bytes(std::string_view bytes) { out_.append(bytes); }
  template <typename Tag, std::size_t N>
  void Id(const ByteId<Tag, N>& id) {
    Bytes(id.view());
  }

 private:
  template <typename T>
  void Raw(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }
  std::string& out_;
};

class WireReader {
 public:
  // `bytes` outlive the reader and the views that it gives.
  explicit WireReader(std::string_view bytes) : left_(bytes) {}

  // Zeros once the reader is bad.
  std::uint8_t U8() { return Raw<std::uint8_t>(); }
  std::uint16_t U16() { return Raw<std::uint16_t>(); }
  std::uint32_t U32() { return Raw<std::uint32_t>(); }
  std::uint64_t U64() { return Raw<std::uint64_t>(); }
  // Exactly `size` bytes; empty once the reader is bad.
  std::string_view Bytes(std::size_t size) {
    if (!ok_ || size > left_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  template <typename Id>
  Id TakeId() {
    return Id::FromBytes(Bytes(Id::kBytes)).value_or(Id{});
  }

  bool ok() const { return ok_; }
  std::size_t left() const { return ok_ ? left_.size() : 0; }
  // Everything fitted, and nothing is left.
  bool AtEnd() const { return ok_ && left_.empty(); }

 private:
  template <typename T>
  T Raw() {
    T value = 0;
    const std::string_view bytes = Bytes(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::string_view left_;
  bool ok_ = true;
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_WIRE_H_
