#include "server/bin/catalog_runner.h"

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

absl::StatusOr<std::unique_ptr<CatalogRunner>> CatalogRunner::Start(
    const DaemonOptions& daemon, const CatalogOptions& options,
    const ClusterSecret& secret, Process* process) {
  if (!daemon.catalog_plaintext_network &&
      !IsOnThisHost(daemon.catalog_listen)) {
    return absl::InvalidArgumentError(
        StrCat("catalog.listen is ", daemon.catalog_listen,
               ", beyond loopback, where tokens would go in plain text; if "
               "that network is trusted, set catalog.plaintext_network: true"));
  }
  auto runner = std::unique_ptr<CatalogRunner>(new CatalogRunner);
  ASSIGN_OR_RETURN(runner->store_,
                   RocksStore::Open(process->data().File("catalog")));
  runner->catalog_ = std::make_unique<Catalog>(options, runner->store_.get(),
                                               process->seams(), secret);
  RETURN_IF_ERROR(Annotate(runner->catalog_->Start(), "catalog"));
  GrpcServer::Options server;
  server.addresses = {daemon.catalog_listen};
  ASSIGN_OR_RETURN(runner->server_,
                   GrpcServer::Start(server, runner->catalog_->services()));
  runner->catalog_->Describe(process->metrics());
  return runner;
}

CatalogRunner::~CatalogRunner() { Stop(absl::ZeroDuration()); }

void CatalogRunner::Stop(absl::Duration grace) {
  if (catalog_ == nullptr) return;
  // The catalog first: what waits in it is answered, so that the server has
  // nothing left to wait for.
  if (server_ != nullptr) server_->SetServing(false);
  catalog_->Stop();
  if (server_ != nullptr) server_->Shutdown(grace);
  server_.reset();
  catalog_.reset();
  store_.reset();
}

}  // namespace firnkv
