#include "server/bin/signals.h"

#include <unistd.h>

#include <csignal>

namespace firnkv {
namespace {

sigset_t Ends() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

void BlockSignals() {
  const sigset_t set = Ends();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int WaitForEnd() {
  const sigset_t set = Ends();
  for (;;) {
    int got = 0;
    if (sigwait(&set, &got) == 0 && got != SIGHUP) return got;
  }
}

void EndThisProcess() { ::kill(::getpid(), SIGTERM); }

void EndByForceAfter(absl::Duration time) {
  std::signal(SIGALRM, SIG_DFL);
  ::alarm(static_cast<unsigned>(
      absl::ToInt64Seconds(absl::Ceil(time, absl::Seconds(1)))));
}

}  // namespace firnkv
