// The writes of one stream connection: what is to be sent for them next, and
// what the node said of them (proto/base/write_frame.h).
//
// Nothing is sent before the node's hello: it says whether the node knows
// writes. Frames go in the order in which they were asked for.
//
// Does not know: the stream, other connections, timers.
//
// Threading. Thread-safe. One mutex, never held over a sink's method.
//
// Ownership. A member of StreamConnection. Sinks are shared with their writers.

#ifndef FIRNKV_CLIENT_TRANSPORT_CONNECTION_WRITES_H_
#define FIRNKV_CLIENT_TRANSPORT_CONNECTION_WRITES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/transport/stream_write.h"
#include "proto/base/clock.h"
#include "proto/base/frame.h"
#include "proto/base/mutex.h"

namespace firnkv {

class ConnectionWrites {
 public:
  ConnectionWrites() = default;
  ConnectionWrites(const ConnectionWrites&) = delete;
  ConnectionWrites& operator=(const ConnectionWrites&) = delete;

  // `id` is higher than any before. False: everything was ended. Calls no sink;
  // then comes EndIfTooOld, which may.
  bool Add(std::uint64_t id, StreamWrite write,
           std::shared_ptr<StreamWriteSink> sink) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndIfTooOld() ABSL_LOCKS_EXCLUDED(mutex_);
  // False: the write is over, and the block's memory is not touched.
  bool AddBlock(std::uint64_t id, StreamBlock block)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Its writer has gone: what was not sent is not. OnEnd runs once no memory
  // of it is being sent, which may be now.
  void Cancel(std::uint64_t id) ABSL_LOCKS_EXCLUDED(mutex_);
  // The connection is over, as above for all, in the order in which they were
  // asked. Idempotent.
  void EndAll(StreamEnd end, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks of writes whose OnEnd has not run.
  std::size_t load() const { return load_.load(std::memory_order_relaxed); }
  // OnEnd has not run.
  bool Has(std::uint64_t id) const ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Sending.

  struct Outgoing {
    // Lead and body.
    std::string frame;
    // Behind it.
    std::vector<absl::Span<const std::byte>> payload;
    // Whose memory that is; 0: nobody's.
    std::uint64_t id = 0;
    std::uint32_t index = 0;
  };
  // What goes next; nullopt: nothing does.
  std::optional<Outgoing> TakeNext(BootTime now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Its memory is not needed any more.
  void Sent(const Outgoing& outgoing) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Receiving.

  // The node's hello has come: the version to speak.
  void OnGreeted(std::uint32_t protocol) ABSL_LOCKS_EXCLUDED(mutex_);
  // A kReserved, kWritten or kWriteEnd. Not OK: nonsense.
  absl::Status OnFrame(const FrameLead& lead, std::string_view body)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Write {
    StreamWrite request;
    std::shared_ptr<StreamWriteSink> sink;  // Shared: see StreamWriteSink.
    std::deque<StreamBlock> blocks;
    bool reserve_sent = false;
    bool reserved = false;
    // Sends of its memory and calls of its sink that are under way.
    int users = 0;
    // How it ends, once there is none.
    std::optional<StreamEnd> end;
    absl::Status why;
  };
  // One frame to be sent.
  struct Turn {
    FrameType type;
    std::uint64_t id;
  };
  // A sink to be told the end of its write, under no lock.
  struct Ended {
    std::shared_ptr<StreamWriteSink> sink;
    StreamEnd end;
    absl::Status why;
  };

  // The sink of a write that is not over, with one more user; null: over.
  std::shared_ptr<StreamWriteSink> Enter(std::uint64_t id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(std::uint64_t id) ABSL_LOCKS_EXCLUDED(mutex_);
  // It is over; its sink hears of it now, or by Leave.
  std::optional<Ended> End(std::uint64_t id, StreamEnd end, absl::Status why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Ended> TakeOut(std::uint64_t id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Everything that is not over, in the order in which it was asked for.
  std::vector<Ended> EndEach(StreamEnd end, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Tell(const std::optional<Ended>& ended);
  static std::string EncodeReserveFrame(std::uint64_t id,
                                        const StreamWrite& write, BootTime now);

  absl::Status OnReserved(std::uint64_t id, std::string_view body)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnWritten(std::uint64_t id, std::string_view body)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Relaxed: a hint to whoever chooses a connection.
  std::atomic<std::size_t> load_{0};
  mutable Mutex mutex_;
  // 0: not greeted.
  std::uint32_t protocol_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t highest_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Write> writes_ ABSL_GUARDED_BY(mutex_);
  std::deque<Turn> turns_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_CONNECTION_WRITES_H_
