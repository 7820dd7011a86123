// What a test must know of its own process: threads, descriptors, uid.

#ifndef FIRNKV_TESTS_CLIENT_TRANSPORT_PROCESS_STATE_H_
#define FIRNKV_TESTS_CLIENT_TRANSPORT_PROCESS_STATE_H_

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>

namespace firnkv {

inline std::size_t EntriesOf(const char* directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory),
                    std::filesystem::directory_iterator()));
}
inline std::size_t ThreadsOfThisProcess() {
  return EntriesOf("/proc/self/task");
}
inline std::size_t DescriptorsOfThisProcess() {
  return EntriesOf("/proc/self/fd");
}

// UBSan looks at memory by way of a pipe, and takes it for bad memory where
// there is none to be had.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIRNKV_SANITIZER_NEEDS_DESCRIPTORS 1
#endif
#endif
#ifdef FIRNKV_SANITIZER_NEEDS_DESCRIPTORS
inline constexpr bool kCanRunOutOfDescriptors = false;
#else
inline constexpr bool kCanRunOutOfDescriptors = true;
#endif

// While it lives, this process gets no further descriptor.
class OutOfDescriptors {
 public:
  OutOfDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(lowest_free);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(lowest_free);
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~OutOfDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// Runs `body` in a child of this process and returns its exit status, or -1 if
// it did not exit by itself. `body` must use system calls only, and this
// process must have one thread.
template <typename Body>
int InAChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_CLIENT_TRANSPORT_PROCESS_STATE_H_
