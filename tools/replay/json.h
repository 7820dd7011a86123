// A JSON value to be printed: what the tools answer with under --json.
//
//     Json report = Json::Object();
//     report.Set("hits", 12).Set("nodes", Json::Array().Append("a"));
//     out << report.Text();
//
// Members keep the order in which they were set, so that output can be compared
// as text. Texts that are not UTF-8 are printed with replacement characters.
//
// Threading: none; a plain value.

#ifndef FIRNKV_TOOLS_REPLAY_JSON_H_
#define FIRNKV_TOOLS_REPLAY_JSON_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace firnkv {

class Json {
 public:
  // null.
  Json() = default;
  // NOLINTBEGIN(google-explicit-constructor): values are written as they are.
  Json(std::string_view text);
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value)
      : text_(std::to_string(value)) {}
  // Three digits after the point; null where it is no number.
  Json(double value);
  // NOLINTEND

  static Json Object() { return Json(Kind::kObject); }
  static Json Array() { return Json(Kind::kArray); }

  // Of an object; a name is set once.
  Json& Set(std::string_view name, Json value);
  // Of an array.
  Json& Append(Json value);

  // Indented by two spaces a level, with a newline at the end.
  std::string Text() const;

 private:
  enum class Kind : std::uint8_t { kPlain, kObject, kArray };
  explicit Json(Kind kind) : kind_(kind) {}
  void Print(int depth, std::string* out) const;

  Kind kind_ = Kind::kPlain;
  // As printed, of a plain value.
  std::string text_ = "null";
  // Names are empty in an array.
  std::vector<std::pair<std::string, Json>> members_;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_JSON_H_
