#include "tests/support/cluster.h"

#include <utility>

#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kFirstUid = 2000;

std::vector<std::string> UidMap(const std::vector<std::string>& tenants) {
  std::vector<std::string> map;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    map.push_back(StrCat(kFirstUid + i, "=", tenants[i]));
  }
  return map;
}

}  // namespace

SimCluster::SimCluster(const Options& options)
    : options_(options),
      world_(options.seed),
      secret_(ClusterSecret::Make(world_.executor()->random())) {
  world_.executor()->set_tracing(options.tracing);
  world_.set_drift(options.drift);
  catalog_ = std::make_unique<SimCatalog>(&world_, secret_);
  admin_ = std::make_unique<SimAdmin>(&world_, SimCatalog::kAddress, secret_);
  for (int i = 1; i <= options.nodes; ++i) {
    nodes_.push_back(std::make_unique<SimNode>(
        &world_, SimNode::Options{.name = StrCat("node", i),
                                  .secret = secret_,
                                  .catalog_address = SimCatalog::kAddress,
                                  .pool_bytes = options.pool_bytes,
                                  .region_bytes = options.region_bytes,
                                  .uid_map = UidMap(options.tenants)}));
    for (std::size_t t = 0; t < options.tenants.size(); ++t) {
      SimWorker::Options worker;
      worker.name = StrCat(options.tenants[t], i);
      worker.host = StrCat("node", i);
      worker.uid = kFirstUid + static_cast<std::uint32_t>(t);
      worker.client.socket_path = nodes_.back()->socket_path();
      worker.client.client_name = worker.name;
      worker.client.staging_bytes = kMiB;
      worker.client.shared_bytes = 8 * kMiB;
      worker.client.bounce_bytes = 2 * kMiB;
      worker.client.max_locations = 256;
      // The nodes' uid, which is not the workers' own.
      worker.client.server_uid = 1000;
      // Both ways of calling: frames on the session's socket, and gRPC, which
      // alone can lose and double a message.
      worker.client.call_frames = (i + static_cast<int>(t)) % 2 == 0;
      worker.name_spaces = options.name_spaces;
      workers_.push_back(
          std::make_unique<SimWorker>(&world_, std::move(worker)));
    }
  }
}

SimCluster::~SimCluster() {
  for (const auto& worker : workers_) worker->Crash();
  for (const auto& node : nodes_) node->Crash();
  if (catalog_->running()) catalog_->Crash(SimCatalog::Loss::kNothing);
}

bool SimCluster::EverybodyIsReady() const {
  for (const auto& worker : workers_) {
    if (!worker->ready()) return false;
  }
  return true;
}

bool SimCluster::Start() {
  if (!catalog_->Start().ok()) return false;
  for (const std::string& tenant : options_.tenants) {
    bool made = false;
    admin_->CreateTenant(tenant,
                         [&](absl::Status status) { made = status.ok(); });
    if (!RunUntil([&] { return made; })) return false;
  }
  for (const auto& node : nodes_) {
    if (!node->Start().ok()) return false;
  }
  for (const auto& worker : workers_) worker->Start();
  return RunUntil([this] { return EverybodyIsReady(); });
}

void SimCluster::HealEverything() {
  world_.links()->HealAll();
  world_.links()->quality() = SimLinks::Quality();
  if (!catalog_->running()) {
    if (!catalog_->Start().ok()) return;
  } else {
    catalog_->Resume();
  }
  for (const auto& node : nodes_) {
    if (!node->running()) {
      if (!node->Start().ok()) return;
    } else {
      node->Resume();
    }
  }
  for (const auto& worker : workers_) {
    if (!worker->running()) {
      worker->Start();
    } else {
      worker->Resume();
    }
  }
}

}  // namespace firnkv
