// A process_client, told what to do: a worker under a uid of its own that can
// be stopped and killed.
//
// Threading. The test's own thread.

#ifndef FIRNKV_TESTS_PROCESS_WORKER_H_
#define FIRNKV_TESTS_PROCESS_WORKER_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>

#include "tests/process/child_process.h"
#include "tests/process/process_cluster.h"

namespace firnkv {

// What a command has answered. A count that was not said is 0.
struct Reply {
  // False: it failed, or the worker is gone.
  bool ok = false;
  // The whole line; empty where nothing came.
  std::string text;
  std::map<std::string, std::int64_t> counts;

  std::int64_t operator[](const std::string& name) const {
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
  }
  friend std::ostream& operator<<(std::ostream& out, const Reply& reply) {
    return out << "'" << reply.text << "'";
  }
};

class Worker {
 public:
  // As ChildProcess::Options has them.
  struct Place {
    std::string network_file = {};
    std::string cgroup_file = {};
  };

  explicit Worker(std::uint32_t uid) : Worker(uid, Place()) {}
  Worker(std::uint32_t uid, const Place& place);

  // One command of client_program.h, and its answer within kPatience.
  Reply Do(const std::string& command);
  // The two halves of it, for commands that take a while. Any further command
  // ends a `load`; its answer is then one of both.
  void Begin(const std::string& command) { process_.WriteLine(command); }
  Reply Answer();
  // Whether it has answered, or is gone.
  bool answered() { return process_.HasSaidSomething(); }
  // Ends a `load` and says how it went.
  Reply EndLoad();

  void Signal(int signal) { process_.Signal(signal); }
  void Kill() { process_.Kill(); }
  bool runs() { return process_.Runs(); }

 private:
  ChildProcess process_;
};

// Connected to node `number` of the cluster, with the namespace "granite" of
// its tenant open. Fails the test where that does not go.
std::unique_ptr<Worker> WorkerAt(const ProcessCluster& cluster, int number,
                                 std::uint32_t uid = kAliceUid);
// Without a local node, on the host of `number` (process_cluster.h:
// network_file); alice's, with her namespace "big".
std::unique_ptr<Worker> RemoteWorker(const ProcessCluster& cluster, int number);
// As WorkerAt, with the namespace "big".
std::unique_ptr<Worker> BigWorkerAt(const ProcessCluster& cluster, int number);

// The size of its blocks, and of those of the namespace "big".
inline constexpr std::uint64_t kTestBlockBytes = 16 * kKiB;
inline constexpr std::uint64_t kBigBlockBytes = kMiB;

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_WORKER_H_
