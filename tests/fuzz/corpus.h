// Inputs as files: one input a file, in folders.
//
// Threading: functions.

#ifndef FIRNKV_TESTS_FUZZ_CORPUS_H_
#define FIRNKV_TESTS_FUZZ_CORPUS_H_

#include <string>
#include <vector>

namespace firnkv {

// Of a folder: every file in it, by name; of a file: its bytes; else nothing.
std::vector<std::string> ReadCorpus(const std::string& path);

// False where the folder cannot be written.
bool WriteCorpus(const std::vector<std::string>& inputs,
                 const std::string& folder);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FUZZ_CORPUS_H_
