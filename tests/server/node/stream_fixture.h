// A stream server over a real pool, and peers that connect to it.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SERVER_NODE_STREAM_FIXTURE_H_
#define FIRNKV_TESTS_SERVER_NODE_STREAM_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/node/stream_server.h"
#include "tests/server/node/node_fixture.h"
#include "tests/server/node/peers.h"
#include "tests/support/matchers.h"

namespace firnkv {

class StreamFixture : public NodeFixture {
 protected:
  static constexpr char kAddress[] = "node:7411";

  StreamFixture() { Serve({}); }
  ~StreamFixture() override {
    server_.reset();
    pool_->CancelWaiting();
    copier_.Drain();
  }

  void Serve(StreamServer::Options options) {
    options.connection.node = state_.memory().node;
    options.connection.epoch = NodeEpoch{0xe90c};
    server_.reset();
    checks_ = std::make_unique<CopyChecks>(
        CopyChecks::Options{},
        CopyChecks::Parts{.executor = executor(), .pool = pool_.get()});
    server_ = std::make_unique<StreamServer>(
        options, ServedConnection::Parts{.executor = executor(),
                                         .log = &log_,
                                         .credentials = &credentials_,
                                         .namespaces = &namespaces_,
                                         .pool = pool_.get(),
                                         .checks = checks_.get(),
                                         .metrics = &metrics_,
                                         .writes = &writes_,
                                         .reservations = &reservations_,
                                         .registry = &registry_,
                                         .random = node_->seams().random});
    ASSERT_OK(server_->Listen(node_->seams().network, kAddress));
  }

  std::unique_ptr<RawStreamPeer> Connect() {
    auto peer = std::make_unique<RawStreamPeer>(client_, kAddress);
    EXPECT_TRUE(world_.executor()->RunUntil(
        [&] { return peer->connected() || peer->closed(); }));
    return peer;
  }
  // Alice's, identified.
  std::unique_ptr<RawStreamPeer> ConnectAs(TenantId tenant) {
    auto peer = Connect();
    peer->SendHello(catalog_.cluster, credentials_.SessionToken(tenant, {}));
    EXPECT_TRUE(world_.executor()->RunUntil(
        [&] { return !peer->got.empty() || peer->closed(); }));
    return peer;
  }
  void AwaitEnd(RawStreamPeer* peer, std::uint64_t request) {
    EXPECT_TRUE(world_.executor()->RunUntil(
        [&] { return peer->Ended(request) || peer->closed(); }));
  }
  std::string TokenOf(Role role, ClusterId cluster) {
    return MintToken(
        {.cluster = cluster,
         .tenant = role == Role::kTenant ? alice_ : TenantId{},
         .role = role,
         .session = {},
         .expires = node_->process()->clock()->WallNow() + absl::Minutes(10)},
        secret_);
  }
  static std::vector<BlockKey> Keys(std::uint64_t from, std::uint64_t to) {
    std::vector<BlockKey> keys;
    for (std::uint64_t n = from; n < to; ++n) keys.push_back(KeyOf(n));
    return keys;
  }

  Logger log_{Logger::Options{}, node_->process()->clock(), nullptr};
  NodeMetrics metrics_;
  std::unique_ptr<CopyChecks> checks_;
  SessionRegistry registry_;
  Staging staging_{Staging::Options{}};
  Copier copier_{Copier::Options{},
                 Copier::Parts{.pool = pool_.get(), .executor = executor()}};
  Reservations reservations_{
      Reservations::Options{.max_bytes_a_session = 4 * kMiB,
                            .max_bytes_a_tenant = 6 * kMiB},
      Reservations::Parts{
          .pool = pool_.get(), .copier = &copier_, .executor = executor()}};
  WritePath writes_{WritePath::Parts{.executor = executor(),
                                     .namespaces = &namespaces_,
                                     .registry = &registry_,
                                     .reservations = &reservations_,
                                     .staging = &staging_,
                                     .metrics = &metrics_}};
  std::unique_ptr<StreamServer> server_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_NODE_STREAM_FIXTURE_H_
