// One read in flight, from the request to both its ends.
//
// Every block goes through steps of its own; Advance looks at all of them and
// starts what can be started:
//
//     kAsk -> kAsking -> kGranted -> kCopying -> kEnded     local, mapped
//        \-> kLocate -> kLocating -> kLocated -> kFetching -> kEnded   remote
//
// A block begins at kLocated if its location is still believed, else at kAsk. A
// torn copy goes back to kAsk once, a stale location back to kAsk or kLocate
// once. In a leading run nothing is copied or fetched behind a block of which
// it is not known yet whether anybody has it.
//
// Its functions stand in the order in which they run: read_operation.cc (begin,
// plan, end), read_operation_local.cc, read_operation_remote.cc.
//
// Threading. Any thread; one mutex, no callback under it.
//
// Ownership. Shared by the set of operations in flight and by the callbacks
// that it waits for. Targets and buffers are the caller's.

#ifndef FIRNKV_CLIENT_READ_OPERATION_H_
#define FIRNKV_CLIENT_READ_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/catalog_client.h"
#include "client/location_cache.h"
#include "client/mapped_region.h"
#include "client/node_client.h"
#include "client/operation.h"
#include "client/read.h"
#include "client/remote_reads_messages.h"
#include "client/session.h"
#include "client/transport/stream_transport.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"

