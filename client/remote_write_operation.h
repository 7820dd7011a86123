// One write of a worker without a local node, from the request to both its
// ends.
//
// The catalog says which node takes each block (Place). To each of these nodes
// its blocks go in windows, in chain order, two at a time:
//
//     Reserve frame -> (small windows: their blocks at once)
//                   -> which blocks are wanted -> checksums -> their bytes
//                   -> outcomes
//
// so that of the round trip for the answer nothing is seen but with the first
// window. Bytes go out of the caller's buffers; nothing is copied.
//
// Blocks whose node could not be reached are placed anew, elsewhere, once, if
// the retry budget has something left.
//
// Outcome by the deadline. The buffers are free once no connection sends from
// them: at most the grace later, when a connection that still does is closed.
//
// Its functions stand in the order in which they run: remote_write_operation.cc
// (begin, place, end), remote_write_flight.cc (one window at one node).
//
// Threading. Any thread; one mutex, no callback under it.
//
// Ownership. As ReadOperation's.

#ifndef FIRNKV_CLIENT_REMOTE_WRITE_OPERATION_H_
#define FIRNKV_CLIENT_REMOTE_WRITE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/catalog_client.h"
#include "client/operation.h"
#include "client/router.h"
#include "client/transport/stream_transport.h"
#include "client/transport/stream_write.h"
#include "client/write.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/node_address.h"
#include "proto/base/outcome.h"

namespace firnkv {

class RemoteWriteOperation
    : public Operation,
      public std::enable_shared_from_this<RemoteWriteOperation> {
 public:
  static void Start(const ClientParts& parts, const WriteRequest& request,
                    WriteDone done);

  RemoteWriteOperation(const ClientParts& parts, const WriteRequest& request,
                       WriteDone done);
  void Cancel() override;

 private:
  // Large enough that a round trip is little beside its bytes, small enough
  // that a node keeps slots of a writer that fails for no more than two.
  static constexpr std::uint64_t kWindowBytes = 8 * kMiB;
  static constexpr std::size_t kWindowsInFlight = 2;
  // Bytes that go ahead of the answer to their reservation: what a node that
  // does not want them throws away is less than what asking costs.
  static constexpr std::uint64_t kEagerBytes = 256 * kKiB;
  // Checksummed where its turn comes: a task would cost more.
  static constexpr std::uint64_t kInlineBytes = 256 * kKiB;
  // A block is placed so often.
  static constexpr std::size_t kMostPlacements = 2;

  using Indexes = std::vector<std::size_t>;

  struct Block {
    std::uint64_t length = 0;
    bool ended = false;
    Outcome outcome = Outcome::kUnavailable;
    // The flight that it is in.
    std::uint64_t flight = 0;
    // Nodes that could not take it.
    absl::InlinedVector<NodeId, 1> tried;
  };

  // One window on its way to one node. Shared by the operation and the
  // connection; what it holds is protected by the operation's mutex.
  class Flight : public StreamWriteSink {
   public:
    Flight(std::shared_ptr<RemoteWriteOperation> write, std::uint64_t number,
           NodeAddress node, Indexes indexes)
        : write_(std::move(write)),
          number_(number),
          node_(std::move(node)),
          indexes_(std::move(indexes)) {}

    void OnReserved(const ReservedBody& body) override;
    void OnWritten(std::uint32_t index, Outcome outcome,
                   absl::Duration retry_after) override;
    void OnSent(std::uint32_t) override {}
    void OnEnd(StreamEnd end, const absl::Status& why) override;

    std::uint64_t number() const { return number_; }
    const NodeAddress& node() const { return node_; }
    const Indexes& indexes() const { return indexes_; }

    // Null until the transport has said it.
    std::optional<StreamTransport::Ticket> ticket;
    // Its blocks go ahead of the answer.
    bool eager = false;
    // Indexes into indexes() to be sent, in order.
    std::vector<std::uint32_t> to_send;
    // The node has said something.
    bool answered = false;

   private:
    // Shared: it must outlive what its connection says of it.
    const std::shared_ptr<RemoteWriteOperation> write_;
    const std::uint64_t number_;
    const NodeAddress node_;
    const Indexes indexes_;
  };
  // Shared: see Flight.
  using FlightRef = std::shared_ptr<Flight>;

  // What one node still has to get.
  struct Queue {
    NodeAddress address;
    std::deque<Indexes> windows;
    std::size_t in_flight = 0;
  };

  // --- Begin, place, end.
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  void Place(const Indexes& indexes) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnPlaced(const Indexes& indexes,
                const absl::StatusOr<CatalogClient::PlaceAnswer>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Enqueue(const NodeAddress& node, std::size_t index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins what may begin, or ends the write where all has its outcome.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // A node's next window; null: none may begin.
  FlightRef NextFlight() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Outcome rest) ABSL_LOCKS_EXCLUDED(mutex_);
  WriteReport Settle(Outcome rest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndBlock(std::size_t index, Outcome outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The node cannot take it: it is placed anew, or ends.
  void TryElsewhere(std::size_t index, NodeId node, bool paid)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeIfQuiet() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- One flight.
  void StartFlight(const FlightRef& flight) ABSL_LOCKS_EXCLUDED(mutex_);
  StreamWrite WriteOf(const Flight& flight) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReserved(const FlightRef& flight, const ReservedBody& body)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends what is to be sent, if the ticket is there.
  void SendBlocks(const FlightRef& flight) ABSL_LOCKS_EXCLUDED(mutex_);
  void SendEach(const FlightRef& flight,
                const std::vector<std::uint32_t>& blocks)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWritten(const Flight& flight, std::uint32_t index, Outcome outcome,
                 absl::Duration retry_after) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFlightEnd(const Flight& flight, StreamEnd end)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void EndFlightBlocks(const Flight& flight, StreamEnd end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(const Flight& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ClientParts parts_;
  const WriteRequest request_;
  const BootTime started_;
  const BootTime deadline_;

  mutable Mutex mutex_;
  WriteDone done_ ABSL_GUARDED_BY(mutex_);
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
  // Without an outcome.
  std::size_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  absl::Duration retry_after_ ABSL_GUARDED_BY(mutex_);

  // To be placed anew.
  Indexes homeless_ ABSL_GUARDED_BY(mutex_);
  // Ordered, so that a seeded run is the same each time.
  std::map<NodeId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_flight_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, FlightRef> flights_ ABSL_GUARDED_BY(mutex_);
  // Threads that read the caller's buffers.
  int readers_ ABSL_GUARDED_BY(mutex_) = 0;

  // The outcome is decided; it was told; the buffers were given back.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  bool freed_ ABSL_GUARDED_BY(mutex_) = false;
  // It timed out: a node that has not answered by then has failed.
  bool timed_out_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_REMOTE_WRITE_OPERATION_H_
