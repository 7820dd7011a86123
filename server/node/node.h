// Node: owns every part of a cache node; wiring and nothing else.
//
//     Node node(options, seams, std::move(parts));
//     serve node.services() on "unix:" + socket + ".control" and on TCP;
//     RETURN_IF_ERROR(node.Start(control_address));
//     ...
//     node.StartDrain(deadline, [] { ... });   // Refuses new writes, leaves.
//     end the serving of services();           // Then destroy the node.
//
// It serves from Start on, with or without a catalog (catalog_link.h): local
// sessions need to have met a cluster once.
//
// Threading. Thread-safe, but for Start and the destructor.
//
// Ownership. Seams and what Parts point to outlive the node.

#ifndef FIRNKV_SERVER_NODE_NODE_H_
#define FIRNKV_SERVER_NODE_NODE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client/transport/control_channel.h"
#include "client/transport/seams.h"
#include "proto/base/executor.h"
#include "proto/base/node_address.h"
#include "proto/base/slot_header.h"
#include "proto/base/token.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/node/announcement_log.h"
#include "server/node/catalog_link.h"
#include "server/node/copier.h"
#include "server/node/copy_checks.h"
#include "server/node/copy_fetcher.h"
#include "server/node/drainer.h"
#include "server/node/housekeeper.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_catalog_client.h"
#include "server/node/node_credentials.h"
#include "server/node/node_metrics.h"
#include "server/node/node_options.h"
#include "server/node/node_service.h"
#include "server/node/node_state.h"
#include "server/node/promoter.h"
#include "server/node/read_path.h"
#include "server/node/region_notices.h"
#include "server/node/reservations.h"
#include "server/node/session_listener.h"
#include "server/node/session_registry.h"
#include "server/node/staging.h"
#include "server/node/stream_server.h"
#include "server/node/tenant_directory.h"
#include "server/node/write_path.h"
#include "server/tier/dram_pool.h"
#include "server/tier/memory_limits.h"

namespace firnkv {

class Node {
 public:
  struct Parts {
    // Of this node's data directory, whose lock the caller holds.
    NodeState* state = nullptr;
    // Null: seams.control connects to options.catalog.
    std::unique_ptr<ControlChannel> catalog;
    ClusterSecret secret;
    // Of an embedded catalog; zero: what the state remembers, else what the
    // catalog says.
    ClusterId cluster;
    // Null: no limit but the options'.
    const MemoryLimits* limits = nullptr;
    // Null: nothing is logged.
    Logger* log = nullptr;
    // Run as tasks; null: nothing. Another run has taken over, this one serves
    // no more; an administrator wants this run to end, and what was to move to
    // other nodes before has moved: StartDrain within drain().time_left.
    absl::AnyInvocable<void()> on_superseded;
    absl::AnyInvocable<void()> on_drain;
  };

  // `options` must be valid.
  Node(const NodeOptions& options, const Seams& seams, Parts parts);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  // Listens, and begins to register. `control_address` is where services() are
  // served over TCP. On failure: destroy the node.
  absl::Status Start(const std::string& control_address);

  // Handlers for whoever carries control calls; alive as long as the node.
  std::vector<ControlService*> services() { return {service_.get()}; }
  // For them: connections that they refused by a cap. Alive as long.
  Counter* refused_call_connections() {
    return &metrics_.refused_call_connections;
  }

  // The short end, as of SIGTERM: no new reservations and sessions from now on
  // and no moves any more; once no write is under way this run leaves the
  // catalog, which forgets at once what it had. `done` runs as a task, once
  // nothing is in flight or at `deadline`; at most one drain at a time. Readers
  // are served until then.
  void StartDrain(BootTime deadline, absl::AnyInvocable<void() &&> done);
  // NodeService's Drain, of an administrator: moves first if the plan says so,
  // then on_drain. FAILED_PRECONDITION where it is to move and drains already.
  absl::Status AskDrain(const DrainPlan& plan);
  // How far an administrator's drain, or this one, is.
  DrainReport drain() const { return drainer_->report(); }

  // Who and where this run is; complete after Start.
  const NodeAddress& address() const { return address_; }
  CatalogLink::State link_state() const { return link_->state(); }
  // Why it is not registered; OK if it is.
  absl::Status link_failure() const { return link_->last_failure(); }
  // Registered, and the catalog knows all that is here.
  bool settled() const { return link_->settled(); }
  PoolSnapshot pool() const { return pool_->Snapshot(); }
  // Runs of blocks that come, or wait to come, from other nodes.
  std::size_t copies_under_way() const { return copies_->runs(); }
  std::size_t descriptors_in_flight() const { return descriptors_.size(); }
  // Every copy that can be read now: a pass over the whole pool, for whoever
  // compares it with the catalog's index.
  std::vector<SlotHeader> Residents() const;
  // `firnkv node set-dram`.
  void SetDramTarget(std::uint64_t bytes) { pool_->SetTarget(bytes); }

  void DescribeMetrics(MetricList* list) const;

 private:
  void MakePool();
  void MakePaths();
  void MakeCopies();
  void MakeStreams();
  void MakeServers();
  void OnSuperseded();
  void EndAsked();
  // Nothing that a writer waits for is under way, and the catalog was told.
  bool WritesAreOver() const;
  bool AllIsQuiet() const;
  void Await(bool (Node::*over)() const, BootTime deadline,
             absl::AnyInvocable<void() &&> done);
  void LogDrained(const absl::Status& left) const;

  const NodeOptions options_;
  const Seams seams_;
  Parts parts_;
  // Used where the caller gave none.
  Logger silent_;
  Logger* const log_;
  NodeAddress address_;

  // In the order of their dependence: what stands below is destroyed first.
  NodeMetrics metrics_;
  NodeCredentials credentials_;
  AnnouncementLog announcements_;
  RegionNotices notices_;
  std::unique_ptr<DramPool> pool_;
  SessionRegistry registry_;
  std::unique_ptr<NodeCatalogClient> catalog_;
  std::unique_ptr<TenantDirectory> tenants_;
  std::unique_ptr<NamespaceCache> namespaces_;
  std::unique_ptr<CopyChecks> checks_;
  std::unique_ptr<StreamServer> streams_;
  std::unique_ptr<Copier> copier_;
  std::unique_ptr<Reservations> reservations_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<CatalogLink> link_;
  std::unique_ptr<ReadPath> reads_;
  std::unique_ptr<WritePath> writes_;
  std::unique_ptr<CopyFetcher> copies_;
  std::unique_ptr<Promoter> promoter_;
  DescriptorCounts descriptors_;
  std::unique_ptr<SessionListener> sessions_;
  std::unique_ptr<Housekeeper> housekeeper_;
  std::unique_ptr<Drainer> drainer_;
  std::unique_ptr<NodeService> service_;

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_H_
