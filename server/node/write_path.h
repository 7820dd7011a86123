// Writes of a session, start to end: who may write to the namespace, the
// reservation, the commit, and the wait for what the writer asked for. The
// bytes of a local session come out of its staging, those of a stream
// connection are received into the slot by whoever asks for it
// (stream_writes.h).
//
//     Reserve -> namespace_cache -> reservations (caps) -> dram_pool (room)
//                -> catalog_link (wait_for published, of what is there already)
//     Commit  -> staging (where the bytes are) -> reservations -> copier
//                -> catalog_link (wait_for published)
//     Landing -> reservations -> (received) -> catalog_link
//
// Does not know: the wire, sockets, how bytes are copied.
//
// Threading. Thread-safe: no state of its own but a flag. Every `done` runs
// exactly once, under no lock, maybe inside the call.
//
// Ownership. Owned by Node; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_WRITE_PATH_H_
#define FIRNKV_SERVER_NODE_WRITE_PATH_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "server/node/catalog_link.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_metrics.h"
#include "server/node/reservations.h"
#include "server/node/session_registry.h"
#include "server/node/staging.h"

namespace firnkv {

// What a commit waits for. Numbers are wire format.
enum class CommitWait : std::uint8_t { kLocal = 0, kPublished = 1, kFlash = 2 };

class WritePath {
 public:
  struct Parts {
    Executor* executor = nullptr;
    NamespaceCache* namespaces = nullptr;
    SessionRegistry* registry = nullptr;
    Reservations* reservations = nullptr;
    Staging* staging = nullptr;
    CatalogLink* link = nullptr;
    NodeMetrics* metrics = nullptr;
  };
  explicit WritePath(const Parts& parts) : parts_(parts) {}

  struct ReserveCall {
    LiveSession session;
    NamespaceId name_space;
    ClearEpoch seen = ClearEpoch::kUnknown;
    BootTime deadline;
    std::vector<ReserveBlock> blocks;
    absl::Duration reserve_for;
    // Of blocks that are there already (rule S9).
    CommitWait wait = CommitWait::kLocal;
    EvictionPolicy::ConversationState conversation =
        EvictionPolicy::ConversationState::kUnknown;
  };
  // kUnavailable for every block while the node drains. What is there already
  // is kAlreadyThere once the awaited state is reached; kCongested: it left
  // before, reserve again; kTimedOut. Where other blocks were reserved, they
  // are waited for for half of the time that is left, so that those can still
  // be committed.
  void StartReserve(ReserveCall call, Reservations::ReserveDone done);

  struct CommitCall {
    LiveSession session;
    ReservationId reservation = ReservationId::kNone;
    TrafficClass traffic = TrafficClass::kBackgroundWrite;
    BootTime deadline;
    CommitWait wait = CommitWait::kLocal;
    // Where bytes stand in the session's staging.
    struct Extent {
      std::uint64_t staging = 0;
      std::uint64_t offset = 0;
      std::uint64_t length = 0;
    };
    struct Block {
      std::uint32_t index = 0;
      std::vector<Extent> extents;
      std::vector<std::uint32_t> pieces;
    };
    std::vector<Block> blocks;
  };
  struct CommitAnswer {
    // INVALID_ARGUMENT: nothing was begun.
    absl::Status status;
    std::vector<Outcome> outcomes;  // One a block.
  };
  void StartCommit(CommitCall call,
                   absl::AnyInvocable<void(CommitAnswer) &&> done);

  // One reserved block whose bytes come from afar.
  struct LandingCall {
    LiveSession session;
    ReservationId reservation = ReservationId::kNone;
    std::uint32_t index = 0;
    TrafficClass traffic = TrafficClass::kBackgroundWrite;
    BootTime deadline;
    CommitWait wait = CommitWait::kLocal;
  };
  // `land` runs inside the call if the bytes are wanted: see
  // Reservations::CommitRequest. `done` has one outcome.
  void StartLanding(
      const LandingCall& call,
      absl::AnyInvocable<void(std::vector<Reservations::Landing>) &&> land,
      absl::AnyInvocable<void(CommitAnswer) &&> done);

  void Abort(const LiveSession& session, ReservationId reservation);

  // The node is draining: no new reservations; what is reserved may be
  // committed.
  void StopReserving() { stopped_.store(true, std::memory_order_relaxed); }

 private:
  void AwaitPresent(const std::vector<BlockId>& blocks, BootTime deadline,
                    Reservations::ReserveAnswer answer,
                    Reservations::ReserveDone done);
  void FinishReserve(BootTime started,
                     const Reservations::ReserveAnswer& answer);
  void Commit(Reservations::CommitRequest request, CommitWait wait,
              BootTime started, absl::AnyInvocable<void(CommitAnswer) &&> done);
  void AwaitPublished(Reservations::CommitAnswer committed, BootTime deadline,
                      absl::AnyInvocable<void(CommitAnswer) &&> done);
  void FinishCommit(BootTime started, const CommitAnswer& answer);

  const Parts parts_;
  // Relaxed: a reservation more or less does not matter to a drain.
  std::atomic<bool> stopped_{false};
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_WRITE_PATH_H_
