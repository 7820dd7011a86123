// A cluster of real processes on this machine's loopback: one firnkv-catalog
// and some firnkv-node, each with its data directory, all of an unprivileged
// user; two tenants with a user each. A test process may have several.
//
// Each cluster has a loopback address of its own, or a network of hosts, so
// that ports are fixed, stay the same over restarts, and meet nobody else's.
//
// It needs root, to become those users. Threading: the test's own thread.

#ifndef FIRNKV_TESTS_PROCESS_PROCESS_CLUSTER_H_
#define FIRNKV_TESTS_PROCESS_PROCESS_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "tests/process/child_process.h"
#include "tests/process/daemon.h"
#include "tests/process/users.h"

namespace firnkv {

// A folder that goes with this value; every user may enter it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  // A folder in it that belongs to `uid`; made where it is missing.
  std::string FolderOf(std::uint32_t uid, const std::string& name) const;
  std::string WriteFile(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

// "127.x.y.z", another one at each call and in each process.
std::string OwnLoopbackAddress();

class HostNetwork;

class ProcessCluster {
 public:
  struct Options {
    int nodes = 2;
    std::uint64_t dram_bytes = 64 * kMiB;
    std::uint64_t region_bytes = 4 * kMiB;
    // Without, the nodes serve themselves only, as tenant `default`.
    bool uid_map = true;
    std::vector<std::string> catalog_arguments;
    std::vector<std::string> node_arguments;
    // The nodes are in the cgroup of this cgroup.procs; empty: in the test's.
    std::string cgroup_file = {};
    // Host 1 is the catalog's, 2 that of node 1, and so on; outlives the
    // cluster. Null: all are on one loopback address.
    const HostNetwork* network = nullptr;
  };

  explicit ProcessCluster(const Options& options);

  // Starts all of it and makes the tenants `alice` and `bob`.
  void Start();

  Daemon& catalog() { return *catalog_; }
  // Counted from 1.
  Daemon& node(int number) { return *nodes_[number - 1]; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  std::string socket(int number) const;
  std::string control_address(int number) const;
  std::string catalog_address() const { return Host(0) + ":7400"; }
  // In which the node and its clients are; empty: in the test's own. That of a
  // number beyond the last node's has none.
  std::string network_file(int number) const;
  const ScratchFolder& scratch() const { return scratch_; }
  std::string secret_file() const;
  // A copy of it that only `uid` may read.
  std::string SecretFileOf(std::uint32_t uid) const;

  // The CLI as `uid`, at node 1. Root is the administrator and has no node.
  Finished Cli(std::uint32_t uid, std::vector<std::string> arguments) const;
  Finished Admin(std::vector<std::string> arguments) const {
    return Cli(0, std::move(arguments));
  }

  // A token of the catalog's for the tenant, in hex, good for a day.
  std::string TokenOf(const std::string& tenant) const;

  // Node `number` has nothing under way: no lease, no reservation, no slot
  // reserved or retiring, no transfer.
  bool NodeComesToRest(int number);
  // All nodes are registered.
  bool NodesAreRegistered();
  double SumOverNodes(const std::string& metric);

 private:
  void MakeCatalog();
  void MakeNode(int number);
  // Its address; 0: the catalog's.
  std::string Host(int number) const;

  const Options options_;
  const std::string host_;
  const ScratchFolder scratch_;
  std::unique_ptr<Daemon> catalog_;
  std::vector<std::unique_ptr<Daemon>> nodes_;
};

// Skips itself where the tests may not change users; prints the daemons' logs
// where a test has failed.
class ProcessTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Made and started.
  ProcessCluster& StartCluster(const ProcessCluster::Options& options);
  ProcessCluster& cluster() { return *cluster_; }

  std::unique_ptr<ProcessCluster> cluster_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_PROCESS_CLUSTER_H_
