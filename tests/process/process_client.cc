// A client in a process of its own: reads commands, a line each, and answers
// each with a line (client_program.h). Ends with its input.

#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>

#include "proto/base/mutex.h"
#include "tests/process/client_program.h"

int main() {
  std::signal(SIGPIPE, SIG_IGN);
  firnkv::TurnOffDeadlockDetection();
  // A line that came close behind another one must stay where poll sees it: it
  // ends a `load`.
  std::setvbuf(stdin, nullptr, _IONBF, 0);
  firnkv::ClientProgram program;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::printf("%s\n", program.Obey(line).c_str());
    std::fflush(stdout);
  }
  return 0;
}
