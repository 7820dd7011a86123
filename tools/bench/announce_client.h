// A node as the catalog sees one, and nothing more: it registers, announces
// keys that no bytes stand behind, and renews its lease. The catalog under
// measure is a real firnkv-catalog at the other end of gRPC.
//
// Threading. One thread.

#ifndef FIRNKV_TOOLS_BENCH_ANNOUNCE_CLIENT_H_
#define FIRNKV_TOOLS_BENCH_ANNOUNCE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/transport/grpc_channel.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/random.h"
#include "proto/base/token.h"
#include "tools/bench/command_loop.h"
#include "tools/firnkv/admin_client.h"

namespace firnkv {

namespace v1 {
class AnnounceRequest;
}  // namespace v1

class AnnounceClient {
 public:
  // register catalog=ADDRESS secret=FILE name=NAMESPACE bytes=BLOCKBYTES:
  // as a node of the tenant `default`, whose inventory is empty
  absl::StatusOr<Counts> Register(const Command& command);
  // announce millis= | upto=TOTAL: keys that are new, in full batches, each
  // sent when the one before it was answered, and made while that one is under
  // way
  absl::StatusOr<Counts> Announce(const Command& command);
  // keep: renews the lease
  absl::StatusOr<Counts> Keep(const Command& command);

 private:
  // The cluster of the catalog, and a token for it.
  absl::Status Meet(Role role);
  absl::Status OpenNamespace(const std::string& name, std::uint64_t bytes);
  absl::Status RegisterNode();
  // A batch without its number, of the next keys.
  v1::AnnounceRequest Prepare(int kind, std::uint64_t keys);
  absl::Status Send(v1::AnnounceRequest request);

  SystemClock clock_;
  SystemRandom random_;
  GrpcConnector connector_;
  std::unique_ptr<AdminClient> catalog_;
  ClusterSecret secret_;
  ClusterId cluster_;
  TenantId tenant_;

  std::string name_;
  NamespaceId name_space_;
  std::uint64_t clear_epoch_ = 0;
  std::uint64_t block_bytes_ = 0;

  NodeId node_;
  std::uint64_t epoch_ = 0;
  RegistrationId registration_;
  std::uint64_t batches_ = 0;
  // The number of the next key.
  std::uint64_t next_key_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_BENCH_ANNOUNCE_CLIENT_H_
