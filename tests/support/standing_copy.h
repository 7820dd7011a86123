// Memory at which a copy stands still: whoever touches it first does so in the
// middle of its copy, and there, on that thread, between two of its
// instructions, the test does what it likes. What takes a lock that the copier
// holds never ends; so a test that ends has shown that none of its locks was
// held over the copy.
//
//     StandingCopy memory(kMiB);
//     memory.Arm([&] { done += Open(...); });
//     ...                                     // Somebody copies from or to it.
//     EXPECT_EQ(memory.stood(), 1);
//
// It works by a page that may not be touched and a handler of the fault. A
// fault comes from the very instruction that copies, so that the handler may do
// what any function called there might do.
//
// Threading. One of them armed at a time in a process.

#ifndef FIRNKV_TESTS_SUPPORT_STANDING_COPY_H_
#define FIRNKV_TESTS_SUPPORT_STANDING_COPY_H_

#include <signal.h>

#include <cstddef>
#include <functional>

#include "absl/types/span.h"

namespace firnkv {

class StandingCopy {
 public:
  // Zeros; at least two pages.
  explicit StandingCopy(std::size_t bytes);
  ~StandingCopy();
  StandingCopy(const StandingCopy&) = delete;
  StandingCopy& operator=(const StandingCopy&) = delete;

  absl::Span<std::byte> bytes() const { return {memory_, bytes_}; }

  // The next access to the second half of it stands until `meanwhile` has run.
  void Arm(std::function<void()> meanwhile);
  // How often that has happened.
  int stood() const { return stood_; }

 private:
  static void OnFault(int signal, siginfo_t* fault, void* context);
  void Stand();

  const std::size_t bytes_;
  std::byte* memory_ = nullptr;
  // Of pages: what is closed while it is armed.
  std::byte* closed_ = nullptr;
  std::size_t closed_bytes_ = 0;
  std::function<void()> meanwhile_;
  int stood_ = 0;
  struct sigaction before_ = {};
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_STANDING_COPY_H_
