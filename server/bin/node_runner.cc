#include "server/bin/node_runner.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "client/transport/local_channel.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/bin/signals.h"

namespace firnkv {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(2);
constexpr absl::Duration kGrace = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<NodeRunner>> NodeRunner::Start(
    const DaemonOptions& daemon, const NodeOptions& options,
    const CatalogOptions& catalog, Process* process) {
  auto runner = std::unique_ptr<NodeRunner>(new NodeRunner(options, process));
  RETURN_IF_ERROR(runner->StartNode(daemon, catalog));
  return runner;
}

absl::Status NodeRunner::StartNode(const DaemonOptions& daemon,
                                   const CatalogOptions& catalog) {
  const Seams& seams = process_->seams();
  const bool embedded = options_.catalog.empty();
  ASSIGN_OR_RETURN(const ClusterSecret secret,
                   embedded ? ReadOrMakeSecret(SecretFile(daemon), seams.random)
                            : ReadSecret(SecretFile(daemon)));
  ASSIGN_OR_RETURN(
      state_,
      FileNodeState::Open(process_->data().File("node.state"), seams.random));
  Node::Parts parts;
  parts.state = state_.get();
  parts.secret = secret;
  parts.limits = &limits_;
  parts.log = process_->log();
  parts.on_superseded = [this] {
    superseded_ = true;
    EndThisProcess();
  };
  parts.on_drain = [] { EndThisProcess(); };
  if (embedded) {
    CatalogOptions with_version = catalog;
    with_version.version = options_.version;
    ASSIGN_OR_RETURN(
        catalog_, CatalogRunner::Start(daemon, with_version, secret, process_));
    parts.catalog = std::make_unique<LocalChannel>(
        seams.executor, catalog_->catalog()->services());
    parts.cluster = catalog_->catalog()->cluster();
    if (options_.advertise_catalog.empty()) {
      options_.advertise_catalog = catalog_->address();
    }
  }
  RETURN_IF_ERROR(MakeParent(options_.socket));
  node_ = std::make_unique<Node>(options_, seams, std::move(parts));
  GrpcServer::Options server;
  server.addresses = {options_.control,
                      StrCat("unix:", options_.socket, ".control")};
  // A Client has one; some more are for those who look at the node.
  constexpr std::size_t kLookers = 16;
  server.unix_connections = {
      .most = static_cast<std::size_t>(options_.max_sessions) + kLookers,
      .most_a_uid =
          static_cast<std::size_t>(options_.max_sessions_a_uid) + kLookers,
      .turned_away = node_->refused_call_connections()};
  ASSIGN_OR_RETURN(server_, GrpcServer::Start(server, node_->services()));
  control_address_ = server_->addresses()[0];
  RETURN_IF_ERROR(node_->Start(control_address_));
  node_->DescribeMetrics(process_->metrics());
  return absl::OkStatus();
}

NodeRunner::~NodeRunner() {
  if (server_ != nullptr) server_->Shutdown(kGrace);
  server_.reset();
  node_.reset();
  if (catalog_ != nullptr) catalog_->Stop(kGrace);
}

absl::Status NodeRunner::WaitForLink(absl::Duration patience) {
  const Seams& seams = process_->seams();
  const BootTime until = seams.clock->Now() + patience;
  while (!node_->settled() && seams.clock->Now() < until) {
    absl::Notification later;
    seams.executor->PostAt(seams.clock->Now() + kPoll,
                           [&later] { later.Notify(); });
    later.WaitForNotification();
  }
  return node_->settled() ? absl::OkStatus() : node_->link_failure();
}

std::string NodeRunner::catalog_text(const absl::Status& link) const {
  const std::string where = catalog_ != nullptr
                                ? StrCat(catalog_->address(), " (embedded)")
                                : options_.catalog;
  if (node_->settled()) return StrCat(where, ", registered");
  return StrCat(where, ", not registered yet: ",
                link.ok() ? "still waiting" : ToStd(link.message()),
                "; the node goes on trying");
}

std::string NodeRunner::UnhealthyBecause() const {
  const std::string failure = FailedBecause();
  if (!failure.empty()) return failure;
  const bool drains = node_->drain().state != DrainState::kServing;
  return draining_ || drains ? "draining" : "";
}

absl::Duration NodeRunner::EndingTime() const {
  const DrainReport drain = node_->drain();
  switch (drain.state) {
    case DrainState::kServing:
      return options_.drain_timeout;
    case DrainState::kMoving:
      // Somebody has no patience for that.
      return std::min(options_.drain_timeout, drain.time_left);
    case DrainState::kEnding:
      return drain.time_left;
  }
  return options_.drain_timeout;
}

std::string NodeRunner::FailedBecause() const {
  if (superseded_) return "another run of this node has taken over";
  if (catalog_ != nullptr && !catalog_->catalog()->health().ok()) {
    return StrCat("the embedded catalog has stopped: ",
                  ToStd(catalog_->catalog()->health().message()));
  }
  return "";
}

void NodeRunner::Drain(absl::Duration timeout) {
  draining_ = true;
  server_->SetServing(false);
  absl::Notification quiet;
  node_->StartDrain(process_->seams().clock->Now() + timeout,
                    [&quiet] { quiet.Notify(); });
  quiet.WaitForNotification();
}

std::string WhoIsServed(const NodeOptions& options) {
  if (!options.uid_map.empty()) {
    return StrCat(options.uid_map.size(), " uids of the uid map");
  }
  return StrCat("tenant default for uid ", options.own_uid);
}

}  // namespace firnkv
