// One write in flight, from the request to both its ends.
//
// Blocks are reserved in windows, one after the other, since a node holds only
// so many reserved bytes of one session; what is reserved goes in chunks of a
// few MiB, in chain order, two at a time:
//
//     pin what lies in shared memory, take staging for the rest
//     -> copy and checksum -> the node has the staging -> Commit -> answer
//
// A chunk's staging and pins are given back only after the answer to its Commit
// or to an Abort, or once the session has ended (rule S1). Where no answer
// comes by the grace behind the deadline, the session is ended.
//
// Its functions stand in the order in which they run: write_operation.cc
// (begin, reserve, end), write_chunk.cc.
//
// Threading. Any thread; one mutex, no callback under it.
//
// Ownership. As ReadOperation's.

#ifndef FIRNKV_CLIENT_WRITE_OPERATION_H_
#define FIRNKV_CLIENT_WRITE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/node_client.h"
#include "client/operation.h"
#include "client/staging.h"
#include "client/write.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"

namespace firnkv {

class WriteOperation : public Operation,
                       public std::enable_shared_from_this<WriteOperation> {
 public:
  static void Start(const ClientParts& parts, const WriteRequest& request,
                    WriteDone done);

  WriteOperation(const ClientParts& parts, const WriteRequest& request,
                 WriteDone done);
  void Cancel() override;

 private:
  // A quarter of what a node reserves for one session by default.
  static constexpr std::uint64_t kWindowBytes = 64 * kMiB;
  // Small enough that the node copies one while the next is staged, and that
  // all in flight leave room for other writers; large enough that a Commit is
  // little beside its copy.
  static constexpr std::uint64_t kChunkBytes = 4 * kMiB;
  static constexpr std::size_t kChunksInFlight = 4;
  // Staged where its turn comes: a task would cost more.
  static constexpr std::uint64_t kInlineBytes = 256 * kKiB;

  struct Block {
    std::uint64_t length = 0;
    bool ended = false;
    Outcome outcome = Outcome::kUnavailable;
    // Index in the Reserve.
    std::uint32_t reserved = 0;
  };

  // Some blocks on their way through staging. Shared by the callbacks of its
  // stages; touched by one of them at a time. Whoever takes it out of chunks_
  // gives back what it has.
  struct Chunk {
    enum class State : std::uint8_t {
      kStaging,     // One thread pins, copies, checksums.
      kWaiting,     // For staging.
      kAccepting,   // For the node to have the staging.
      kCommitting,  // The node may be reading.
    };
    // Changed under the operation's mutex.
    State state = State::kStaging;
    // The wish for staging that is outstanding; 0 = none.
    std::uint64_t wish = 0;

    std::uint64_t number = 0;
    std::vector<std::size_t> indexes;
    StagingPool::Range range;
    // Of blocks that lie in shared memory: one a buffer. Empty for the others.
    std::vector<std::vector<StagingPool::Pin>> pins;
    // The node has refused the caller's shared memory: copy.
    bool copy_all = false;
    NodeClient::CommitCall commit;
    // Stagings of which the node has not said yet whether it has them.
    std::size_t unaccepted = 0;
    absl::Status accepted;
  };
  // Shared: see Chunk.
  using ChunkRef = std::shared_ptr<Chunk>;

  // --- Begin, reserve, end.
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  void Reserve() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReserved(const std::vector<std::size_t>& indexes,
                  const absl::StatusOr<NodeClient::ReserveAnswer>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins chunks, or ends the write where all has its outcome.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  ChunkRef NextChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Outcome rest) ABSL_LOCKS_EXCLUDED(mutex_);
  WriteReport Settle(Outcome rest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndBlock(std::size_t index, Outcome outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Something of this window's reservation was not committed.
  bool LeavesReserved() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is given back.
  void Abort() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnAborted(std::uint64_t reservation, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool SessionIsOver() const ABSL_LOCKS_EXCLUDED(mutex_);
  void FreeIfQuiet() ABSL_LOCKS_EXCLUDED(mutex_);
  CallContext Context(BootTime deadline) const;

  // --- One chunk.
  void StartChunk(const ChunkRef& chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  // One a buffer; none: the block has to be copied.
  std::vector<StagingPool::Pin> PinBlock(std::size_t index) const;
  void TakeStaging(const ChunkRef& chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnStaging(const ChunkRef& chunk, StagingPool::Range range)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The next one of to_stage_; false: there was none.
  bool StageNext() ABSL_LOCKS_EXCLUDED(mutex_);
  void Stage(const ChunkRef& chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  void StageBlock(Chunk* chunk, std::size_t n, std::uint64_t* offset) const;
  void AwaitAccepted(const ChunkRef& chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnAccepted(const ChunkRef& chunk, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Commit(const ChunkRef& chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCommitted(const ChunkRef& chunk,
                   const absl::StatusOr<NodeClient::CommitAnswer>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Goes on to the next state; false: the write is over, and what the chunk
  // has went back.
  bool Enter(const ChunkRef& chunk, Chunk::State state)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // It is done with: its blocks have `rest` if they have no outcome; staging
  // and pins go back.
  void Drop(const ChunkRef& chunk, Outcome rest) ABSL_LOCKS_EXCLUDED(mutex_);
  static void GiveBack(Chunk* chunk);

  const ClientParts parts_;
  const WriteRequest request_;
  const BootTime started_;
  const BootTime deadline_;

  mutable Mutex mutex_;
  WriteDone done_ ABSL_GUARDED_BY(mutex_);
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  absl::Duration retry_after_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t bytes_copied_ ABSL_GUARDED_BY(mutex_) = 0;

  // The first block that is in no window yet.
  std::size_t next_block_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of this window's Reserve.
  SessionId session_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t reservation_ ABSL_GUARDED_BY(mutex_) = 0;
  bool reserving_ ABSL_GUARDED_BY(mutex_) = true;

  // This window's reserved blocks, in order, and the first in no chunk yet.
  std::vector<std::size_t> order_ ABSL_GUARDED_BY(mutex_);
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_chunk_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, ChunkRef> chunks_ ABSL_GUARDED_BY(mutex_);
  // Those that have their staging; for each a task comes.
  std::deque<ChunkRef> to_stage_ ABSL_GUARDED_BY(mutex_);

  // The outcome is decided; it was told; the buffers were given back.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  bool freed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_WRITE_OPERATION_H_
