// One connection of the stream transport: our hello, then read requests out and
// blocks back, several requests at a time, payload landing where its reader
// wants it (proto/base/frame.h), and writes (connection_writes.h).
//
// A block counts only once its whole payload has landed and its checksums,
// which came before it, agree with what lies in the reader's memory (rule T1).
// Everything that comes in is checked: whatever is not what was asked for ends
// the connection.
//
// Knows nothing of other connections, of retries, or of who asks:
// stream_transport.h has the pool.
//
// Threading. All methods may be called from any thread. Calls of one sink never
// overlap, run on the network's threads or inside a method here, under no lock.
//
// Ownership. Shared by the pool and by what is in flight on it: sends,
// receives, timers.

#ifndef FIRNKV_CLIENT_TRANSPORT_STREAM_CONNECTION_H_
#define FIRNKV_CLIENT_TRANSPORT_STREAM_CONNECTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/transport/byte_run.h"
#include "client/transport/byte_stream.h"
#include "client/transport/call_turn.h"
#include "client/transport/connection_writes.h"
#include "client/transport/lent_streams.h"
#include "client/transport/seams.h"
#include "client/transport/stream_write.h"
#include "proto/base/clock.h"
#include "proto/base/counter.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "proto/base/slot_header.h"

namespace firnkv {

// Who is expected at the other end.
struct StreamPeer {
  std::string address;
  NodeId node;
  NodeEpoch epoch = NodeEpoch::kNone;
};

// Who we are.
struct StreamCredentials {
  ClusterId cluster;
  std::string token;
};

struct StreamRead {
  NamespaceId name_space;
  // Copies of an older one are misses.
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  bool leading_run = false;
  BootTime deadline;
  TrafficClass traffic = TrafficClass::kForeground;
  TraceId trace;
  std::vector<ReadBody::Key> keys;
};

// What a read's bytes go into. Shared by its reader and its connection.
class StreamSink {
 public:
  virtual ~StreamSink() = default;

  // The block's bytes come next. Returns where they go: exactly header.length
  // bytes; or nothing, then they are thrown away and OnBlock is not called.
  virtual ByteRun OnHeader(std::size_t index, const SlotHeader& header) = 0;

  // The block's outcome. kHit: the bytes are where OnHeader said, and verified.
  virtual void OnBlock(std::size_t index, Outcome outcome,
                       absl::Duration retry_after) = 0;

  // Runs last and once: no memory of OnHeader is touched any more. Blocks
  // without an outcome have none.
  virtual void OnEnd(StreamEnd end, const absl::Status& why) = 0;
};

struct StreamCounters {
  Counter reads;
  Counter writes;
  Counter blocks;
  Counter connects;
  Counter failures;
};

class StreamConnection : public std::enable_shared_from_this<StreamConnection> {
 public:
  struct Parts {
    const Seams* seams;  // All outlive the connection.
    StreamCounters* counters;
  };
  StreamConnection(const Parts& parts, StreamPeer peer,
                   StreamCredentials credentials);
  // After Destroy, or before Connect.
  ~StreamConnection();

  // Once, right after construction.
  void Connect(absl::Duration timeout);

