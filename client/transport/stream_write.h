// What a write over the stream is made of, for who asks for one
// (stream_transport.h) and for the connection that it goes over.

#ifndef FIRNKV_CLIENT_TRANSPORT_STREAM_WRITE_H_
#define FIRNKV_CLIENT_TRANSPORT_STREAM_WRITE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/base/clock.h"
#include "proto/base/id.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "proto/base/write_frame.h"

namespace firnkv {

enum class StreamEnd : std::uint8_t {
  // Every block that will have an outcome has one.
  kServed,
  // No connection.
  kUnreachable,
  // Cut in between, or silent, or nonsense came.
  kBroken,
  // The node does not serve this caller: never tried elsewhere.
  kRefused,
  // Another node, or another run of it: the location is stale.
  kOtherRun,
  // The node is of a version that takes no writes over the stream.
  kTooOld,
  // By Cancel or Close.
  kCancelled,
};

struct StreamWrite {
  NamespaceId name_space;
  ClearEpoch clear_epoch = ClearEpoch::kUnknown;
  BootTime deadline;
  absl::Duration reserve_for;
  std::uint32_t wait_for = 0;
  std::uint32_t session_state = 0;
  std::string conversation;
  TrafficClass traffic = TrafficClass::kBackgroundWrite;
  TraceId trace;
  // At most kMaxReserveBlocks.
  std::vector<ReserveBody::Block> blocks;
};

// One block's bytes, with the checksums of their pieces.
struct StreamBlock {
  // In the write's blocks.
  std::uint32_t index = 0;
  std::vector<std::uint32_t> pieces;
  // Untouched until OnSent or OnEnd.
  std::vector<absl::Span<const std::byte>> bytes;
};

// Who hears of a write. Shared by its writer and its connection.
//
// Threading. Calls come from any thread, under no lock, and may overlap, but
// for OnEnd: it is the last one.
class StreamWriteSink {
 public:
  virtual ~StreamWriteSink() = default;

  // Once, where the node answered at all. As many outcomes as blocks, or a
  // failure and none.
  virtual void OnReserved(const ReservedBody& body) = 0;
  // A block's last outcome, after its bytes were sent.
  virtual void OnWritten(std::uint32_t index, Outcome outcome,
                         absl::Duration retry_after) = 0;
  // The block's memory is not needed any more. (The node may not have it yet.)
  virtual void OnSent(std::uint32_t index) = 0;
  // Runs last and once: no memory of any block is touched any more. Blocks
  // without an outcome have none.
  virtual void OnEnd(StreamEnd end, const absl::Status& why) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_STREAM_WRITE_H_
