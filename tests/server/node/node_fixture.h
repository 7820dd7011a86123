// What the tests of a node's parts stand on: a simulated world with a catalog
// that the test plays, one node process with the parts below everything else,
// and peers on hosts of their own.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SERVER_NODE_NODE_FIXTURE_H_
#define FIRNKV_TESTS_SERVER_NODE_NODE_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/token.h"
#include "server/node/announcement_log.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_catalog_client.h"
#include "server/node/node_credentials.h"
#include "server/node/node_state.h"
#include "server/tier/dram_pool.h"
#include "tests/server/node/fake_catalog.h"
#include "tests/support/sim_world.h"

namespace firnkv {

// What a data directory remembers, in memory. Can be told to fail.
class MemoryNodeState : public NodeState {
 public:
  explicit MemoryNodeState(NodeId node) { memory_.node = node; }
  const NodeMemory& memory() const override { return memory_; }
  absl::Status Save(const NodeMemory& memory) override {
    if (!failure.ok()) return failure;
    memory_ = memory;
    ++saves;
    return absl::OkStatus();
  }
  absl::Status failure;
  int saves = 0;

 private:
  NodeMemory memory_;
};

BlockKey KeyOf(std::uint64_t n);
// Deterministic content of block `n`.
std::vector<std::byte> ContentOf(std::uint64_t n, std::size_t bytes);

class NodeFixture : public testing::Test {
 protected:
  static constexpr char kCatalogAddress[] = "catalog:7400";

  NodeFixture();
  ~NodeFixture() override;

  // Stores block `n` of `facts` in the pool.
  Generation Store(const NamespaceFacts& facts, std::uint64_t n,
                   std::size_t bytes = 4096);
  // The same, at that place of a chain.
  Generation StoreAt(const NamespaceFacts& facts, std::uint64_t n,
                     const ChainPlace& place, std::size_t bytes = 4096);
  bool Holds(const NamespaceFacts& facts, std::uint64_t n);

  void RunFor(absl::Duration time) { world_.executor()->RunFor(time); }
  Executor* executor() { return node_->process(); }
  BootTime Now() const { return node_->process()->clock()->Now(); }
  BootTime In(absl::Duration time) const { return Now() + time; }

  SimWorld world_{0};
  ClusterSecret secret_;
  SimMachine* const catalog_machine_;
  SimMachine* const node_;
  SimMachine* const client_;
  FakeCatalog catalog_;
  std::unique_ptr<SimControl::Serving> catalog_serving_;
  const TenantId alice_;
  const TenantId bob_;
  const NamespaceFacts granite_;

  MemoryNodeState state_;
  NodeCredentials credentials_;
  AnnouncementLog announcements_;
  std::unique_ptr<DramPool> pool_;
  NodeCatalogClient catalog_client_;
  std::vector<NamespaceId> changed_;
  NamespaceCache namespaces_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_NODE_NODE_FIXTURE_H_
