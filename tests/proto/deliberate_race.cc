// A race that ThreadSanitizer must report: two threads write one integer, each
// under a mutex, but not the same one. It proves that the TSan suite can fail
// at all, and that the notes in proto/base/mutex.h order only the critical
// sections of one mutex. Run through expect_race.cmake.

#include <cstdio>
#include <thread>

#include "proto/base/mutex.h"

namespace firnkv {
namespace {

int raced = 0;

void RacingWrites(Mutex* mutex) {
  for (int i = 0; i < 10000; ++i) {
    MutexLock lock(mutex);
    ++raced;
  }
}

}  // namespace
}  // namespace firnkv

int main() {
  firnkv::Mutex one;
  firnkv::Mutex other;
  std::thread first([&one] { firnkv::RacingWrites(&one); });
  std::thread second([&other] { firnkv::RacingWrites(&other); });
  first.join();
  second.join();
  std::printf("no report; sum %d\n", firnkv::raced);
  return 0;
}
