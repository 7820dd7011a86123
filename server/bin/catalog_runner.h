// A catalog with its store and its gRPC, for a process of its own or within a
// node's.

#ifndef FIRNKV_SERVER_BIN_CATALOG_RUNNER_H_
#define FIRNKV_SERVER_BIN_CATALOG_RUNNER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/token.h"
#include "server/base/grpc_server.h"
#include "server/bin/daemon_options.h"
#include "server/bin/process.h"
#include "server/catalog/catalog.h"
#include "server/catalog/catalog_options.h"
#include "server/catalog/rocks_store.h"

namespace firnkv {

class CatalogRunner {
 public:
  // Opens the store in the data directory, starts the catalog, serves it.
  // `process` outlives the runner.
  static absl::StatusOr<std::unique_ptr<CatalogRunner>> Start(
      const DaemonOptions& daemon, const CatalogOptions& options,
      const ClusterSecret& secret, Process* process);
  ~CatalogRunner();

  Catalog* catalog() const { return catalog_.get(); }
  const std::string& address() const { return server_->addresses()[0]; }

  // Ends calls within `grace`.
  void Stop(absl::Duration grace);

 private:
  CatalogRunner() = default;
  std::unique_ptr<RocksStore> store_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BIN_CATALOG_RUNNER_H_
