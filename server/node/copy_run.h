// One run of blocks on its way here from another node: parents before their
// children, a step at a time, straight into reserved slots.
//
//     Learn -> (StartStep -> reserve -> read -> commit -> on_step_end)* -> over
//
// What becomes resident was compared (rules P13, P14): the header that the
// source sends must be what was told of the block (digest, place, length, clear
// epoch), the checksums are those of what landed, and the pool takes it only if
// its clear epoch is the namespace's at that moment. A block whose parent could
// not be had is not asked for: it would be worth nothing.
//
// Two ends: the outcomes are told by the deadline; a slot that is being
// received into is held until the transport has let go of it (rule P8), its
// reservation ends with the run (rule S7). on_step_end says when that is over.
//
// Does not know: who may ask for what, budgets, whether a peer is well;
// copy_fetcher.h does.
//
// Threading. Thread-safe. One mutex, never held over the pool, the transport or
// a callback. Calls of the transport never overlap: only they touch what lands.
//
// Ownership. Shared by CopyFetcher, its timer, the pool's answer and the
// transport. Everything in Parts outlives it, or is closed first.

#ifndef FIRNKV_SERVER_NODE_COPY_RUN_H_
#define FIRNKV_SERVER_NODE_COPY_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/byte_run.h"
#include "client/transport/stream_transport.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "proto/base/slot_header.h"
#include "server/node/namespace_cache.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

// What is to be copied, and on whose behalf.
struct CopyOrder {
  // Who has it. From the catalog or from another node, never from a session:
  // it is shown this node's token.
  NodeAddress source;
  // Whose blocks may be touched.
  NamespaceCaller caller;
  NamespaceId name_space;
  // As they were told of; parents before their children.
  struct Block {
    BlockKey key;
    ChainPlace place;
    std::uint64_t length = 0;
    ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  };
  std::vector<Block> blocks;
  BootTime deadline;
  TrafficClass traffic = TrafficClass::kWarmUp;
  TraceId trace;
  // How long each step waits for room, and what may leave for it
  // (ReserveRequest::evict_below).
  absl::Duration room_wait;
  Warmth evict_below = Warmth::kWarmest;
};
// One outcome a block: kStored, kAlreadyThere, kMiss, kCleared, kCorrupt,
// kCongested, kUnavailable, kTimedOut.
using CopyDone = absl::AnyInvocable<void(std::vector<Outcome>) &&>;

class CopyRun : public StreamSink,
                public std::enable_shared_from_this<CopyRun> {
 public:
  struct Options {
    // Of one step; a longer block goes alone.
    std::uint64_t step_bytes = 8 * kMiB;
    std::size_t step_blocks = 256;
    // Behind the deadline, for a transport to let go of a slot.
    absl::Duration grace = absl::Seconds(1);
  };
  // How a step went.
  enum class StepEnd : std::uint8_t {
    // The source was not asked.
    kNothing,
    kServed,
    // Out of reach, broken, silent.
    kFailed,
  };
  struct Parts {
    DramPool* pool = nullptr;
    StreamTransport* transport = nullptr;
    // Of the owner: closed before it goes.
    TaskScope* scope = nullptr;
    const Clock* clock = nullptr;
    // Once, before `done`, with what that will be told: no further step is
    // begun. And once for each StartStep, also behind it. Both under no lock.
    std::function<void(CopyRun*, const std::vector<Outcome>&)> on_over;
    std::function<void(CopyRun*, StepEnd)> on_step_end;
  };

  CopyRun(const Options& options, const Parts& parts, std::uint64_t serial,
          CopyOrder order, CopyDone done);

  std::uint64_t serial() const { return serial_; }
  const CopyOrder& order() const { return order_; }

  // Who asks may have the namespace. Once.
  void Learn(const PoolNamespace& name_space) ABSL_LOCKS_EXCLUDED(mutex_);
  // Chooses the next step's blocks: their bytes. nullopt: none is left, and the
  // run is over.
  std::optional<std::uint64_t> PlanStep() ABSL_LOCKS_EXCLUDED(mutex_);
  // Copies them. Once for each PlanStep that chose some.
  void StartStep() ABSL_LOCKS_EXCLUDED(mutex_);

  // Over now; what has no outcome gets this one. Idempotent.
  void End(Outcome rest) ABSL_LOCKS_EXCLUDED(mutex_);

  // Of the transport.
  ByteRun OnHeader(std::size_t index, const SlotHeader& header) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnBlock(std::size_t index, Outcome outcome,
               absl::Duration retry_after) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnEnd(StreamEnd end, const absl::Status& why) override
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Of the step under way: a block by its index in the order, and its slot.
  struct Wanted {
    std::size_t index = 0;
    SlotCopy slot;
  };

  void OnReserved(ReserveAnswer answer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks the source for what was reserved.
  void Read() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndStep(StepEnd end) ABSL_LOCKS_EXCLUDED(mutex_);
  void Decide(std::size_t index, Outcome outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // kStored: it is what was told of.
  Outcome Judge(std::size_t index, const SlotHeader& header) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What became of the parent, where it could not be had; else kUnset.
  Outcome FateOfParent(std::size_t index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Parts parts_;
  const std::uint64_t serial_;
  const CopyOrder order_;

  Mutex mutex_;
  CopyDone done_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  PoolNamespace name_space_ ABSL_GUARDED_BY(mutex_);
  // One a block; kUnset: not decided.
  std::vector<Outcome> outcomes_ ABSL_GUARDED_BY(mutex_);
  // The first block that no step has chosen.
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  // Blocks that could not be had, for their children.
  absl::flat_hash_map<BlockKey, Outcome> lacking_ ABSL_GUARDED_BY(mutex_);
  // The step's, those for which the source is asked once they are reserved.
  std::vector<Wanted> step_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  StreamTransport::Ticket ticket_ ABSL_GUARDED_BY(mutex_);

  // What lands, and whether the source has said anything in this step: touched
  // in the transport's calls only, and before they can come.
  bool heard_ = false;
  CopyTarget target_;
  std::vector<std::uint32_t> pieces_;
  std::int64_t source_nanos_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_COPY_RUN_H_
