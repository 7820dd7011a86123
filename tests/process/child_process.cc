#include "tests/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/clock.h"

namespace firnkv {
namespace {

constexpr int kPollMillis = 10;

// Everything the child needs, made before the fork: after it only system calls
// are allowed, since this process may have threads.
struct Image {
  int program = -1;
  int input = -1;
  int output = -1;
  int error = -1;
  // -1: as its parent.
  int network = -1;
  int cgroup = -1;
  std::uint32_t uid = 0;
  std::vector<char*> arguments;
  std::vector<char*> environment;
};

[[noreturn]] void Become(const Image& image) {
  dup2(image.input, STDIN_FILENO);
  dup2(image.output, STDOUT_FILENO);
  dup2(image.error, STDERR_FILENO);
  // "0" is whoever writes it.
  if ((image.network >= 0 && setns(image.network, CLONE_NEWNET) != 0) ||
      (image.cgroup >= 0 && write(image.cgroup, "0", 1) != 1)) {
    _exit(125);
  }
  // System calls and not their wrappers, which would ask all threads.
  if (image.uid != 0 &&
      (syscall(SYS_setgroups, 0, nullptr) != 0 ||
       syscall(SYS_setresgid, image.uid, image.uid, image.uid) != 0 ||
       syscall(SYS_setresuid, image.uid, image.uid, image.uid) != 0)) {
    _exit(126);
  }
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  syscall(SYS_execveat, image.program, "", image.arguments.data(),
          image.environment.data(), AT_EMPTY_PATH);
  _exit(127);
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& one : *strings) pointers.push_back(one.data());
  pointers.push_back(nullptr);
  return pointers;
}

// True once `fd` can be read.
bool WaitFor(int fd, absl::Duration time) {
  struct pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
  for (;;) {
    const int ready =
        poll(&one, 1, static_cast<int>(absl::ToInt64Milliseconds(time)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace

bool Eventually(const std::function<bool()>& condition) {
  const SystemClock clock;
  const BootTime until = clock.Now() + kPatience;
  for (;;) {
    if (condition()) return true;
    if (clock.Now() >= until) return false;
    poll(nullptr, 0, kPollMillis);
  }
}

ChildProcess::ChildProcess(const Options& options) {
  int in[2];
  int out[2];
  CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
  Image image;
  image.program = open(options.program.c_str(), O_RDONLY | O_CLOEXEC);
  image.input = in[0];
  image.output = out[1];
  image.error = options.error_file.empty()
                    ? out[1]
                    : open(options.error_file.c_str(),
                           O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (!options.network_file.empty()) {
    image.network = open(options.network_file.c_str(), O_RDONLY | O_CLOEXEC);
    CHECK(image.network >= 0);
  }
  if (!options.cgroup_file.empty()) {
    image.cgroup = open(options.cgroup_file.c_str(), O_WRONLY | O_CLOEXEC);
    CHECK(image.cgroup >= 0);
  }
  image.uid = options.uid;
  std::vector<std::string> arguments = options.arguments;
  arguments.insert(arguments.begin(), options.program);
  std::vector<std::string> environment = options.environment;
  image.arguments = Pointers(&arguments);
  image.environment = Pointers(&environment);
  pid_ = fork();
  CHECK(pid_ >= 0);
  if (pid_ == 0) Become(image);
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  CHECK(pidfd_ >= 0);
  close(image.program);
  if (image.error != out[1]) close(image.error);
  if (image.network >= 0) close(image.network);
  if (image.cgroup >= 0) close(image.cgroup);
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
}

ChildProcess::~ChildProcess() {
  Kill();
  close(input_);
  close(output_);
  close(pidfd_);
}

bool ChildProcess::ReadMore() {
  if (!WaitFor(output_, kPatience)) return false;
  char bytes[4096];
  const ssize_t got = read(output_, bytes, sizeof bytes);
  if (got <= 0) return false;
  pending_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

std::optional<std::string> ChildProcess::ReadLine() {
  for (;;) {
    const std::size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    if (!ReadMore()) return std::nullopt;
  }
}

bool ChildProcess::HasSaidSomething() {
  return !pending_.empty() || WaitFor(output_, absl::ZeroDuration());
}

std::string ChildProcess::ReadAll() {
  while (ReadMore()) {
  }
  return std::exchange(pending_, {});
}

bool ChildProcess::WriteLine(std::string_view line) {
  std::string bytes(line);
  bytes.push_back('\n');
  // A child that is gone is an answer, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  return write(input_, bytes.data(), bytes.size()) ==
         static_cast<ssize_t>(bytes.size());
}

void ChildProcess::Signal(int signal) {
  if (ended_.has_value()) return;
  kill(pid_, signal);
  // Its end is left for WaitForEnd.
  siginfo_t state = {};
  if (signal == SIGSTOP) {
    waitid(P_PID, static_cast<id_t>(pid_), &state,
           WSTOPPED | WEXITED | WNOWAIT);
  }
}

std::optional<int> ChildProcess::WaitForEnd() {
  if (ended_.has_value() || !WaitFor(pidfd_, kPatience)) return ended_;
  int status = 0;
  CHECK(waitpid(pid_, &status, 0) == pid_);
  ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return ended_;
}

void ChildProcess::Kill() {
  Signal(SIGKILL);
  WaitForEnd();
}

bool ChildProcess::Runs() {
  return !ended_.has_value() && !WaitFor(pidfd_, absl::ZeroDuration());
}

Finished RunToEnd(const ChildProcess::Options& options) {
  ChildProcess process(options);
  Finished finished;
  finished.output = process.ReadAll();
  finished.code = process.WaitForEnd();
  return finished;
}

}  // namespace firnkv
