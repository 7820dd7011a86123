// Writers' claims: each reservation is one batch of blocks of one session, for
// which slots of the pool are kept until a deadline.
//
//     Reserve -> slots taken, unindexed        (caps: here; room: dram_pool.h)
//     Commit  -> staging copied in, checked    (copier.h), by index, any number
//                                              of times
//     Abort, deadline or session end -> what is not resident by then is dead
//                                       (rule S7)
//
// Idempotent (rule S5): Commit and Abort are known by (session, reservation,
// index). An index that is done repeats its answer, one that is running is
// joined; an index that timed out in the queue is reserved still and may be
// committed again. A finished reservation repeats its answers for 60 s. Past
// its deadline an index that is not done is kReservationOver.
//
// Caps (rules S3, S7): bytes of slots reserved and not yet committed, and
// blocks that reservations name, by session and by tenant, and reservations by
// session. The blocks of a batch beyond a cap, and all of it while the copy
// queue is full (rule S8), are kCongested: commits make room. A block that is
// larger than a cap is kOverQuota: waiting would not help. (No other quota is
// kept here: how much of the pool a tenant may fill is room_maker.h's matter,
// where nobody is refused for it.) So a live reservation's commit never fails
// for room.
//
// What a slot costs and not what a block has is counted: a block of one byte
// takes a page of the pool, or as much as its namespace's blocks have.
//
// Does not know: sockets, the wire, the catalog: who waits for kPublished waits
// after the answer, with the generation in it.
//
// Threading. Thread-safe, one mutex, never held while the pool, the copier or a
// completion is called. Completions run exactly once, inside the call or on a
// task.
//
// Ownership. Pool, copier and clock outlive it. Owned by Node.

#ifndef FIRNKV_SERVER_NODE_RESERVATIONS_H_
#define FIRNKV_SERVER_NODE_RESERVATIONS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"
#include "server/node/copier.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

// Unique within one run of one node; zero names none. Not a secret: every use
// names the session too.
enum class ReservationId : std::uint64_t { kNone = 0 };

class Reservations {
 public:
  struct Options {
    std::uint64_t max_bytes_a_session = 256 * kMiB;
    std::uint64_t max_bytes_a_tenant = kGiB;
    std::size_t max_reservations_a_session = 1024;
    // Blocks that live reservations name, also those that were there already:
    // 136 bytes each, 8.5 MiB a session and 34 MiB a tenant.
    std::size_t max_blocks_a_session = 1 << 16;
    std::size_t max_blocks_a_tenant = 1 << 18;
    absl::Duration longest = absl::Seconds(30);
    // How long finished reservations repeat their answers (rule S5), and how
    // many of them a session may leave, and blocks in them, and blocks all
    // sessions together: older ones go first, the latest never. A block costs
    // 136 bytes, so that all of them are at most 136 MiB.
    absl::Duration repeat_for = absl::Seconds(60);
    std::size_t max_finished_a_session = 4096;  // At least 1.
    std::size_t max_finished_blocks_a_session = 1 << 16;
    std::size_t max_finished_blocks = 1 << 20;
    // Said with kCongested.
    absl::Duration retry_after = absl::Milliseconds(20);
  };
  struct Parts {
    DramPool* pool = nullptr;
    Copier* copier = nullptr;
    Executor* executor = nullptr;
  };

  struct ReserveRequest {
    SessionId session;
    PoolNamespace name_space;
    std::vector<ReserveBlock> blocks;
    // Of the call: until then it waits for room.
    BootTime deadline;
    // Asked for; cut to options.longest.
    absl::Duration reserve_for;
    EvictionPolicy::ConversationState conversation =
        EvictionPolicy::ConversationState::kUnknown;
  };
  struct ReserveAnswer {
    // As DramPool's; then nothing is reserved and `outcomes` is empty.
    absl::Status status;
    // kStored: reserved, to be committed by its index. kAlreadyThere: touched.
    // kCongested, kOverQuota, kCancelled.
    std::vector<Outcome> outcomes;
    // Of the resident copies, where kAlreadyThere.
    std::vector<Generation> generations;
    // kNone where nothing was reserved.
    ReservationId reservation = ReservationId::kNone;
    // From now.
    absl::Duration valid_for;
    absl::Duration retry_after;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  };
  using ReserveDone = absl::AnyInvocable<void(ReserveAnswer) &&>;

  // A slot that is to be filled by somebody else than the copier, who says how
  // that went by `done`, exactly once and whatever happens.
  using LandingDone = absl::AnyInvocable<void(CommitResult) &&>;
  struct Landing {
    SlotCopy slot;
    LandingDone done;
  };

