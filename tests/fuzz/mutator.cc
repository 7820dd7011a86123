#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "proto/base/check.h"

namespace firnkv {
namespace {

constexpr std::size_t kMostChanges = 4;
constexpr std::size_t kLongestInput = 64 * 1024;
constexpr std::size_t kLongestRun = 64;

// Where lengths, counts and indexes go wrong; also shifted by one.
constexpr std::array<std::uint64_t, 12> kNumbers = {
    0,      1,       0x7f,    0x80,       0xff,       0x7fff,
    0xffff, 0x10000, 1 << 20, 0x7fffffff, 0xffffffff, 0xffffffffffffffff};

}  // namespace

Mutator::Mutator(std::uint64_t seed, std::vector<std::string> corpus)
    : random_(seed), corpus_(std::move(corpus)) {
  CHECK(!corpus_.empty());
}

std::string Mutator::Next() {
  std::string input = corpus_[random_.Below(corpus_.size())];
  for (std::uint64_t i = 1 + random_.Below(kMostChanges); i > 0; --i) {
    Change(&input);
  }
  input.resize(std::min(input.size(), kLongestInput));
  return input;
}

std::size_t Mutator::Place(const std::string& input) {
  return input.empty() ? 0 : random_.Below(input.size());
}

void Mutator::Change(std::string* input) {
  switch (random_.Below(8)) {
    case 0:
    case 1:
      if (!input->empty()) {
        (*input)[Place(*input)] ^= static_cast<char>(1 << random_.Below(8));
      }
      return;
    case 2:
      if (!input->empty()) {
        (*input)[Place(*input)] = static_cast<char>(random_.Below(256));
      }
      return;
    case 3:
    case 4:
      return Overwrite(input);
    case 5:
    case 6:
      return Resize(input);
    default:
      return Splice(input);
  }
}

void Mutator::Overwrite(std::string* input) {
  const std::uint64_t number =
      kNumbers[random_.Below(kNumbers.size())] + random_.Below(3) - 1;
  const std::size_t width = std::size_t{1} << random_.Below(4);
  const std::size_t place = Place(*input);
  const std::size_t fits = std::min(width, input->size() - place);
  std::memcpy(input->data() + place, &number, fits);
}

void Mutator::Resize(std::string* input) {
  const std::size_t place = Place(*input);
  const std::size_t run = 1 + random_.Below(kLongestRun);
  switch (random_.Below(4)) {
    case 0:
      input->resize(place);
      return;
    case 1:
      input->erase(place, run);
      return;
    case 2:
      input->insert(place, run, static_cast<char>(random_.Below(256)));
      return;
    default:
      input->insert(place, std::string(*input, place, run));
      return;
  }
}

void Mutator::Splice(std::string* input) {
  const std::string& other = corpus_[random_.Below(corpus_.size())];
  input->resize(Place(*input));
  *input += other.substr(std::min(Place(other), other.size()));
}

}  // namespace firnkv
