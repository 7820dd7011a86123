// A whole cluster in one thread: the real Catalog, Nodes and Clients over fakes
// and virtual time, from one seed. Tests speak to it in verbs:
//
//     SimCluster cluster({.seed = 7, .name_spaces = {chat}});
//     ASSERT_TRUE(cluster.Start());
//     cluster.Node(1).Crash();
//     cluster.Partition("node2", "catalog");
//     cluster.RunFor(absl::Seconds(20));
//     cluster.HealEverything();
//
// Nodes are numbered from 1 and stand on hosts of their names; on each host
// there is a worker of every tenant. On host "away" there is no node, and
// perhaps some workers that work through the others'.
//
// Threading. One thread only.
//
// Ownership. Owns everything.

#ifndef FIRNKV_TESTS_SUPPORT_CLUSTER_H_
#define FIRNKV_TESTS_SUPPORT_CLUSTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "client/namespace.h"
#include "proto/base/bytes.h"
#include "proto/base/id.h"
#include "proto/base/token.h"
#include "tests/support/sim_admin.h"
#include "tests/support/sim_catalog.h"
#include "tests/support/sim_node.h"
#include "tests/support/sim_worker.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class SimCluster {
 public:
  // Where workers without a local node are.
  static constexpr char kAway[] = "away";

  struct Options {
    std::uint64_t seed = 1;
    int nodes = 3;
    std::vector<std::string> tenants = {"alice", "bob"};
    // Small, so that slots are reused all the time.
    std::uint64_t pool_bytes = 3 * kMiB;
    std::uint64_t region_bytes = kMiB;
    // Workers without a local node, of each tenant.
    int remote_workers = 0;
    // Opened by every worker; equal for all tenants.
    std::vector<OpenNamespaceRequest> name_spaces;
    // Of CatalogOptions and NodeOptions; zero is their default.
    absl::Duration grace;
    absl::Duration digest_interval;
    std::size_t announcement_entries = 0;
    std::uint64_t reserved_bytes = 0;
    // Clocks that started at other moments, and run apart by up to this many
    // parts per million.
    std::uint64_t drift = 0;
    bool tracing = false;
  };

  explicit SimCluster(const Options& options);
  ~SimCluster();

  // Everything up, tenants made, every worker ready. False if that did not
  // come about within two minutes of virtual time.
  bool Start();

  SimCatalog& Catalog() { return *catalog_; }
  SimAdmin& Admin() { return *admin_; }
  // From 1.
  SimNode& Node(int number) { return *nodes_[number - 1]; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  // Tenants are numbered from 0, as in the options.
  SimWorker& Worker(int node, int tenant) {
    return *workers_[(node - 1) * options_.tenants.size() + tenant];
  }
  // One without a local node.
  SimWorker& RemoteWorker(int tenant) {
    return *workers_[options_.nodes * options_.tenants.size() + tenant];
  }
  // Those without a local node last.
  const std::vector<std::unique_ptr<SimWorker>>& workers() const {
    return workers_;
  }
  int tenants() const { return static_cast<int>(options_.tenants.size()); }

  // Between hosts: "node1", "catalog", "admin", "away".
  void Partition(std::string_view a, std::string_view b) {
    world_.links()->Cut(a, b);
  }
  void Heal(std::string_view a, std::string_view b) {
    world_.links()->Heal(a, b);
  }
  // The network is whole and quiet, whoever was paused goes on, whoever
  // crashed, was superseded or is ending runs again.
  void HealEverything();

  void RunFor(absl::Duration time) { world_.executor()->RunFor(time); }
  bool RunUntil(const std::function<bool()>& condition,
                absl::Duration limit = absl::Minutes(2)) {
    return world_.executor()->RunUntil(condition, limit);
  }
  bool EverybodyIsReady() const;

  SimWorld* world() { return &world_; }
  SimExecutor* executor() { return world_.executor(); }
  const Options& options() const { return options_; }
  const ClusterSecret& secret() const { return secret_; }

 private:
  SimWorker::Options WorkerOptions(const std::string& name,
                                   std::size_t tenant) const;
  void AddRemoteWorkers();
  // As an operator gives it to such a worker: minted anew where the last one
  // ends soon, or was outdated.
  std::string TokenOf(std::size_t tenant);
  bool LocalWorkersAreReady() const;

  const Options options_;
  SimWorld world_;
  const ClusterSecret secret_;
  std::unique_ptr<SimCatalog> catalog_;
  std::unique_ptr<SimAdmin> admin_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  // Of one tenant, for workers without a local node.
  struct Issued {
    TenantId tenant;
    ClusterId cluster;
    std::string token;
    absl::Time until;
    std::uint64_t credentials = 0;
  };
  std::vector<Issued> issued_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_CLUSTER_H_
