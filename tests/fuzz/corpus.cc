#include "tests/fuzz/corpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "proto/base/text.h"

namespace firnkv {

std::vector<std::string> ReadCorpus(const std::string& path) {
  std::vector<std::string> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else if (std::filesystem::exists(path)) {
    files.push_back(path);
  }
  std::vector<std::string> inputs;
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(in),
                        std::istreambuf_iterator<char>());
  }
  return inputs;
}

bool WriteCorpus(const std::vector<std::string>& inputs,
                 const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::ofstream out(StrCat(folder, "/seed-", i), std::ios::binary);
    out << inputs[i];
    if (!out.flush()) return false;
  }
  return true;
}

}  // namespace firnkv
