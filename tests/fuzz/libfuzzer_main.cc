// A fuzz target under libFuzzer, which has the main: only the seeds are ours.
//
//   NAME_fuzz --write-seeds FOLDER

#include <cstdlib>
#include <string_view>

#include "proto/base/mutex.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerInitialize(int* count, char*** values) {
  firnkv::TurnOffDeadlockDetection();
  if (*count == 3 && std::string_view((*values)[1]) == "--write-seeds") {
    std::exit(firnkv::WriteCorpus(firnkv::FuzzSeeds(), (*values)[2]) ? 0 : 1);
  }
  return 0;
}
