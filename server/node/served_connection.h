// The node's end of one stream connection: hello and token, then reads, each
// answered by a kBlock frame a key, in order, and a kReadEnd
// (proto/base/frame.h), and writes (stream_writes.h).
//
// Sending. One send at a time, of what stream_answer.h gives; its holds end
// when the transport no longer needs the memory (rule P8). Every response has a
// wall deadline (rule T3): a send that is still under way `grace` after it ends
// the connection, however the reader drips.
//
// Reading. Requests are pipelined; while max_requests of them, or max_keys
// keys, are unanswered, nothing more is received. So a connection costs at most
// (max_keys + 4,096) * 40 bytes and one frame body. A block's payload is
// received step by step; each step has frame_timeout, all of them until `grace`
// behind the write's deadline: a writer that stalls or drips loses its
// connection, and its slots come back.
//
// A peer may be hostile: what it sends is bounded and decoded by frame.h, and
// whatever breaks the protocol is refused with its reason, and ends the
// connection.
//
// Threading. Thread-safe. One mutex, never held over the stream, the pool or a
// callback.
//
// Ownership. Owned by StreamServer; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_SERVED_CONNECTION_H_
#define FIRNKV_SERVER_NODE_SERVED_CONNECTION_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/byte_stream.h"
#include "proto/base/bytes.h"
#include "proto/base/executor.h"
#include "proto/base/frame.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/random.h"
#include "proto/base/token.h"
#include "server/base/log.h"
#include "server/node/copy_checks.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_credentials.h"
#include "server/node/node_metrics.h"
#include "server/node/stream_answer.h"
#include "server/node/stream_writes.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class ServedConnection {
 public:
  struct Options {
    NodeId node;
    NodeEpoch epoch = NodeEpoch::kNone;
    absl::Duration hello_timeout = absl::Seconds(5);
    // From a frame's lead to the end of its body.
    absl::Duration frame_timeout = absl::Seconds(5);
    absl::Duration longest_response = absl::Seconds(30);
    absl::Duration grace = absl::Seconds(1);
    // Between a refusal and the close.
    absl::Duration refusal_linger = absl::Milliseconds(500);
    std::size_t max_requests = 16;
    std::size_t max_keys = 8192;
    // Reports of corrupt copies that wait for their check; more are dropped:
    // whoever reads the copy next reports it again.
    std::size_t max_checks = 16;
    StreamAnswer::Options answer;
    StreamWrites::Options writes;
  };
  struct Parts {
    Executor* executor = nullptr;
    Logger* log = nullptr;
    NodeCredentials* credentials = nullptr;
    NamespaceCache* namespaces = nullptr;
    DramPool* pool = nullptr;
    CopyChecks* checks = nullptr;
    NodeMetrics* metrics = nullptr;
    // Null: nobody hears of reads that missed.
    CatalogLink* link = nullptr;
    // Reads that are being answered, of all connections.
    std::atomic<std::int64_t>* busy = nullptr;
    // Of writes. Null: none are taken.
    WritePath* writes = nullptr;
    Reservations* reservations = nullptr;
    SessionRegistry* registry = nullptr;
    Random* random = nullptr;
  };
  struct Callbacks {
    // Who the peer is; its answer may refuse the connection (caps).
    absl::AnyInvocable<absl::Status(const TokenClaims&)> on_identified;
    // Once. The connection may be destroyed from a task then, not from inside.
    absl::AnyInvocable<void() &&> on_closed;
  };

  ServedConnection(const Options& options, const Parts& parts,
                   std::unique_ptr<ByteStream> stream, Callbacks callbacks);
  ~ServedConnection();

  void Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends it now. Idempotent.
  void Close(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Says why, and closes once that has been sent.
  void Refuse(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What one StartSend carries, and what follows from its end.
  struct Outgoing {
    OutgoingFrames frames;
    // Rule T3.
    BootTime deadline;
    // The answer that it finishes; null: none.
    const StreamAnswer* finishes = nullptr;
    // It says something of writes, which may be what new ones waited for.
    bool makes_room = false;
    bool closes = false;
  };
  // Where one direction is. A completion that comes before its start has
  // returned is handled by the loop that started it, so that a fast peer costs
  // no stack.
  enum class Step : std::uint8_t {
    kNone,
    kStarting,
    kDoneInside,
    kOutside,
    // The completion has come and is being handled.
    kHandling,
  };

  // What comes next: a lead, the body that it announces, the payload.
  enum class Phase : std::uint8_t { kLead, kBody, kPayload };

  // Receiving, in the order in which it runs.
  void ReceiveFrames() ABSL_LOCKS_EXCLUDED(mutex_);
  bool MayReceive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: there is nowhere to put the payload yet.
  bool StartReceive() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnReceived(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // False: the connection ends.
  bool HandleReceived(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnBytes() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnFrame(const FrameLead& lead) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnHello() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnRead(std::uint64_t request) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnNamespace(std::uint64_t request, NamespaceCache::Answer answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel(std::uint64_t request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnReserve(std::uint64_t request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnWrite(const FrameLead& lead) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWritesChanged() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnFoundCorrupt() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndCheck() ABSL_LOCKS_EXCLUDED(mutex_);

  // Sending, in the order in which it runs.
  void SendFrames() ABSL_LOCKS_EXCLUDED(mutex_);
  // What is to be sent next; false: nothing, or a send is under way.
  bool TakeOutgoing(Outgoing* outgoing) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnSent(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HandleSent(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishAnswer(const StreamAnswer* answer) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReceiveSoon() ABSL_LOCKS_EXCLUDED(mutex_);

  TimerId CloseAt(BootTime when, const char* why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Parts parts_;
  Callbacks callbacks_;

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // A refusal is to be sent or was: nothing is received any more.
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
  bool identified_ ABSL_GUARDED_BY(mutex_) = false;
  TokenClaims claims_ ABSL_GUARDED_BY(mutex_);

  // Receiving: a lead, then the body that it announces. Written by the stream
  // between a start and its completion, by nobody else.
  std::array<char, kFrameLeadBytes> lead_bytes_;
  std::string body_bytes_;
  Step receiving_ ABSL_GUARDED_BY(mutex_) = Step::kNone;
  absl::Status received_ ABSL_GUARDED_BY(mutex_);
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kLead;
  // There may be somewhere to put a payload since the last look.
  bool writes_changed_ ABSL_GUARDED_BY(mutex_) = false;
  FrameLead lead_ ABSL_GUARDED_BY(mutex_);
  // For the hello, then for each frame's body and each step of a payload.
  TimerId receive_timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;

  // Sending. Frames that go ahead of answers: the hello, a refusal.
  std::deque<std::string> first_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<StreamAnswer>> answers_ ABSL_GUARDED_BY(mutex_);
  std::size_t keys_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t checks_ ABSL_GUARDED_BY(mutex_) = 0;
  Step sending_ ABSL_GUARDED_BY(mutex_) = Step::kNone;
  absl::Status sent_ ABSL_GUARDED_BY(mutex_);
  TimerId send_timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  // What the stream reads until the send's completion.
  Outgoing outgoing_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
  // Null: none are taken. What lands needs it until the stream is gone.
  const std::unique_ptr<StreamWrites> writes_;
  // Last: its completions use all of the above until its destructor returns.
  const std::unique_ptr<ByteStream> stream_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_SERVED_CONNECTION_H_
