#include "tests/process/daemon.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr int kHttpSeconds = 5;

}  // namespace

std::string ProgramFolder() {
  const char* const folder = getenv("FIRNKV_BIN");
  return folder == nullptr ? "build/release/bin" : folder;
}

std::string HttpGet(const std::string& address, const std::string& path) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience = {.tv_sec = kHttpSeconds, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    const std::string request =
        StrCat("GET ", path, " HTTP/1.1\r\nHost: ", address,
               "\r\nConnection: close\r\n\r\n");
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(request.size())) {
      char bytes[16384];
      ssize_t got = 0;
      while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        answer.append(bytes, static_cast<std::size_t>(got));
      }
    }
  }
  close(fd);
  return answer;
}

bool Daemon::Start() {
  process_ = std::make_unique<ChildProcess>(
      ChildProcess::Options{.program = ProgramFolder() + "/" + options_.program,
                            .arguments = options_.arguments,
                            .environment = {"HOME=/nonexistent"},
                            .uid = options_.uid,
                            .error_file = options_.log_file,
                            .network_file = options_.network_file,
                            .cgroup_file = options_.cgroup_file});
  ready_text_.clear();
  // The last line of the ready text of either daemon begins so.
  const std::string last =
      options_.program == "firnkv-node" ? "  dram " : "  http ";
  for (;;) {
    const std::optional<std::string> line = process_->ReadLine();
    if (!line.has_value()) return false;
    absl::StrAppend(&ready_text_, *line, "\n");
    if (line->rfind(last, 0) == 0) return true;
  }
}

std::optional<int> Daemon::Terminate() {
  process_->Signal(SIGTERM);
  const std::optional<int> code = process_->WaitForEnd();
  process_.reset();
  return code;
}

std::optional<double> Daemon::Metric(const std::string& name) const {
  std::istringstream text(HttpGet(options_.http, "/metrics"));
  std::optional<double> sum;
  std::string line;
  while (std::getline(text, line)) {
    if (line.rfind(name, 0) != 0) continue;
    const char next = line[name.size()];
    if (next != ' ' && next != '{') continue;
    sum = sum.value_or(0) + std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}

bool Daemon::MetricBecomes(const std::string& name, double value) const {
  return Eventually([&] { return Metric(name) == value; });
}

std::string Daemon::Log() const {
  std::ifstream in(options_.log_file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace firnkv
