// A whole Node in a simulated world, with a catalog that the test plays, and
// what a client of it does in a line: connect, write a block, read it.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SERVER_NODE_WHOLE_NODE_H_
#define FIRNKV_TESTS_SERVER_NODE_WHOLE_NODE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/convert.h"
#include "proto/node.pb.h"
#include "server/node/node.h"
#include "tests/server/node/fake_catalog.h"
#include "tests/server/node/node_fixture.h"
#include "tests/server/node/peers.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class WholeNodeTest : public testing::Test {
 protected:
  static constexpr char kCatalogAddress[] = "catalog:7400";
  static constexpr char kSocket[] = "/run/node.sock";
  static constexpr char kSessionGrpc[] = "unix:/run/node.sock.control";
  static constexpr char kTcpGrpc[] = "node:7410";
  static constexpr char kStream[] = "node:7411";
  static constexpr std::uint32_t kNodeUid = 1000;
  static constexpr std::uint32_t kAliceUid = 2001;
  static constexpr std::uint32_t kBobUid = 2002;

  WholeNodeTest();
  ~WholeNodeTest() override;

  NodeOptions DefaultOptions() const;
  // Serves until StopNode; registered on return, unless the catalog is silent.
  void StartNode(const NodeOptions& options);
  void StartNode() { StartNode(DefaultOptions()); }
  void StopNode();

  void RunFor(absl::Duration time) { world_.executor()->RunFor(time); }

  SimMachine* NewClient(const PeerCredentials& credentials);
  SimMachine* NewClient(std::uint32_t uid) {
    return NewClient({.uid = uid, .uid_trusted = true});
  }
  // Says hello and waits for the answer.
  std::unique_ptr<SessionPeer> Connect(SimMachine* machine,
                                       const std::string& token = {});
  std::unique_ptr<SessionPeer> Connect(std::uint32_t uid) {
    return Connect(NewClient(uid));
  }
  std::string TokenOf(Role role, TenantId tenant = {});

  // A header that speaks for the session.
  v1::RequestHeader HeaderOf(SessionId session,
                             absl::Duration remaining = absl::Seconds(5));
  absl::StatusOr<std::string> CallRaw(std::string_view address,
                                      std::string_view method,
                                      std::string request);
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(std::string_view method, const Request& request,
                                std::string_view address = kSessionGrpc) {
    const absl::StatusOr<std::string> bytes =
        CallRaw(address, method, request.SerializeAsString());
    if (!bytes.ok()) return bytes.status();
    Response response;
    CHECK(response.ParseFromString(*bytes));
    return response;
  }

  // Steps of a write and a read, of one block each, as messages to alter.
  v1::ReserveRequest ReserveOf(SessionId session, const NamespaceFacts& facts,
                               std::uint64_t n, std::uint64_t bytes);
  v1::CommitRequest CommitOf(SessionId session, std::uint64_t reservation,
                             std::uint64_t n, std::uint64_t bytes);
  v1::OpenReadRequest OpenOf(SessionId session, const NamespaceFacts& facts,
                             std::uint64_t n);
  // Hands over a staging with the content of block `n` at its start.
  std::shared_ptr<SharedMemory> LendStaging(SessionPeer* session,
                                            std::uint64_t id, std::uint64_t n,
                                            std::uint64_t bytes);
  // Reserve and Commit of block `n`; the outcome of the commit.
  Outcome Write(SessionPeer* session, const NamespaceFacts& facts,
                std::uint64_t n, std::uint64_t bytes = 4096);
  Outcome Read(SessionPeer* session, const NamespaceFacts& facts,
               std::uint64_t n);
  v1::NodeStatusResponse Status();

  SimWorld world_{0};
  ClusterSecret secret_;
  SimMachine* const catalog_machine_;
  FakeCatalog catalog_;
  std::unique_ptr<SimControl::Serving> catalog_serving_;
  const TenantId default_;
  const TenantId alice_;
  const TenantId bob_;
  const NamespaceFacts granite_;  // Alice's.
  MemoryNodeState state_;

  SimMachine* machine_ = nullptr;
  std::unique_ptr<Node> node_;
  bool superseded_ = false;
  int drains_asked_ = 0;
  std::vector<std::unique_ptr<SimControl::Serving>> servings_;
  int clients_ = 0;
  SimMachine* const caller_;
  std::map<std::string, std::unique_ptr<ControlChannel>> channels_;
  std::uint64_t next_staging_ = 1000;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_NODE_WHOLE_NODE_H_
