// Control calls of the local node, as plain values: requests are encoded,
// answers are checked. OpenRead, Release, Reserve and Commit go as frames over
// the session's socket where the node takes them and they fit (frame_calls.h),
// everything else as gRPC. A node that answers nonsense (counts that do not
// match, extents out of bounds, unknown outcomes) gets INTERNAL here, and
// nothing of its answer is used.
//
// What is particular to a session (leases, reservations) carries the session it
// came from, so that a number of an ended one can never be taken for one of the
// next (rule S3).
//
// Threading. All methods may be called from any thread. Each `done` runs
// exactly once, also inside the call.

#ifndef FIRNKV_CLIENT_NODE_CLIENT_H_
#define FIRNKV_CLIENT_NODE_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/control_link.h"
#include "client/counters.h"
#include "client/frame_calls.h"
#include "client/remote_reads_messages.h"
#include "client/transport/seams.h"
#include "client/write.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "proto/base/session_frame.h"

namespace firnkv {

// What every call says besides its own.
struct CallContext {
  BootTime deadline;
  TrafficClass traffic = TrafficClass::kForeground;
  TraceId trace;
};

// A place in a region of the pool (by its serial), or in a staging of the
// client's (by its id).
using Extent = CallExtent;
using Extents = CallExtents;

class NodeClient {
 public:
  // Both outlive the client.
  NodeClient(const Seams* seams, ClientCounters* counters);
  ~NodeClient();  // Close().

  // A session has begun; its calls go to `address`, and as frames over `line`,
  // which is null where its node takes none.
  void Attach(SessionId session, std::string address, CallLine* line,
              std::uint64_t serial) ABSL_LOCKS_EXCLUDED(mutex_);
  // It has ended: its calls end with CANCELLED or UNAVAILABLE, later ones are
  // UNAVAILABLE.
  void Detach() ABSL_LOCKS_EXCLUDED(mutex_);
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whoever blocks waits by them, and what comes over the line is theirs.
  FrameCalls* frames() { return &frames_; }

  // --- Reads.
  struct OpenReadCall {
    NamespaceId name_space;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    std::vector<BlockKey> keys;
    bool leading_run = false;
    // The bytes will be looked at where they lie (rule P9).
    bool for_view = false;
    absl::Duration lease;
  };
  struct Grant {
    Outcome outcome = Outcome::kUnset;
    // Of a hit. The extents' lengths add up to `length`.
    Generation generation = Generation::kNone;
    std::uint64_t length = 0;
    Extents extents;
  };
  struct OpenReadAnswer {
    SessionId session;
    std::vector<Grant> grants;  // One a key.
    absl::Duration retry_after;
    std::uint64_t lease = 0;  // 0: nothing to release.
    absl::Duration lease_time;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  };
  void StartOpenRead(
      const CallContext& context, const OpenReadCall& call,
      absl::AnyInvocable<void(absl::StatusOr<OpenReadAnswer>) &&> done);

  // Sent soon by a task, together with others; nobody waits for it.
  void ReleaseLater(SessionId session, std::uint64_t lease)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The node looks for itself (rule P12); nobody waits for it.
  void ReportCorrupt(SessionId session, NamespaceId name_space, BlockKey key,
                     Generation generation);

  // What a read found at other nodes (remote_reads.h): which of it is here now.
  // Answered once the node has fetched what it wants of it.
  void StartNoteRemoteReads(
      NamespaceId name_space, absl::Span<const RemoteBlock> blocks,
      absl::AnyInvocable<void(absl::StatusOr<std::vector<std::size_t>>) &&>
          done);

  // --- Writes.
  struct ReserveCall {
    NamespaceId name_space;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    struct Block {
      BlockKey key;
      ChainPlace place;
      std::uint64_t length = 0;
    };
    std::vector<Block> blocks;
    absl::Duration reservation;
    // Of blocks that are there already (rule S9).
    WriteWait wait_for = WriteWait::kLocal;
    WriteHint hint;
  };
  struct ReserveAnswer {
    SessionId session;
    // kStored stands for "reserved".
    std::vector<Outcome> outcomes;
    absl::Duration retry_after;
    std::uint64_t reservation = 0;
    absl::Duration reservation_time;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  };
  void StartReserve(
      const CallContext& context, const ReserveCall& call,
      absl::AnyInvocable<void(absl::StatusOr<ReserveAnswer>) &&> done);

  struct CommitCall {
    SessionId session;
    std::uint64_t reservation = 0;
    struct Block {
      std::uint32_t index = 0;  // In the reserve.
      Extents extents;
      std::vector<std::uint32_t> pieces;
    };
    std::vector<Block> blocks;
    WriteWait wait_for = WriteWait::kLocal;
    // How long after the context's deadline an answer is still waited for: it
    // frees staging.
    absl::Duration grace;
  };
  struct CommitAnswer {
    std::vector<Outcome> outcomes;  // One a block of the call.
    absl::Duration retry_after;
  };
  void StartCommit(
      const CallContext& context, const CommitCall& call,
      absl::AnyInvocable<void(absl::StatusOr<CommitAnswer>) &&> done);

  void StartAbort(const CallContext& context, SessionId session,
                  std::uint64_t reservation,
                  absl::AnyInvocable<void(absl::Status) &&> done);

  // --- Lookups.
  struct ExistsCall {
    NamespaceId name_space;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
    std::vector<BlockKey> keys;
    bool leading_run = false;
  };
  struct ExistsAnswer {
    struct Found {
      Outcome outcome = Outcome::kUnset;
      std::uint64_t length = 0;  // Of a hit.
    };
    std::vector<Found> found;  // One a key.
  };
  void StartExists(
      const CallContext& context, const ExistsCall& call,
      absl::AnyInvocable<void(absl::StatusOr<ExistsAnswer>) &&> done);

  void StartRemove(
      const CallContext& context, NamespaceId name_space,
      const std::vector<BlockKey>& keys,
      absl::AnyInvocable<void(absl::StatusOr<std::vector<Outcome>>) &&> done);

 private:
  // Leases in one Release, and how long the first of them waits for others: a
  // lease kept 2 ms longer costs nothing, a call per lease does.
  static constexpr std::size_t kReleaseBatch = 64;
  static constexpr absl::Duration kReleaseDelay = absl::Milliseconds(2);

  RequestHeader HeaderFor(const CallContext& context, SessionId session) const;
  SessionId session() const ABSL_LOCKS_EXCLUDED(mutex_);
  void SendReleases() ABSL_LOCKS_EXCLUDED(mutex_);
  // One call, as a frame where that can be, else as gRPC.
  struct Encoders {
    FrameType type;
    absl::FunctionRef<std::string()> frame;
    absl::FunctionRef<std::string()> message;
    bool fits = true;  // A frame, as far as its counts say.
  };
  void Call(ControlCall call, SessionId session, const Encoders& encoders,
            BootTime until, FrameCalls::Done done);

  const Seams* const seams_;
  ClientCounters* const counters_;
  ControlLink link_;
  FrameCalls frames_;
  TaskScope scope_;

  mutable Mutex mutex_;
  SessionId session_ ABSL_GUARDED_BY(mutex_);
  // Of session_; it ends with it.
  std::vector<std::uint64_t> releases_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_NODE_CLIENT_H_
