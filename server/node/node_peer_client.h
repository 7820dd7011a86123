// The call that a node makes to another node, in plain types: the client's end
// of NodeService/FetchCopies over a control channel, with a node's token.
//
// Does not know: when to call, what to do with an answer, retries. An answer is
// outside bytes: it is bounded and checked here, and a malformed one is
// INTERNAL.
//
// Threading. Thread-safe. Every `done` runs exactly once, under no lock, maybe
// inside Start; on destruction at the latest, with CANCELLED.
//
// Owned by whoever talks to that node (drainer.h).

#ifndef FIRNKV_SERVER_NODE_NODE_PEER_CLIENT_H_
#define FIRNKV_SERVER_NODE_NODE_PEER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/control_channel.h"
#include "proto/base/id.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"
#include "proto/base/slot_header.h"
#include "server/node/node_credentials.h"

namespace firnkv {

class NodePeerClient {
 public:
  // `credentials` outlives it.
  NodePeerClient(std::unique_ptr<ControlChannel> channel,
                 const NodeCredentials* credentials);
  ~NodePeerClient();

  // A copy that the peer shall take from `source`, as its header says it.
  struct Copy {
    BlockKey key;
    ChainPlace place;
    std::uint64_t length = 0;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  };
  struct FetchCall {
    NodeAddress source;
    NamespaceId name_space;
    // At most kMaxBatchKeys; parents before their children.
    std::vector<Copy> copies;
  };
  struct Fetched {
    // One a copy: kStored, kAlreadyThere, or why not.
    std::vector<Outcome> outcomes;
    absl::Duration retry_after;
  };
  using Done = absl::AnyInvocable<void(absl::StatusOr<Fetched>) &&>;
  // The peer is told an eighth less than `timeout`, so that the outcomes of
  // what it had no time for come back before the call ends.
  void StartFetchCopies(const FetchCall& call, absl::Duration timeout,
                        Done done);

 private:
  const NodeCredentials* const credentials_;
  const std::unique_ptr<ControlChannel> channel_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_PEER_CLIENT_H_