  // Begins a read, named by the result on this connection; nullopt where it is
  // closed (the sink is not called then).
  std::optional<std::uint64_t> StartRead(StreamRead read,
                                         std::shared_ptr<StreamSink> sink)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // As StartRead.
  std::optional<std::uint64_t> StartWrite(StreamWrite write,
                                          std::shared_ptr<StreamWriteSink> sink)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends one block of the write, also ahead of the node's answer to its
  // reservation. False: the write is over.
  bool SendBlock(std::uint64_t id, StreamBlock block)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Who asked has gone: OnEnd runs at once, unless its memory is being received
  // into or sent right now; then once that has ended, or after `grace`, when
  // the connection is closed. It is closed then too if it has been silent.
  void Cancel(std::uint64_t id, absl::Duration grace)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the connection and every read on it.
  void Close(StreamEnd end, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Close, and every callback has run on return. Not from inside one.
  void Destroy() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Of whoever chooses among connections.

  // Begins soon: until Unclaim it is not idle.
  void Claim() { load_.fetch_add(1, std::memory_order_relaxed); }
  void Unclaim() { load_.fetch_sub(1, std::memory_order_relaxed); }
  // Is `here`'s alone until it gives the stream back: what arrives is received,
  // and sinks are called, on that thread, which nobody else's read may be. True
  // if it is already; false where anything is begun on it by others. Then comes
  // LendTo.
  bool KeepFor(const LentStreams* here) ABSL_LOCKS_EXCLUDED(mutex_);
  void LendTo(LentStreams* here) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null: nobody's.
  const LentStreams* keeper() const {
    return keeper_.load(std::memory_order_acquire);
  }

  bool open() const ABSL_LOCKS_EXCLUDED(mutex_);
  // What it was, or will be, let in with.
  const std::string& token() const { return credentials_.token; }
  // Blocks asked for and not answered, and those of writes that are not over.
  std::size_t load() const {
    return load_.load(std::memory_order_relaxed) + writes_.load();
  }
  const StreamPeer& peer() const { return peer_; }

 private:
  struct Pending {
    StreamRead read;
    std::shared_ptr<StreamSink> sink;  // Shared: see StreamSink.
    // The next block's index is at least this.
    std::uint32_t next_index = 0;
    // Counted in load_.
    std::size_t unanswered = 0;
    bool sent = false;
    // Bytes are landing in the reader's memory, or a call of the sink runs.
    bool busy = false;
    bool cancelled = false;
  };
  // One thing to send: a read, its cancellation, or the report of a corrupt
  // copy that it was sent.
  struct Outgoing {
    FrameType type;
    std::uint64_t id;
    FoundCorruptBody corrupt = {};
  };
  enum class Phase : std::uint8_t { kLead, kBody, kPayload, kDiscard };

  // What the connection had done when something was cancelled on it.
  struct Progress {
    std::uint64_t frames = 0;
    std::uint64_t sends = 0;
  };
  void OnGraceOver(std::uint64_t id, Progress before)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnConnected(absl::StatusOr<std::unique_ptr<ByteStream>> stream);

  // Sending.
  void Send() ABSL_LOCKS_EXCLUDED(mutex_);
  void SendLoop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeOutgoing() ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeFrame() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The send has ended, somehow; false: the connection is over.
  bool OnSent() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string EncodeReadFrame(std::uint64_t id, const StreamRead& read) const;

  // Receiving, one phase after the other.
  void ReceiveLoop() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<absl::Span<std::byte>> NextPieces();
  ByteRun NextPart();
  bool OnReceived() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnLead();
  absl::Status OnFrame() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnHello();
  absl::Status OnBlock() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnHit(const StreamRead& read, StreamSink* sink)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnPayload() ABSL_LOCKS_EXCLUDED(mutex_);
  void ReportCorrupt() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReadEnd() ABSL_LOCKS_EXCLUDED(mutex_);
  void DiscardPayload();
  // The sink of `receiving_` was called; ends its read if it was cancelled
  // meanwhile.
  void LeaveSink() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a read that is not busy out of the table; its sink is to be ended.
  std::shared_ptr<StreamSink> TakeOut(std::uint64_t id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  // The stream, kept from being destroyed until Release; null once closed.
  ByteStream* Acquire() ABSL_LOCKS_EXCLUDED(mutex_);
  void Release() ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;
  const StreamPeer peer_;
  const StreamCredentials credentials_;
  std::atomic<std::size_t> load_{0};
  // Only compared. Set under mutex_.
  std::atomic<const LentStreams*> keeper_{nullptr};
  ConnectionWrites writes_;

  mutable Mutex mutex_;
  CondVar released_;
  std::unique_ptr<ByteStream> stream_ ABSL_GUARDED_BY(mutex_);
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  StreamEnd end_ ABSL_GUARDED_BY(mutex_) = StreamEnd::kServed;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  // Boxed: the receiving turn keeps a pointer over other calls.
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<Pending>> pending_
      ABSL_GUARDED_BY(mutex_);
  std::deque<Outgoing> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  bool hello_sent_ ABSL_GUARDED_BY(mutex_) = false;
  // Frames that came, and sends that ended; a connection that stands still is
  // told by them.
  std::uint64_t frames_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t sends_ ABSL_GUARDED_BY(mutex_) = 0;

  // Of the one send and the one receive outstanding: touched by whoever has
  // its turn.
  std::string send_frame_;
  ConnectionWrites::Outgoing send_write_;
  absl::Status send_status_;
  CallTurn send_turn_;

  Phase phase_ = Phase::kLead;
  bool greeted_ = false;
  std::string lead_bytes_;
  FrameLead lead_;
  std::string body_;
  BlockBody block_;
  ByteRun payload_;
  // Over payload_: what is still to be received of it.
  RunCursor landing_{{}};
  std::uint64_t landed_ = 0;
  // The part of it that is being received.
  ByteRun part_;
  // What has landed agrees with its checksums.
  bool sound_ = true;
  std::vector<std::byte> scratch_;
  std::uint64_t discard_left_ = 0;
  std::uint64_t receiving_ = 0;
  absl::Status receive_status_;
  CallTurn receive_turn_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_STREAM_CONNECTION_H_
