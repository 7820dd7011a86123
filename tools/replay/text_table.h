// Columns of text, aligned, and how the tools write numbers for people.
//
// Threading: none; plain values and functions.

#ifndef FIRNKV_TOOLS_REPLAY_TEXT_TABLE_H_
#define FIRNKV_TOOLS_REPLAY_TEXT_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace firnkv {

class TextTable {
 public:
  // Columns whose name begins with '>' are aligned to the right, without it.
  explicit TextTable(std::vector<std::string> columns);

  // As many as there are columns; fewer leave the others empty.
  void Add(std::vector<std::string> row);

  bool empty() const { return rows_.empty(); }

  // Two spaces between columns, none at the end of a line.
  std::string Text() const;

 private:
  std::vector<std::string> columns_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "1,234,567".
std::string FormatCount(std::uint64_t count);
// "1.5 GiB", three digits or so.
std::string FormatSize(double bytes);
// "1.23 ms", three digits or so.
std::string FormatTime(absl::Duration time);

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_TEXT_TABLE_H_
