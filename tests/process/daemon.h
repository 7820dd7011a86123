// One firnkv-node or firnkv-catalog as an operator runs it: a process of an
// unprivileged user with a data directory, started, killed and started again.
//
// Threading. The test's own thread.

#ifndef FIRNKV_TESTS_PROCESS_DAEMON_H_
#define FIRNKV_TESTS_PROCESS_DAEMON_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/process/child_process.h"

namespace firnkv {

// What `GET path` at "host:port" answers, head and body; empty where nobody
// does.
std::string HttpGet(const std::string& address, const std::string& path);

// The folder of the programs under test.
std::string ProgramFolder();

class Daemon {
 public:
  struct Options {
    // "firnkv-node" or "firnkv-catalog".
    std::string program;
    std::uint32_t uid = 0;
    std::vector<std::string> arguments;
    // Its log, readable after its end.
    std::string log_file;
    // Of its metrics.
    std::string http;
    // As ChildProcess::Options has them.
    std::string network_file = {};
    std::string cgroup_file = {};
  };

  explicit Daemon(const Options& options) : options_(options) {}

  // Whether it said that it is ready. What it said then is ready_text().
  bool Start();
  // SIGKILL.
  void Kill() { process_.reset(); }
  // SIGTERM; returns the exit code, as ChildProcess::WaitForEnd.
  std::optional<int> Terminate();
  void Signal(int signal) { process_->Signal(signal); }
  bool runs() { return process_ != nullptr && process_->Runs(); }
  ChildProcess* process() { return process_.get(); }

  const std::string& ready_text() const { return ready_text_; }
  // Sum over all labels; nullopt where it does not answer.
  std::optional<double> Metric(const std::string& name) const;
  // Waits until the metric is `value`.
  bool MetricBecomes(const std::string& name, double value) const;
  std::string Log() const;
  const Options& options() const { return options_; }

 private:
  Options options_;
  std::unique_ptr<ChildProcess> process_;
  std::string ready_text_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_DAEMON_H_
