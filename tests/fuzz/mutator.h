// Inputs made of other inputs, from a seed: what the plain driver feeds a
// target where libFuzzer is not. No coverage steers it, so it stays near real
// messages: a few small changes each.
//
// Threading: none; the same seed and corpus give the same inputs.

#ifndef FIRNKV_TESTS_FUZZ_MUTATOR_H_
#define FIRNKV_TESTS_FUZZ_MUTATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/random.h"

namespace firnkv {

class Mutator {
 public:
  // `corpus` is not empty.
  Mutator(std::uint64_t seed, std::vector<std::string> corpus);

  std::string Next();

 private:
  void Change(std::string* input);
  void Overwrite(std::string* input);
  void Resize(std::string* input);
  void Splice(std::string* input);
  std::size_t Place(const std::string& input);

  SeededRandom random_;
  const std::vector<std::string> corpus_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FUZZ_MUTATOR_H_
