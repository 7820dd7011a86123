// One process that a test has started: under a uid of its own, its output read
// line by line, its end waited for with a bound.
//
// It has no capabilities, no supplementary groups and an empty environment but
// for what it is given; it ends when the test does, however the test ends.
//
// Threading. The test's own thread.

#ifndef FIRNKV_TESTS_PROCESS_CHILD_PROCESS_H_
#define FIRNKV_TESTS_PROCESS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace firnkv {

// Longest wait for anything that these tests wait for; nothing takes this long
// unless it has failed, on a busy machine too.
inline constexpr absl::Duration kPatience = absl::Seconds(40);

// Whether `condition` comes true within kPatience; looks again and again.
bool Eventually(const std::function<bool()>& condition);

class ChildProcess {
 public:
  struct Options {
    // A path that this process may open; the child's uid need not reach it.
    std::string program;
    std::vector<std::string> arguments;
    // "NAME=value".
    std::vector<std::string> environment;
    std::uint32_t uid = 0;
    // Where standard error goes, appended; empty: where standard output goes.
    std::string error_file;
    // A network namespace to run in; empty: this process's own.
    std::string network_file = {};
    // The cgroup.procs of a cgroup to run in; empty: this process's own.
    std::string cgroup_file = {};
  };

  explicit ChildProcess(const Options& options);
  // SIGKILL to what still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // The next line of its output, without the newline; nullopt where it has
  // ended or says nothing for kPatience.
  std::optional<std::string> ReadLine();
  // Whether ReadLine would not wait.
  bool HasSaidSomething();
  // All that it says until it closes its output.
  std::string ReadAll();
  // False where it no longer reads.
  bool WriteLine(std::string_view line);

  // A SIGSTOP has stopped all of it on return.
  void Signal(int signal);
  // Exit code, or minus the signal that ended it; nullopt after kPatience.
  std::optional<int> WaitForEnd();
  // SIGKILL, and waits for the end.
  void Kill();
  bool Runs();

 private:
  // Reads more of its output; false at the end of it or after kPatience.
  bool ReadMore();

  pid_t pid_ = -1;
  int pidfd_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string pending_;
  std::optional<int> ended_;
};

// Runs to the end: exit code (minus a signal, nullopt as WaitForEnd) and all
// output, both kinds.
struct Finished {
  std::optional<int> code;
  std::string output;
};
Finished RunToEnd(const ChildProcess::Options& options);

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_CHILD_PROCESS_H_
