#include "tests/support/cluster.h"

#include <utility>

#include "client/client.h"
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
  catalog_ = std::make_unique<SimCatalog>(&world_, secret_, options.grace);
  admin_ = std::make_unique<SimAdmin>(&world_, SimCatalog::kAddress, secret_);
  for (int i = 1; i <= options.nodes; ++i) {
    nodes_.push_back(std::make_unique<SimNode>(
        &world_,
        SimNode::Options{.name = StrCat("node", i),
                         .secret = secret_,
                         .catalog_address = SimCatalog::kAddress,
                         .pool_bytes = options.pool_bytes,
                         .region_bytes = options.region_bytes,
                         .uid_map = UidMap(options.tenants),
                         .digest_interval = options.digest_interval,
                         .announcement_entries = options.announcement_entries,
                         .reserved_bytes = options.reserved_bytes}));
    for (std::size_t t = 0; t < options.tenants.size(); ++t) {
      SimWorker::Options worker =
          WorkerOptions(StrCat(options.tenants[t], i), t);
      worker.host = StrCat("node", i);
      worker.client.socket_path = nodes_.back()->socket_path();
      // The nodes' uid, which is not the workers' own.
      worker.client.server_uid = 1000;
      // Both ways of calling: frames on the session's socket, and gRPC, which
      // alone can lose and double a message.
      worker.client.call_frames = (i + static_cast<int>(t)) % 2 == 0;
      workers_.push_back(
          std::make_unique<SimWorker>(&world_, std::move(worker)));
    }
  }
  issued_.resize(options.tenants.size());
  AddRemoteWorkers();
}

SimWorker::Options SimCluster::WorkerOptions(const std::string& name,
                                             std::size_t tenant) const {
  SimWorker::Options worker;
  worker.name = name;
  worker.uid = kFirstUid + static_cast<std::uint32_t>(tenant);
  worker.client.client_name = name;
  worker.client.staging_bytes = kMiB;
  worker.client.shared_bytes = 8 * kMiB;
  worker.client.bounce_bytes = 2 * kMiB;
  worker.client.max_locations = 256;
  worker.name_spaces = options_.name_spaces;
  return worker;
}

void SimCluster::AddRemoteWorkers() {
  for (int i = 0; i < options_.remote_workers; ++i) {
    for (std::size_t t = 0; t < options_.tenants.size(); ++t) {
      SimWorker::Options worker =
          WorkerOptions(StrCat(options_.tenants[t], "away", i), t);
      worker.host = kAway;
      worker.client.socket_path.clear();
      worker.client.catalog_address = SimCatalog::kAddress;
      worker.client.token_source = [this, t] { return TokenOf(t); };
      workers_.push_back(
          std::make_unique<SimWorker>(&world_, std::move(worker)));
    }
  }
}

std::string SimCluster::TokenOf(std::size_t tenant) {
  Issued& issued = issued_[tenant];
  const absl::Time now = admin_->WallNow();
  if (now < issued.until && issued.credentials == admin_->credentials()) {
    return issued.token;
  }
  issued.until = now + kTokenLife / 2;
  issued.credentials = admin_->credentials();
  issued.token = MintToken({.cluster = issued.cluster,
                            .tenant = issued.tenant,
                            .role = Role::kTenant,
                            .session = {},
                            .expires = now + kTokenLife,
                            .credentials = issued.credentials},
                           secret_);
  return issued.token;
}

SimCluster::~SimCluster() {
  for (const auto& worker : workers_) worker->Crash();
  for (const auto& node : nodes_) node->Crash();
  if (catalog_->running()) catalog_->Crash(SimCatalog::Loss::kNothing);
}

bool SimCluster::LocalWorkersAreReady() const {
  for (const auto& worker : workers_) {
    const bool local = !worker->options().client.socket_path.empty();
    if (local && !worker->ready()) return false;
  }
  return true;
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
  for (const auto& worker : workers_) {
    if (!worker->options().client.socket_path.empty()) worker->Start();
  }
  if (!RunUntil([this] { return LocalWorkersAreReady(); })) return false;
  // Who they are is known from the others of their tenant.
  for (int t = 0; t < tenants(); ++t) {
    const Client::About about = Worker(1, t).client()->Describe();
    issued_[t] = Issued{.tenant = about.tenant, .cluster = about.cluster};
  }
  for (const auto& worker : workers_) {
    if (!worker->running()) worker->Start();
  }
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
    if (node->superseded() || node->draining()) node->Crash();
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
