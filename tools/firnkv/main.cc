// firnkv: the command line of FirnKV. Real surroundings for run.cc.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/transport/grpc_channel.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "tools/firnkv/run.h"
#include "tools/firnkv/surroundings.h"

namespace firnkv {
namespace {

sigset_t Interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

// They stay pending, for whoever asks. Before other threads begin.
void HoldInterrupts() {
  const sigset_t signals = Interrupts();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
}

bool Interrupted() {
  const sigset_t signals = Interrupts();
  const timespec at_once{};
  return sigtimedwait(&signals, nullptr, &at_once) > 0;
}

std::optional<std::string> Environment(const char* name) {
  const char* const value = getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

int Main(int argc, char** argv) {
  TurnOffDeadlockDetection();
  // A reader of our output that ends is a failed write, not a signal.
  signal(SIGPIPE, SIG_IGN);
  const SystemClock clock;
  SystemRandom random;
  GrpcConnector control;
  Surroundings world;
  world.out = &std::cout;
  world.err = &std::cerr;
  world.in = &std::cin;
  world.err_is_terminal = isatty(STDERR_FILENO) != 0;
  world.in_is_terminal = isatty(STDIN_FILENO) != 0;
  world.clock = &clock;
  world.random = &random;
  world.control = &control;
  world.connect = [](ClientOptions options) {
    return Client::Connect(std::move(options));
  };
  world.environment = Environment;
  world.watch_interrupts = HoldInterrupts;
  world.interrupted = Interrupted;
  return static_cast<int>(
      RunFirnkv(std::vector<std::string>(argv + 1, argv + argc), &world));
}

}  // namespace
}  // namespace firnkv

int main(int argc, char** argv) { return firnkv::Main(argc, argv); }
