// Calls of the catalog, as plain values. The first call on an address makes the
// handshake: a catalog of another cluster, protocol or key recipe is refused.
// While the catalog is away, calls fail at once for a backoff's delay: a read
// must not wait for nobody.
//
// Threading. All methods may be called from any thread. Each `done` runs
// exactly once, also inside the call.

#ifndef FIRNKV_CLIENT_CATALOG_CLIENT_H_
#define FIRNKV_CLIENT_CATALOG_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/control_link.h"
#include "client/counters.h"
#include "client/location_cache.h"
#include "client/namespace.h"
#include "client/node_client.h"
#include "client/retry.h"
#include "client/transport/seams.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/namespace_facts.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"

namespace firnkv {

class CatalogClient {
 public:
  // `seams` and `counters` outlive the client; `token` is asked for each call.
  CatalogClient(const Seams* seams, ClientCounters* counters,
                std::function<std::string()> token);
  ~CatalogClient();  // Close().

  // Where the catalog is, and the cluster that it must be of (zero: any, then
  // the first one met).
  void SetAddress(const std::string& address, ClusterId cluster)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Close();

  // Of the catalog that was met; zero before.
  ClusterId cluster() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::string address() const ABSL_LOCKS_EXCLUDED(mutex_);

  struct Opened {
    NamespaceFacts facts;
    bool created = false;
  };
  void StartOpenNamespace(
      const CallContext& context, const OpenNamespaceRequest& request,
      absl::AnyInvocable<void(absl::StatusOr<Opened>) &&> done);

  struct LocateCall {
    NamespaceId name_space;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    std::vector<BlockKey> keys;
    std::vector<BlockKey> anchors;  // One a key.
    bool leading_run = false;
  };
  struct LocateAnswer {
    struct Found {
      Outcome outcome = Outcome::kUnset;
      Locations locations;  // Of a hit; at least one.
    };
    std::vector<Found> found;  // One a key.
    std::vector<NodeAddress> nodes;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  };
  void StartLocate(
      const CallContext& context, const LocateCall& call,
      absl::AnyInvocable<void(absl::StatusOr<LocateAnswer>) &&> done);

  // Where a writer without a local node writes.
  struct PlaceCall {
    NamespaceId name_space;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    struct Block {
      BlockKey key;
      BlockKey parent;
      BlockKey anchor;
      std::uint64_t length = 0;
    };
    // In chain order.
    std::vector<Block> blocks;
    // That cannot be reached just now.
    std::vector<NodeId> excluded;
  };
  struct PlaceAnswer {
    // Into `nodes`, one a block.
    std::vector<std::uint32_t> places;
    std::vector<NodeAddress> nodes;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  };
  void StartPlace(
      const CallContext& context, const PlaceCall& call,
      absl::AnyInvocable<void(absl::StatusOr<PlaceAnswer>) &&> done);

  struct Removed {
    std::vector<Outcome> outcomes;  // One a key.
    std::uint64_t pending = 0;
  };
  void StartRemove(const CallContext& context, NamespaceId name_space,
                   const std::vector<BlockKey>& keys,
                   absl::AnyInvocable<void(absl::StatusOr<Removed>) &&> done);

 private:
  enum class State : std::uint8_t { kNew, kConnecting, kMet };
  using Ready = absl::AnyInvocable<void(const absl::Status&) &&>;

  RequestHeader HeaderFor(const CallContext& context) const;
  // Runs `ready` once the handshake is made, or why it cannot be.
  void WhenMet(const CallContext& context, Ready ready)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnConnected(std::uint64_t attempt, absl::StatusOr<std::string> response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Meet(std::string_view response, const Handshake& ours,
                    ClusterId* cluster) const;
  // Handshake first, then the call; every failure to reach opens the breaker.
  void Call(ControlCall call, const CallContext& context,
            absl::AnyInvocable<std::string() &&> encode, ControlReply done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void NoteReply(const absl::Status& status, absl::Duration waited)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Seams* const seams_;
  const std::function<std::string()> token_;
  ControlLink link_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  // Of the handshake under way: an answer of an earlier one counts no more.
  std::uint64_t attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  ClusterId cluster_ ABSL_GUARDED_BY(mutex_);
  std::vector<Ready> waiting_ ABSL_GUARDED_BY(mutex_);
  Breaker breaker_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_CATALOG_CLIENT_H_
