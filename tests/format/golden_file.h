// Golden bytes: files of named sections of hex under tests/format/golden, so
// that a change of a format shows as a diff. They are written by reference.py,
// a second implementation, and never by the code under test.

#ifndef FIRNKV_TESTS_FORMAT_GOLDEN_FILE_H_
#define FIRNKV_TESTS_FORMAT_GOLDEN_FILE_H_

#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "proto/base/id.h"

namespace firnkv {

class GoldenFile {
 public:
  // `name` in tests/format/golden; tests run in the repository's root.
  explicit GoldenFile(const std::string& name) : name_(name) {
    std::ifstream in("tests/format/golden/" + name);
    EXPECT_TRUE(in) << name << " cannot be read";
    std::string section;
    for (std::string line; std::getline(in, line);) {
      if (line.empty() || line[0] == '#') continue;
      if (line[0] == '[') {
        section = line.substr(1, line.size() - 2);
        hex_[section];
      } else {
        hex_[section] += line;
      }
    }
  }

  // Lower-case hex, to be compared with ToHex.
  std::string Hex(const std::string& section) const {
    const auto it = hex_.find(section);
    if (it == hex_.end()) {
      ADD_FAILURE() << name_ << " has no section " << section;
      return "";
    }
    return it->second;
  }
  std::string Bytes(const std::string& section) const {
    return FromHex(Hex(section)).value_or("");
  }

 private:
  const std::string name_;
  std::map<std::string, std::string> hex_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FORMAT_GOLDEN_FILE_H_
