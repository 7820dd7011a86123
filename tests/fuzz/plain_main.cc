// A fuzz target without libFuzzer: its seeds, its corpus, and mutations of
// both, from a seed. What the suite runs.
//
//   NAME_fuzz [--count N] [--seed S] [--crash-to FILE] [FOLDER OR FILE...]
//   NAME_fuzz --write-seeds FOLDER
//
// Ends with "stat::number_of_executed_units: N", as libFuzzer does. An input
// that breaks something ends the process, and is in FILE then.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/mutex.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutator.h"

// Of the sanitizer's runtime, where there is one.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(
    void (*callback)());

// No input makes a decoder ask for this much at once: they are all of 64 KiB at
// most, and what they can announce is bounded (proto/base/limits.h).
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=256";
}

namespace firnkv {
namespace {

// The input under way, for whoever ends the process.
const std::string* current = nullptr;
std::string crash_file;

void KeepInput() {
  if (current == nullptr || crash_file.empty()) return;
  const int fd = open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || write(fd, current->data(), current->size()) < 0) return;
  close(fd);
}

void OnAbort(int signal) {
  KeepInput();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Run(const std::string& input) {
  current = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()),
                         input.size());
  current = nullptr;
}

int Main(const std::vector<std::string>& arguments) {
  std::uint64_t count = 0;
  std::uint64_t seed = 1;
  std::vector<std::string> corpus = FuzzSeeds();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& one = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (one == "--count" && has_value) {
      count = std::strtoull(arguments[++i].c_str(), nullptr, 10);
    } else if (one == "--seed" && has_value) {
      seed = std::strtoull(arguments[++i].c_str(), nullptr, 10);
    } else if (one == "--crash-to" && has_value) {
      crash_file = arguments[++i];
    } else if (one == "--write-seeds" && has_value) {
      return WriteCorpus(corpus, arguments[++i]) ? 0 : 1;
    } else {
      for (std::string& input : ReadCorpus(one)) {
        corpus.push_back(std::move(input));
      }
    }
  }
  std::uint64_t done = 0;
  for (const std::string& input : corpus) {
    Run(input);
    ++done;
  }
  Mutator mutator(seed, corpus);
  for (; done < count; ++done) Run(mutator.Next());
  std::fprintf(stderr, "stat::number_of_executed_units: %llu\n",
               static_cast<unsigned long long>(done));
  return 0;
}

}  // namespace
}  // namespace firnkv

int main(int count, char** values) {
  firnkv::TurnOffDeadlockDetection();
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(firnkv::KeepInput);
  }
  // A CHECK, and a failed expectation.
  std::signal(SIGABRT, firnkv::OnAbort);
  std::signal(SIGTRAP, firnkv::OnAbort);
  return firnkv::Main({values + 1, values + count});
}
