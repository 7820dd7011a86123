// One worker that plays requests as an inference engine would: reads the
// leading run of the prompt's blocks, checks every byte of every hit, and
// writes what was missing as if it had computed it, in chain order.
//
// A block's key, anchor and parent come from the SDK's recipe for chains
// (client/chain.h); the engine's hash of a block is its id in the trace as 8
// bytes, little-endian. Its bytes are BlockContent's.
//
// Threading: one worker's own.

#ifndef FIRNKV_TOOLS_REPLAY_REQUEST_PLAYER_H_
#define FIRNKV_TOOLS_REPLAY_REQUEST_PLAYER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/chain.h"
#include "client/namespace.h"
#include "client/write.h"
#include "proto/base/bytes.h"
#include "proto/base/clock.h"
#include "tools/replay/pool_access.h"
#include "tools/replay/replay_tally.h"
#include "tools/replay/trace.h"

namespace firnkv {

// The chain of a request, by the recipe above.
Chain MakeTraceChain(const TraceRequest& request, std::uint32_t block_tokens);

class RequestPlayer {
 public:
  struct Options {
    NamespaceHandle name_space;
    std::uint64_t block_bytes = 64 * kKiB;
    std::uint32_t block_tokens = 512;
    absl::Duration read_deadline = absl::Seconds(5);
    absl::Duration write_deadline = absl::Seconds(10);
    // Shared memory for blocks; how many of them one call has at most. At least
    // one block's.
    std::uint64_t buffer_bytes = 64 * kMiB;
  };

  // All outlive it.
  RequestPlayer(const Options& options, PoolAccess* pool, const Clock* clock);

  // Takes its memory; before the first Play.
  absl::Status Prepare();

  struct Turn {
    // The request's in the trace.
    std::size_t number = 0;
    // What its writes wait for.
    WriteWait wait_for = WriteWait::kLocal;
  };
  void Play(const Turn& turn, const TraceRequest& request);

  const ReplayTally& tally() const { return tally_; }
  ReplayTally& tally() { return tally_; }

 private:
  absl::Span<std::byte> BufferOf(std::size_t index) const {
    return buffer_.subspan(index * stride_, options_.block_bytes);
  }
  // Reads blocks [begin, end) of the chain; how many of them, from the front,
  // are hits.
  std::size_t ReadBatch(std::size_t number, const Chain& chain,
                        std::size_t begin, std::size_t end);
  void WriteBatch(WriteWait wait_for, const Chain& chain, std::size_t begin,
                  std::size_t end);
  void Check(std::size_t number, std::size_t position, const BlockKey& key,
             absl::Span<const std::byte> bytes);
  // False, and counted, unless `status` is OK.
  bool CountCall(const absl::Status& status);

  const Options options_;
  PoolAccess& pool_;
  const Clock& clock_;
  // Blocks begin on pages.
  const std::uint64_t stride_;
  const std::size_t batch_blocks_;
  absl::Span<std::byte> buffer_;
  ReplayTally tally_;
  // Of the call at work.
  std::vector<Buffer> destinations_;
  std::vector<ConstBuffer> sources_;
  std::vector<ReadTarget> targets_;
  std::vector<WriteBlock> writes_;
};

}  // namespace firnkv

#endif  // FIRNKV_TOOLS_REPLAY_REQUEST_PLAYER_H_
