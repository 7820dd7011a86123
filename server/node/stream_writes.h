// The writes of one stream connection: reservations of its peer, and the bytes
// that come for them (proto/base/write_frame.h).
//
// The connection is the session in which they live: it gets a random session id
// when it first writes, and at its end its reservations end at once (rule S3).
// So the caps and outcomes of local writes are its own (write_path.h), and a
// reservation cannot be used from another connection.
//
// Bytes are received straight into the reserved slot, under a hold that ends
// when the receive has (rules P1, P8), a step at a time, each step checksummed
// as it has landed, while it is in the cache. What the writer said of each
// piece came before it (rule T1). A block that turns out wrong is kCorrupt and
// its slot is dead. One that is not wanted, or whose reservation has ended, is
// thrown away (rule S7).
//
// Foreground reads go first (rule S8): while there are any, a step is put off,
// never more than max_put_off in all before each step.
//
// One block lands at a time. Bounds: max_writes requests that are not over, of
// max_blocks blocks together; more are kCongested.
//
// Does not know: sockets, deadlines of a peer that drips; served_connection.h
// has them.
//
// Threading. Thread-safe. "The receiving turn" is whoever receives for the
// connection, one at a time; only it touches what lands.
//
// Ownership. Owned by ServedConnection; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_STREAM_WRITES_H_
#define FIRNKV_SERVER_NODE_STREAM_WRITES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "proto/base/write_frame.h"
#include "server/node/node_metrics.h"
#include "server/node/reservations.h"
#include "server/node/session_registry.h"
#include "server/node/stream_answer.h"
#include "server/node/write_path.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class StreamWrites {
 public:
  struct Options {
    std::size_t max_writes = 16;
    // 48 bytes each.
    std::size_t max_blocks = 8192;
    // Of one receive: four pieces, a part of a core's cache.
    std::uint64_t step_bytes = 256 * kKiB;
    // Bytes that are thrown away pass through so much memory.
    std::size_t scratch_bytes = 64 * kKiB;
    // Between two looks at whether reads are under way, and in all before a
    // step.
    absl::Duration put_off = absl::Microseconds(200);
    absl::Duration max_put_off = absl::Milliseconds(5);
    absl::Duration longest = absl::Seconds(30);
  };
  struct Parts {
    Executor* executor = nullptr;
    Random* random = nullptr;
    WritePath* writes = nullptr;
    Reservations* reservations = nullptr;
    SessionRegistry* registry = nullptr;
    DramPool* pool = nullptr;
    NodeMetrics* metrics = nullptr;
    // Reads that are being answered.
    const std::atomic<std::int64_t>* busy = nullptr;
  };

  // `on_change` runs when there is something to send, or when NextPiece has
  // something to give that had nothing: under no lock, also inside a method.
  StreamWrites(const Options& options, const Parts& parts,
               absl::AnyInvocable<void()> on_change);
  StreamWrites(const StreamWrites&) = delete;
  StreamWrites& operator=(const StreamWrites&) = delete;
  // Nothing is being received any more.
  ~StreamWrites();

  // --- On the receiving turn.

  // INVALID_ARGUMENT: a request id of before.
  absl::Status Reserve(TenantId tenant, std::uint64_t request, ReserveBody body)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives up what has not come; answered by the write's end.
  void Cancel(std::uint64_t request) ABSL_LOCKS_EXCLUDED(mutex_);

  // A block's payload comes next. INVALID_ARGUMENT: no such request, another
  // key or length than was reserved.
  absl::Status BeginBlock(std::uint64_t request, WriteBody body,
                          std::uint64_t payload_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Where its next bytes go, until Landed or Abandon; empty: nowhere yet, wait
  // for on_change.
  absl::Span<std::byte> NextPiece() ABSL_LOCKS_EXCLUDED(mutex_);
  // All of NextPiece's bytes are there. True: it was the block's last.
  bool Landed() ABSL_LOCKS_EXCLUDED(mutex_);
  // There is room for another request: what a peer does not let be said is
  // bounded too, at twice max_writes.
  bool TakesMore() const ABSL_LOCKS_EXCLUDED(mutex_);
  // They will not come: the connection is broken.
  void Abandon();
  // Until when the rest of the block may come.
  BootTime landing_deadline() const { return landing_.deadline; }

  // --- Any time.

  // The connection is over: its reservations are too.
  void EndSession() ABSL_LOCKS_EXCLUDED(mutex_);

  // By whoever is sending: appends what there is to say. False: nothing.
  bool TakeAnswers(OutgoingFrames* frames) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Block {
    enum class State : std::uint8_t {
      kReserved,  // Its bytes are awaited.
      kLanding,   // They come, or the outcome is awaited.
      kOver,
    };
    BlockKey key;
    std::uint64_t length = 0;
    State state = State::kOver;
  };
  struct Write {
    // Its Reserve is not answered.
    bool pending = true;
    bool cancelled = false;
    // To be forgotten once that is said.
    bool ended = false;
    ReservationId reservation = ReservationId::kNone;
    TrafficClass traffic = TrafficClass::kBackgroundWrite;
    CommitWait wait = CommitWait::kLocal;
    BootTime deadline;
    std::vector<Block> blocks;
    // Not over.
    std::size_t open = 0;
    // To be said.
    std::optional<ReservedBody> reserved;
    WrittenBody written;
  };
  // The block whose payload comes. Touched on the receiving turn only.
  struct Landing {
    bool active = false;
    // Where it goes was decided; nowhere, if `done` is empty.
    bool opened = false;
    std::uint64_t request = 0;
    std::uint32_t index = 0;
    std::vector<std::uint32_t> pieces;
    std::uint64_t length = 0;
    BootTime deadline;
    std::uint64_t landed = 0;
    // Of the receive under way.
    std::uint64_t step = 0;
    bool sound = true;
    CopyTarget target;
    SlotCopy slot;
    Reservations::LandingDone done;
    // When the step was first put off; zero: it was not.
    BootTime put_off_since;
  };

  // Answers all blocks of a request that is not begun.
  void RefuseAll(std::uint64_t request, const absl::Status& status,
                 Outcome outcome, std::size_t blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: the connection is over.
  bool BeginSession(TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_);
  // Requests whose time is over and that their peer has not ended.
  void ForgetOld(BootTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Write* write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnReserved(std::uint64_t request, Reservations::ReserveAnswer answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // False: it has to wait.
  bool Open() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLandable(Reservations::Landing landing);
  bool PutOff();
  void CheckLanded(std::uint64_t begin, std::uint64_t end);
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWritten(std::uint64_t request, std::uint32_t index, Outcome outcome)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const Parts parts_;
  absl::AnyInvocable<void()> on_change_;

  mutable Mutex mutex_;
  LiveSession session_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t highest_request_ ABSL_GUARDED_BY(mutex_) = 0;
  // By request; ordered, so that a seeded run is the same each time.
  std::map<std::uint64_t, Write> writes_ ABSL_GUARDED_BY(mutex_);
  // Of those that have not ended.
  std::size_t live_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t blocks_ ABSL_GUARDED_BY(mutex_) = 0;

  Landing landing_;
  std::vector<std::byte> scratch_;

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_STREAM_WRITES_H_