  struct CommitRequest {
    SessionId session;
    ReservationId reservation = ReservationId::kNone;
    TrafficClass traffic = TrafficClass::kBackgroundWrite;
    BootTime deadline;
    struct Block {
      std::uint32_t index = 0;
      // Where the bytes stand; they add up to the block's length.
      std::vector<StagingRange> source;
      // The writer's checksums, one a piece.
      std::vector<std::uint32_t> pieces;
    };
    // In chain order: copied and answered in this order (rule S8).
    std::vector<Block> blocks;
    // Given: the bytes come from afar. Runs inside StartCommit, under no lock,
    // with the slots of those blocks that are to be begun, if there are any;
    // nothing is copied, and `source` and `pieces` are empty.
    absl::AnyInvocable<void(std::vector<Landing>) &&> land;
  };
  struct CommitAnswer {
    // INVALID_ARGUMENT, and nothing was begun: an index that the reservation
    // has not or names twice, a source that is not the block's length, not one
    // checksum a piece. NOT_FOUND never: an unknown reservation is an outcome.
    absl::Status status;
    struct Block {
      // kStored, kAlreadyThere, kReservationOver, kCleared, kCorrupt (the slot
      // is dead), kTimedOut (not begun by the deadline; still reserved).
      Outcome outcome = Outcome::kReservationOver;
      BlockId block;
      // Of the resident copy, with kStored and kAlreadyThere.
      Generation generation = Generation::kNone;
    };
    std::vector<Block> blocks;  // One a block of the request, in its order.
  };
  using CommitDone = absl::AnyInvocable<void(CommitAnswer) &&>;

  struct Totals {
    std::size_t live = 0;
    std::size_t finished = 0;
    std::uint64_t reserved_bytes = 0;
  };

  Reservations(const Options& options, const Parts& parts);
  Reservations(const Reservations&) = delete;
  Reservations& operator=(const Reservations&) = delete;
  // The copier must have been drained: no commit is running.
  ~Reservations();

  void StartReserve(ReserveRequest request, ReserveDone done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void StartCommit(CommitRequest request, CommitDone done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the reservation: what is being copied is discarded when its copy
  // stops. Of an unknown one, or another session's: nothing.
  void Abort(SessionId session, ReservationId id) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all of the session's at once (rule S3), forgets their answers, and
  // lets no reservation of it come into being that is still waiting for room.
  void EndSession(SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);

  Totals totals() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Duration retry_after() const { return options_.retry_after; }

 private:
  struct Reservation;
  struct SessionState;
  // One StartReserve call on its way through the pool.
  struct Pending;
  // One StartCommit call that waits for its blocks.
  struct Waiting;
  // Completions gathered under the lock and run after it.
  using Answered = std::vector<std::shared_ptr<Waiting>>;

  SessionState& StateOf(SessionId session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetIfGone(SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Reservation* Find(SessionId session, ReservationId id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How many blocks at the front of the request the caps leave room for, and
  // charges them.
  std::size_t Admit(const ReserveRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is against the caps, of a session, of a tenant, or of both.
  struct Charge {
    std::uint64_t bytes = 0;
    std::size_t blocks = 0;
  };
  void Refund(SessionId session, TenantId tenant, const Charge& charge)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a block that the caps left no room for.
  Outcome OverCap(const PoolNamespace& name_space,
                  const ReserveBlock& block) const;

  void OnReserved(Pending* pending) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of what the pool gave; refunds the rest, and gives everything up if the
  // session has ended. Shared: see SessionState.
  std::shared_ptr<Reservation> MakeOf(const Pending& pending,
                                      std::vector<SlotCopy>* given_up)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From now on it is live, until its deadline. Shared: see SessionState.
  ReservationId Keep(std::shared_ptr<Reservation> reservation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static absl::Status Check(const CommitRequest& request,
                            const Reservation& reservation);
  // Joins what runs, repeats what is done, and appends to `job` what is to be
  // begun.
  void Join(CommitRequest* request, Reservation* reservation,
            const std::shared_ptr<Waiting>& waiting, Copier::Job* job,
            std::vector<std::uint32_t>* begun)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Shared: see SessionState.
  void StartLandings(CommitRequest* request,
                     const std::shared_ptr<Reservation>& reservation,
                     const Copier::Job& job,
                     const std::vector<std::uint32_t>& begun)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCopied(SessionId session, Reservation* reservation,
                std::uint32_t index, CommitResult result)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The reservation is over: what is only reserved is done, what is being
  // copied ends with its copy. Appends the slots to be given up.
  void End(Reservation* reservation, std::vector<SlotCopy>* slots)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishBlock(Reservation* reservation, std::uint32_t index,
                   CommitResult result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Every block is done: from now on the answers are only repeated.
  void Finish(Reservation* reservation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The oldest finished one of the session.
  void ForgetFirst(SessionState* state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Parts parts_;

  mutable Mutex mutex_;
  std::uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::uint64_t reserved_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t live_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<SessionId, std::unique_ptr<SessionState>> sessions_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<TenantId, Charge> tenants_ ABSL_GUARDED_BY(mutex_);
  std::size_t finished_blocks_ ABSL_GUARDED_BY(mutex_) = 0;
  // Whose they are: exactly the finished ones of all sessions, in the order in
  // which they are forgotten.
  std::map<std::pair<BootTime, ReservationId>, SessionId> old_
      ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_RESERVATIONS_H_
