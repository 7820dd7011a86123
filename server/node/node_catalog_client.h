// The calls that a node makes to the catalog, in plain types: the client stub
// of CatalogService over a control channel.
//
// Does not know: when to call, what to do with an answer, retries. An answer is
// outside bytes: it is bounded and checked here, and a malformed one is
// INTERNAL.
//
// Threading. Thread-safe. Every `done` runs exactly once, under no lock, maybe
// inside Start.
//
// Owned by Node. Callers hold a pointer; Close before any of them is destroyed.

#ifndef FIRNKV_SERVER_NODE_NODE_CATALOG_CLIENT_H_
#define FIRNKV_SERVER_NODE_NODE_CATALOG_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/control_channel.h"
#include "proto/base/id.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "server/node/announcement_log.h"
#include "server/node/node_credentials.h"

namespace firnkv {

class NodeCatalogClient {
 public:
  template <typename Answer>
  using Done = absl::AnyInvocable<void(absl::StatusOr<Answer>) &&>;

  // `credentials` must outlive the client.
  NodeCatalogClient(std::unique_ptr<ControlChannel> channel,
                    const NodeCredentials* credentials);
  ~NodeCatalogClient();

  // Ends what is outstanding with CANCELLED; every `done` has run on return.
  // Calls from then on end so at once. Only once no other thread can start one.
  void Close();

  // Which cluster is this? The one call without a token.
  void StartConnect(absl::Duration timeout, Done<ClusterId> done);

  struct RegisterCall {
    NodeAddress address;
    NodeEpoch predecessor = NodeEpoch::kNone;
    std::uint64_t dram_bytes = 0;
    Incarnation seen;
    std::string version;
  };
  struct Registered {
    RegistrationId registration;
    absl::Duration lease;
    Incarnation incarnation;
    ClusterId cluster;
    std::uint64_t namespace_cursor = 0;
    // What this run announced before is still there: no inventory is due.
    struct Kept {
      RegistrationId registration;
      // Its last batch that the catalog has.
      std::uint64_t applied = 0;
    };
    std::optional<Kept> kept;
  };
  void StartRegister(const RegisterCall& call, absl::Duration timeout,
                     Done<Registered> done);

  struct KeepAliveCall {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    RegistrationId registration;
    std::uint64_t namespace_cursor = 0;
    std::uint64_t dram_used_bytes = 0;
    std::uint64_t dram_bytes = 0;
    std::uint64_t blocks = 0;
    std::uint64_t removals_done = 0;
    // The last batch whose answer is here: the catalog may have lost it.
    std::uint64_t applied = 0;
    // Changes up to here are behind every read that goes on (rule C4).
    std::uint64_t drained_cursor = 0;
    // As in RegisterCall.
    Incarnation seen;
  };
  // A copy of this node that the catalog wants gone.
  struct Removal {
    BlockId block;
    Generation generation = Generation::kNone;
  };
  struct KeptAlive {
    absl::Duration lease;
    Incarnation incarnation;
    std::vector<NamespaceFacts> changed;
    std::uint64_t namespace_cursor = 0;
    std::vector<Removal> removals;
    // To be acknowledged by `removals_done` once they have been done.
    std::uint64_t removals_number = 0;
  };
  void StartKeepAlive(const KeepAliveCall& call, absl::Duration timeout,
                      Done<KeptAlive> done);

  // This run ends. NOT_FOUND: that registration is not the node's last, or its
  // lease is over.
  struct UnregisterCall {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    RegistrationId registration;
  };
  struct Unregistered {};
  void StartUnregister(const UnregisterCall& call, absl::Duration timeout,
                       Done<Unregistered> done);

  // Another node that is alive, and how full it said it is.
  struct Peer {
    NodeAddress address;
    std::uint64_t dram_bytes = 0;
    std::uint64_t dram_used_bytes = 0;
  };
  void StartListPeers(NodeId asker, absl::Duration timeout,
                      Done<std::vector<Peer>> done);

  // Numbers are those of AnnounceRequest::Kind.
  enum class BatchKind : std::uint8_t {
    kEvents = 0,
    kInventoryBegin = 1,
    kInventoryPart = 2,
    kInventoryEnd = 3,
    kRepair = 4,
  };
  struct AnnounceCall {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    RegistrationId registration;
    std::uint64_t number = 0;
    BatchKind kind = BatchKind::kEvents;
    // At most kMaxAnnouncementEntries.
    std::vector<AnnouncedEntry> entries;
    // Of a repair.
    std::vector<std::uint32_t> buckets;
  };
  // An entry that the catalog did not take, by its index in the batch.
  struct Refusal {
    std::size_t index = 0;
    Outcome outcome = Outcome::kUnset;
  };
  struct Announced {
    std::uint64_t applied = 0;
    std::vector<Refusal> refused;
  };
  void StartAnnounce(const AnnounceCall& call, absl::Duration timeout,
                     Done<Announced> done);

  struct CompareCall {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    RegistrationId registration;
    // The digests are those after this batch.
    std::uint64_t number = 0;
    // Rising. None: `digests` are of all groups; else of their buckets.
    std::vector<std::uint32_t> groups;
    std::vector<std::uint64_t> digests;
  };
  struct Compared {
    // Another than asked: nothing was compared.
    std::uint64_t applied = 0;
    // Groups, or buckets where groups were named, that differ; rising.
    std::vector<std::uint32_t> different;
    bool loading = false;
  };
  void StartCompareDigests(const CompareCall& call, absl::Duration timeout,
                           Done<Compared> done);

  struct LocateCall {
    NamespaceId name_space;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    std::vector<BlockKey> keys;
    // One a key.
    std::vector<BlockKey> anchors;
  };
  // One a key: who has a copy of it in its DRAM, nobody perhaps.
  using Sources = std::vector<std::vector<NodeAddress>>;
  void StartLocate(const LocateCall& call, absl::Duration timeout,
                   Done<Sources> done);

  // Those that exist, in any order.
  void StartDescribeNamespaces(const std::vector<NamespaceId>& name_spaces,
                               absl::Duration timeout,
                               Done<std::vector<NamespaceFacts>> done);

  // Name and id of those that exist.
  using Tenants = std::vector<std::pair<std::string, TenantId>>;
  void StartDescribeTenants(const std::vector<std::string>& names,
                            absl::Duration timeout, Done<Tenants> done);

 private:
  template <typename Response, typename Answer, typename Request>
  void Call(std::string_view method, Request request, absl::Duration timeout,
            absl::StatusOr<Answer> (*decode)(const Response&),
            Done<Answer> done);

  const NodeCredentials* const credentials_;
  std::unique_ptr<ControlChannel> channel_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_NODE_CATALOG_CLIENT_H_
