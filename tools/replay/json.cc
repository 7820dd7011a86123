#include "tools/replay/json.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace firnkv {
namespace {

// How many bytes the UTF-8 character at the begin of `text` has; 0 where there
// is none.
std::size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xf0   ? 4
                           : first >= 0xe0 ? 3
                           : first >= 0xc2 ? 2
                                           : 0;
  if (size == 0 || first > 0xf4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Too long a form, surrogates, beyond Unicode.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) >= 0xa0) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  return size;
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t size = CharacterBytes(text);
    if (size == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += absl::StrFormat("\\u%04x", static_cast<unsigned>(c));
    } else {
      out.append(text.substr(0, size));
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out + '"';
}

}  // namespace

Json::Json(std::string_view text) : text_(Quoted(text)) {}

Json::Json(double value)
    : text_(std::isfinite(value) ? absl::StrFormat("%.3f", value) : "null") {}

Json& Json::Set(std::string_view name, Json value) {
  members_.emplace_back(std::string(name), std::move(value));
  return *this;
}

Json& Json::Append(Json value) {
  members_.emplace_back(std::string(), std::move(value));
  return *this;
}

void Json::Print(int depth, std::string* out) const {
  if (kind_ == Kind::kPlain) {
    *out += text_;
    return;
  }
  const bool object = kind_ == Kind::kObject;
  *out += object ? '{' : '[';
  const char* separator = "\n";
  for (const auto& [name, value] : members_) {
    *out += separator;
    separator = ",\n";
    out->append(2 * (depth + 1), ' ');
    if (object) *out += Quoted(name) + ": ";
    value.Print(depth + 1, out);
  }
  if (!members_.empty()) {
    *out += '\n';
    out->append(2 * depth, ' ');
  }
  *out += object ? '}' : ']';
}

std::string Json::Text() const {
  std::string out;
  Print(0, &out);
  return out + '\n';
}

}  // namespace firnkv
