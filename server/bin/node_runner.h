// A node with its gRPC and, where it embeds one, its catalog: what firnkv-node
// starts and drains.

#ifndef FIRNKV_SERVER_BIN_NODE_RUNNER_H_
#define FIRNKV_SERVER_BIN_NODE_RUNNER_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/grpc_server.h"
#include "server/bin/catalog_runner.h"
#include "server/bin/daemon_options.h"
#include "server/bin/process.h"
#include "server/node/node.h"
#include "server/node/node_options.h"
#include "server/node/node_state.h"
#include "server/tier/memory_limits.h"

namespace firnkv {

class NodeRunner {
 public:
  // `process` outlives the runner; `options` are valid.
  static absl::StatusOr<std::unique_ptr<NodeRunner>> Start(
      const DaemonOptions& daemon, const NodeOptions& options,
      const CatalogOptions& catalog, Process* process);
  // Ends without a drain what Drain has not ended.
  ~NodeRunner();

  Node* node() { return node_.get(); }
  const std::string& control_address() const { return control_address_; }

  // Waits until the node is registered, or says why it is not yet.
  absl::Status WaitForLink(absl::Duration patience);
  // "127.0.0.1:7400 (embedded), registered", or what is wrong.
  std::string catalog_text(const absl::Status& link) const;

  // Empty: it serves.
  std::string UnhealthyBecause() const;
  // As above, but that it drains is no failure.
  std::string FailedBecause() const;

  // How long its end may take: what an administrator asked for, else
  // node.drain_timeout.
  absl::Duration EndingTime() const;
  // Refuses new work, waits at most `timeout` for what is in flight.
  void Drain(absl::Duration timeout);

 private:
  NodeRunner(const NodeOptions& options, Process* process)
      : options_(options), process_(process) {}
  absl::Status StartNode(const DaemonOptions& daemon,
                         const CatalogOptions& catalog);

  NodeOptions options_;
  Process* const process_;
  SystemMemoryLimits limits_;
  std::unique_ptr<FileNodeState> state_;
  // Null where the catalog is another process.
  std::unique_ptr<CatalogRunner> catalog_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<GrpcServer> server_;
  std::string control_address_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> superseded_{false};
};

// "tenant default for uid 1000", "3 uids".
std::string WhoIsServed(const NodeOptions& options);

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_NODE_RUNNER_H_