namespace firnkv {

class ReadOperation : public Operation,
                      public std::enable_shared_from_this<ReadOperation> {
 public:
  // Begins; the callbacks of `done` run as read.h says.
  static void Start(const ClientParts& parts, const ReadRequest& request,
                    ReadDone done);

  ReadOperation(const ClientParts& parts, const ReadRequest& request,
                ReadDone done);
  void Cancel() override;

 private:
  // Copies of up to so many bytes make one task.
  static constexpr std::uint64_t kSliceBytes = 2 * kMiB;
  // A read this small is copied where its answer arrives: a task would cost
  // more.
  static constexpr std::uint64_t kInlineBytes = 256 * kKiB;
  // A node's blocks are spread over its connections in parts of at least this.
  static constexpr std::size_t kLeastBlocksAFetch = 4;
  // Looking up a location, and once more where it was stale.
  static constexpr int kLocates = 2;

  enum class Step : std::uint8_t {
    kAsk,
    kAsking,
    kGranted,
    kCopying,
    kLocate,
    kLocating,
    kLocated,
    kFetching,
    kEnded,
  };

  // A lease on granted blocks; released when the last of them is done with.
  class Lease {
   public:
    Lease(NodeClient* node, SessionId session, std::uint64_t id,
          BootTime believed_until)
        : node_(node),
          session_(session),
          id_(id),
          believed_until_(believed_until) {}
    ~Lease() { node_->ReleaseLater(session_, id_); }
    BootTime believed_until() const { return believed_until_; }
    SessionId session() const { return session_; }

   private:
    NodeClient* const node_;
    const SessionId session_;
    const std::uint64_t id_;
    const BootTime believed_until_;
  };

  struct Block {
    Step step = Step::kAsk;
    // What it ends with, if nothing better comes.
    Outcome outcome = Outcome::kMiss;
    // The local node has been asked, and why it is of no help is in `outcome`.
    bool asked = false;
    bool torn = false;
    int locates_left = kLocates;
    ByteRun run;
    std::uint64_t offset = 0;
    bool whole = true;

    // Local.
    MappedBlock mapped;
    // Serials of the extents' regions, while they are being mapped.
    absl::InlinedVector<std::uint64_t, 1> regions;
    // Shared by the blocks that it was granted for.
    std::shared_ptr<Lease> lease;

    // Remote.
    Locations locations;
    absl::InlinedVector<NodeId, 1> tried;
    // Number of the fetch that brings it, while kFetching.
    std::uint64_t fetch = 0;
    // What its header said, where the local node is to hear of it.
    std::unique_ptr<RemoteBlock> elsewhere;
    BounceMemory::Piece bounce;
  };
  using Indexes = std::vector<std::size_t>;

  // What Advance found to do.
  struct Agenda {
    bool end = false;
    Indexes ask;
    Indexes locate;
    Indexes copy;
    Indexes fetch;
  };

  // Regions of one OpenRead that are being mapped. Shared by its
  // callbacks.
  struct Opening {
    NodeClient::OpenReadAnswer answer;
    Indexes indexes;
    std::size_t left = 0;
    // Null: it cannot be mapped.
    std::map<std::uint64_t, std::shared_ptr<const MappedRegion>> regions;
  };

  // One request to one node.
  class Fetch : public StreamSink {
   public:
    Fetch(std::shared_ptr<ReadOperation> read, std::uint64_t number,
          const NodeAddress& node, bool local, Indexes indexes)
        : read_(std::move(read)),
          number_(number),
          node_(node.node),
          epoch_(node.epoch),
          local_(local),
          indexes_(std::move(indexes)) {}
    ByteRun OnHeader(std::size_t index, const SlotHeader& header) override;
    void OnBlock(std::size_t index, Outcome outcome,
                 absl::Duration retry_after) override;
    void OnEnd(StreamEnd end, const absl::Status& why) override;

    std::uint64_t number() const { return number_; }
    NodeId node() const { return node_; }
    NodeEpoch epoch() const { return epoch_; }
    bool local() const { return local_; }
    const Indexes& indexes() const { return indexes_; }
    // The node has sent something of it.
    bool answered() const { return answered_; }

   private:
    // Shared: the read waits for this.
    const std::shared_ptr<ReadOperation> read_;
    const std::uint64_t number_;
    const NodeId node_;
    const NodeEpoch epoch_;
    // It is the local node, asked over its stream.
    const bool local_;
    const Indexes indexes_;
    // Touched by the sink's calls only, which never overlap.
    bool answered_ = false;
  };

  // --- Begin, plan, end.
  absl::Status Validate() const;
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  void UseCachedLocations() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  Agenda Plan() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Outstanding blocks end with `rest`.
  void End(Outcome rest) ABSL_LOCKS_EXCLUDED(mutex_);
  ReadReport Settle(Outcome rest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs on_buffers_free once nothing touches the buffers any more.
  void FreeIfQuiet() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndBlock(Block* block, Outcome outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The local node does not have it, or cannot say: the catalog is next.
  void AfterLocal(Block* block, Outcome outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Fits(const Block& block, std::uint64_t length) const;
  CallContext Context() const;
  BlockId IdOf(std::size_t index) const;

  // --- Local.
  void AskLocal(const Indexes& indexes) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnOpened(const Indexes& indexes, BootTime asked_at,
                absl::StatusOr<NodeClient::OpenReadAnswer> answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRefused(Block* block, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Shared: see Block::lease, Opening and MappedRegion.
  void TakeGrant(std::size_t index, const NodeClient::Grant& grant,
                 const std::shared_ptr<Lease>& lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Shared: see Opening.
  void MapRegions(std::shared_ptr<Opening> opening) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRegion(const std::shared_ptr<Opening>& opening, std::uint64_t serial,
                absl::StatusOr<std::shared_ptr<const MappedRegion>> region)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void PlaceExtents(const Opening& opening)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Blocks of the local node that cannot be read from mapped memory.
  void UseLocalStream(Block* block, const SessionWelcome& welcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Copy(const Indexes& indexes) ABSL_LOCKS_EXCLUDED(mutex_);
  // False: there was none left.
  bool CopySlice() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCopied(std::size_t index, MappedCopy result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Remote.
  void Locate(const Indexes& indexes) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLocated(const Indexes& indexes, BootTime asked_at,
                 const absl::StatusOr<CatalogClient::LocateAnswer>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeLocations(std::size_t index, BootTime asked_at,
                     const CatalogClient::LocateAnswer::Found& found,
                     const Session::Welcome& welcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartFetches(const Indexes& indexes) ABSL_LOCKS_EXCLUDED(mutex_);
  // The router has been told of its begin.
  void StartFetch(const NodeAddress& node, const Indexes& indexes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  ByteRun PlaceFor(const Fetch& fetch, std::size_t index,
                   const SlotHeader& header) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFetched(const Fetch& fetch, std::size_t index, Outcome outcome,
                 absl::Duration retry_after) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFetchEnd(const Fetch& fetch, StreamEnd end)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The hits that came from other nodes, for the local one to hear of.
  std::vector<RemoteBlock> TakeRemoteHits()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AfterFetch(const Fetch& fetch, std::size_t index, Outcome outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsIn(const Block& block, const Fetch& fetch);
  void OnStale(const Fetch& fetch, std::size_t index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `paid`: there is a retry for it (retry.h).
  void TryElsewhere(const Fetch& fetch, std::size_t index, bool paid)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ClientParts parts_;
  const ReadRequest request_;
  const BootTime started_;
  const BootTime deadline_;
  const bool leading_;

  Mutex mutex_;
  ReadDone done_ ABSL_GUARDED_BY(mutex_);
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  ClearEpoch clear_epoch_ ABSL_GUARDED_BY(mutex_) = ClearEpoch::kUnknown;
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
  // How many have not ended; and, of a leading run, whether one missed.
  std::size_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  bool run_ends_ ABSL_GUARDED_BY(mutex_) = false;
  // What torn copies were of.
  std::vector<MappedBlock> stale_ ABSL_GUARDED_BY(mutex_);
  absl::Duration retry_after_ ABSL_GUARDED_BY(mutex_);
  absl::Duration locate_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t bytes_mapped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_remote_ ABSL_GUARDED_BY(mutex_) = 0;

  // Slices that no task has begun.
  std::deque<Indexes> slices_ ABSL_GUARDED_BY(mutex_);
  int copying_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_fetch_ ABSL_GUARDED_BY(mutex_) = 1;
  // Requests whose OnEnd has not run, by their number.
  std::map<std::uint64_t, StreamTransport::Ticket> fetches_
      ABSL_GUARDED_BY(mutex_);

  // The outcome is decided; it was told; the buffers were given back.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool timed_out_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  bool freed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_READ_OPERATION_H_
