// One read over the stream, and how far it has been answered: a kBlock frame a
// key, in order, then a kReadEnd.
//
// Blocks are looked up when their turn comes, under holds that go with the
// frames (rule P8); checksums stand in the frame ahead of the payload (rule
// T1). Keys whose turn comes after the deadline are kTimedOut (rule T3).
//
// Does not know: the connection, when to send.
//
// Threading. None. The connection's mutex protects the flags (Resolve, Cancel,
// ready, cancelled); everything else belongs to whoever is sending.
//
// Owned by ServedConnection; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_STREAM_ANSWER_H_
#define FIRNKV_SERVER_NODE_STREAM_ANSWER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "proto/base/frame.h"
#include "server/node/namespace_cache.h"
#include "server/node/node_metrics.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

class CatalogLink;

// The bytes of one frame without its payload.
std::string MakeFrame(FrameType type, std::uint64_t request,
                      const std::string& body, std::uint64_t payload_bytes = 0);

// What one send carries: frames, and the payload between them, which lies in
// slots that the holds keep.
class OutgoingFrames {
 public:
  // `frame` is of MakeFrame. `payload` may be empty; `hold` is on it.
  void Append(const std::string& frame, absl::Span<const std::byte> payload,
              Hold hold);
  // For ByteStream::StartSend; valid until this is moved or changed.
  std::vector<absl::Span<const std::byte>> Pieces() const;
  // The transport needs the memory no longer.
  void EndHolds() { holds_.clear(); }

 private:
  // Bytes of `text_` where `payload` is empty. Neighbours without payload
  // between them are one piece.
  struct Piece {
    std::size_t begin = 0;
    std::size_t bytes = 0;
    absl::Span<const std::byte> payload;
  };
  std::string text_;
  std::vector<Piece> pieces_;
  std::vector<Hold> holds_;
};

class StreamAnswer {
 public:
  struct Options {
    // Payload and keys of one send; a longer block goes alone.
    std::uint64_t send_bytes = kMiB;
    std::size_t send_keys = 256;
    // Said with kCongested.
    absl::Duration retry_after = absl::Milliseconds(20);
  };
  struct Parts {
    DramPool* pool = nullptr;
    NodeMetrics* metrics = nullptr;
    // Hears of keys that are not here. Null: nobody does.
    CatalogLink* link = nullptr;
    // Counts answers that are alive. Relaxed: a hint to whoever gives way.
    std::atomic<std::int64_t>* busy = nullptr;
  };

  StreamAnswer(const Options& options, const Parts& parts,
               std::uint64_t request, ReadBody body, BootTime started,
               BootTime deadline);
  StreamAnswer(const StreamAnswer&) = delete;
  StreamAnswer& operator=(const StreamAnswer&) = delete;
  ~StreamAnswer();

  // --- Under the connection's mutex.
  // Who may see the namespace is known. The first time counts.
  void Resolve(NamespaceCache::Answer answer);
  // No more than has been begun is to be sent.
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  // There is something to fill.
  bool ready() const { return resolved_ || cancelled_; }

  // --- By whoever is sending; `cancelled` as it was under the mutex.
  // Appends what is to be sent next. True: with its end; the answer is over.
  bool Fill(BootTime now, bool cancelled, OutgoingFrames* frames);

  std::uint64_t request() const { return request_; }
  std::size_t keys() const { return body_.keys.size(); }
  BootTime started() const { return started_; }
  BootTime deadline() const { return deadline_; }

 private:
  void FillFromPool(const PoolNamespace& name_space, OutgoingFrames* frames);
  void FillRest(Outcome outcome, OutgoingFrames* frames);
  void AppendBlock(HeldBlock block, OutgoingFrames* frames);

  const Options options_;
  const Parts parts_;
  const std::uint64_t request_;
  const ReadBody body_;
  const BootTime started_;
  const BootTime deadline_;

  bool resolved_ = false;
  bool cancelled_ = false;
  // Facts, or what every key is told. Written once, before `resolved_`.
  NamespaceCache::Answer name_space_ = Outcome::kUnset;

  // First key that is not answered.
  std::size_t next_ = 0;
  // The leading run is over: the rest is kSkipped.
  bool run_over_ = false;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_STREAM_ANSWER_H_
