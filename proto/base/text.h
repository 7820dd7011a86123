// Text, where two string_views meet.
//
// Debian's abseil is built with a string_view of its own, which neither
// converts to nor from std::string_view. FirnKV's interfaces speak
// std::string_view; these carry it across. StrCat and StrAppend take everything
// that absl's do, and std::string_view besides.

#ifndef FIRNKV_PROTO_BASE_TEXT_H_
#define FIRNKV_PROTO_BASE_TEXT_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace firnkv {

inline absl::string_view ToAbsl(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}
template <typename AbslView>  // Also compiles where the two are one type.
std::string_view ToStd(const AbslView& text) {
  return std::string_view(text.data(), text.size());
}

namespace text_internal {
inline absl::string_view Carry(std::string_view text) { return ToAbsl(text); }
inline absl::string_view Carry(const std::string& text) { return text; }
inline absl::string_view Carry(const char* text) { return text; }
template <typename T>
const T& Carry(const T& value) {
  return value;
}
}  // namespace text_internal

template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(text_internal::Carry(args)...);
}
template <typename... Args>
void StrAppend(std::string* out, const Args&... args) {
  absl::StrAppend(out, text_internal::Carry(args)...);
}

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_TEXT_H_
