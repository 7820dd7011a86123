#include "tools/replay/text_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"

namespace firnkv {
namespace {

// Three digits, as far as they are needed.
std::string ThreeDigits(double value, const char* unit) {
  const int places = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return absl::StrFormat("%.*f %s", places, value, unit);
}

// Characters, not bytes: for alignment.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

TextTable::TextTable(std::vector<std::string> columns)
    : columns_(std::move(columns)) {
  for (std::string& column : columns_) {
    right_.push_back(!column.empty() && column[0] == '>');
    if (right_.back()) column.erase(0, 1);
  }
}

void TextTable::Add(std::vector<std::string> row) {
  row.resize(columns_.size());
  rows_.push_back(std::move(row));
}

std::string TextTable::Text() const {
  std::vector<const std::vector<std::string>*> lines = {&columns_};
  for (const auto& row : rows_) lines.push_back(&row);
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto* line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], Width((*line)[i]));
    }
  }
  std::string out;
  for (const auto* line : lines) {
    std::string text;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string& cell = (*line)[i];
      const std::string space(widths[i] - Width(cell), ' ');
      if (i > 0) text += "  ";
      text += right_[i] ? space + cell : cell + space;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  }
  return out;
}

std::string FormatCount(std::uint64_t count) {
  const std::string digits = std::to_string(count);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string FormatSize(double bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f B", bytes);
  if (bytes == std::floor(bytes)) {
    return absl::StrFormat("%.0f %s", bytes, kUnits[unit]);
  }
  return ThreeDigits(bytes, kUnits[unit]);
}

std::string FormatTime(absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  if (seconds >= 600) return ThreeDigits(seconds / 60, "min");
  if (seconds >= 1) return ThreeDigits(seconds, "s");
  if (seconds >= 1e-3) return ThreeDigits(seconds * 1e3, "ms");
  return ThreeDigits(seconds * 1e6, "us");
}

}  // namespace firnkv
