// The receiving half of a stream connection: frames in, payload to where it is
// wanted, everything checked. What begins, sends and ends stands in
// stream_connection.cc.

#include <algorithm>
#include <utility>

#include "client/transport/stream_connection.h"
#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Payload is received, and checked, in parts of whole pieces: the checksum
// finds the received bytes in a cache of the second level still.
constexpr std::uint64_t kPartBytes = 2 * kPieceBytes;

// Payload that nobody wants passes through this much memory.
constexpr std::size_t kScratchBytes = 64 * kKiB;

absl::Span<std::byte> BytesOf(std::string* text) {
  return {reinterpret_cast<std::byte*>(text->data()), text->size()};
}

absl::Status Nonsense(std::string_view what) {
  return absl::InternalError(StrCat("the node sent ", what));
}

// How a read ends on a connection that failed so.
StreamEnd EndOf(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return StreamEnd::kRefused;
    case absl::StatusCode::kAborted:
      return StreamEnd::kOtherRun;
    case absl::StatusCode::kCancelled:
      return StreamEnd::kCancelled;
    default:
      return StreamEnd::kBroken;
  }
}

}  // namespace

void StreamConnection::ReceiveLoop() {
  for (;;) {
    ByteStream* const stream = Acquire();
    if (stream == nullptr) {
      if (receiving_ != 0) LeaveSink();
      return;
    }
    receive_turn_.Begin();
    stream->StartReceive(
        NextPieces(),
        // Shared: the memory received into is this connection's or its reads'.
        [self = shared_from_this()](absl::Status status) {
          self->receive_status_ = std::move(status);
          if (!self->receive_turn_.Second()) return;
          if (self->OnReceived()) self->ReceiveLoop();
        });
    Release();
    if (!receive_turn_.Second()) return;
    if (!OnReceived()) return;
  }
}

std::vector<absl::Span<std::byte>> StreamConnection::NextPieces() {
  switch (phase_) {
    case Phase::kLead:
      return {BytesOf(&lead_bytes_)};
    case Phase::kBody:
      return {BytesOf(&body_)};
    case Phase::kPayload:
      part_ = NextPart();
      return part_;
    case Phase::kDiscard:
      scratch_.resize(kScratchBytes);
      return {absl::MakeSpan(
          scratch_.data(),
          std::min<std::uint64_t>(discard_left_, kScratchBytes))};
  }
  return {};
}

ByteRun StreamConnection::NextPart() {
  ByteRun part;
  std::uint64_t left = std::min(kPartBytes, block_.header.length - landed_);
  while (left > 0) {
    const absl::Span<std::byte> place = landing_.Take(left);
    part.push_back(place);
    left -= place.size();
  }
  return part;
}

// False: the connection is over.
bool StreamConnection::OnReceived() {
  absl::Status status = receive_status_;
  if (status.ok()) {
    switch (phase_) {
      case Phase::kLead:
        status = OnLead();
        break;
      case Phase::kBody:
        status = OnFrame();
        break;
      case Phase::kPayload:
        OnPayload();
        break;
      case Phase::kDiscard:
        discard_left_ -= std::min<std::uint64_t>(discard_left_, kScratchBytes);
        if (discard_left_ == 0) phase_ = Phase::kLead;
        break;
    }
  }
  if (status.ok()) return true;
  Fail(status);
  // Nothing lands any more: who waited for that is free.
  if (receiving_ != 0) LeaveSink();
  return false;
}

absl::Status StreamConnection::OnLead() {
  ASSIGN_OR_RETURN(lead_, DecodeLead(lead_bytes_));
  {
    MutexLock lock(&mutex_);
    ++frames_;
  }
  body_.assign(lead_.body_bytes, '\0');
  if (lead_.body_bytes == 0) return OnFrame();
  phase_ = Phase::kBody;
  return absl::OkStatus();
}

absl::Status StreamConnection::OnFrame() {
  phase_ = Phase::kLead;
  if (lead_.type == FrameType::kRefused) {
    ASSIGN_OR_RETURN(const RefusedBody refused, DecodeRefused(body_));
    if (refused.reason.ok()) return Nonsense("a refusal without a reason");
    if (greeted_ && absl::IsUnauthenticated(refused.reason)) {
      // The token that it was let in with has ended: the next connection has
      // another one. Not a caller who may not.
      return absl::UnavailableError(refused.reason.message());
    }
    return refused.reason;
  }
  if (!greeted_ && lead_.type != FrameType::kHello) {
    return Nonsense("something before its hello");
  }
  switch (lead_.type) {
    case FrameType::kHello:
      return OnHello();
    case FrameType::kBlock:
      return OnBlock();
    case FrameType::kReadEnd:
      OnReadEnd();
      return absl::OkStatus();
    case FrameType::kRefused:
    case FrameType::kRead:
    case FrameType::kCancel:
    case FrameType::kFoundCorrupt:
    case FrameType::kReserve:
    case FrameType::kWrite:
    case FrameType::kCallOpenRead:
    case FrameType::kCallOpened:
    case FrameType::kCallRelease:
    case FrameType::kCallReserve:
    case FrameType::kCallReserved:
    case FrameType::kCallCommit:
    case FrameType::kCallCommitted:
    case FrameType::kCallFailed:
      break;
    case FrameType::kReserved:
    case FrameType::kWritten:
    case FrameType::kWriteEnd:
      return writes_.OnFrame(lead_, body_);
  }
  return Nonsense("a frame that no server sends here");
}

absl::Status StreamConnection::OnHello() {
  if (greeted_) return Nonsense("a second hello");
  ASSIGN_OR_RETURN(const HelloBody hello, DecodeHello(body_));
  const Handshake ours{.cluster = credentials_.cluster,
                       .test_vector = HandshakeTestVector()};
  ASSIGN_OR_RETURN(const std::uint32_t protocol, Agree(ours, hello.handshake));
  if (!peer_.node.IsZero() && hello.node != peer_.node) {
    return absl::AbortedError(StrCat("another node is at ", peer_.address));
  }
  if (peer_.epoch != NodeEpoch::kNone && hello.epoch != peer_.epoch) {
    return absl::AbortedError("the node was restarted");
  }
  greeted_ = true;
  writes_.OnGreeted(protocol);
  // Writes have waited for it.
  Send();
  return absl::OkStatus();
}

absl::Status StreamConnection::OnBlock() {
  ASSIGN_OR_RETURN(block_, DecodeBlock(body_));
  const bool hit = block_.outcome == Outcome::kHit;
  if (lead_.payload_bytes != (hit ? block_.header.length : 0)) {
    return Nonsense("a payload of another length than its block");
  }
  // Valid without the lock too: a busy read is taken out by this turn only, and
  // nobody changes what was asked.
  Pending* pending = nullptr;
  {
    MutexLock lock(&mutex_);
    if (lead_.request == 0 || lead_.request >= next_id_) {
      return Nonsense("a block that nobody asked for");
    }
    const auto it = pending_.find(lead_.request);
    // Its reader has gone.
    if (it == pending_.end() || it->second->cancelled) {
      DiscardPayload();
      return absl::OkStatus();
    }
    pending = it->second.get();
    if (block_.index < pending->next_index ||
        block_.index >= pending->read.keys.size()) {
      return Nonsense("a block out of its order");
    }
    pending->next_index = block_.index + 1;
    pending->busy = true;
    --pending->unanswered;
    receiving_ = lead_.request;
    load_.fetch_sub(1, std::memory_order_relaxed);
  }
  StreamSink* const sink = pending->sink.get();
  if (hit) return OnHit(pending->read, sink);
  sink->OnBlock(block_.index, block_.outcome, block_.retry_after);
  LeaveSink();
  return absl::OkStatus();
}

absl::Status StreamConnection::OnHit(const StreamRead& read, StreamSink* sink) {
  const SlotHeader& header = block_.header;
  const ReadBody::Key& wanted = read.keys[block_.index];
  if (header.block != BlockId{read.name_space, wanted.key}) {
    return Nonsense("another block than was asked for");
  }
  if (header.length > wanted.room) {
    return Nonsense("a longer block than there is room for");
  }
  if (header.clear_epoch < read.clear_epoch) {
    // Of before a clear that the node has not heard of (rule C2).
    sink->OnBlock(block_.index, Outcome::kMiss, absl::ZeroDuration());
    DiscardPayload();
    LeaveSink();
    return absl::OkStatus();
  }
  payload_ = sink->OnHeader(block_.index, header);
  if (RunBytes(payload_) != header.length) {
    DiscardPayload();
    LeaveSink();
    return absl::OkStatus();
  }
  landing_ = RunCursor(payload_);
  landed_ = 0;
  sound_ = header.pieces.size() == DivideUp(header.length, kPieceBytes);
  phase_ = Phase::kPayload;
  return absl::OkStatus();
}

void StreamConnection::OnPayload() {
  const std::uint64_t bytes = RunBytes(part_);
  if (sound_) {
    sound_ = PiecesMatch(
        part_, bytes,
        absl::MakeConstSpan(block_.header.pieces)
            .subspan(landed_ / kPieceBytes, DivideUp(bytes, kPieceBytes)));
  }
  landed_ += bytes;
  if (landed_ < block_.header.length) return;
  phase_ = Phase::kLead;
  parts_.counters->blocks.Add();
  std::shared_ptr<StreamSink> sink;
  {
    MutexLock lock(&mutex_);
    sink = pending_.at(receiving_)->sink;
  }
  if (!sound_) ReportCorrupt();
  sink->OnBlock(block_.index, sound_ ? Outcome::kHit : Outcome::kCorrupt,
                absl::ZeroDuration());
  LeaveSink();
}

// Rule P12: the node checks for itself. At most one for each block that came.
void StreamConnection::ReportCorrupt() {
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    outgoing_.push_back({FrameType::kFoundCorrupt,
                         receiving_,
                         {block_.header.block, block_.header.generation}});
  }
  Send();
}

void StreamConnection::OnReadEnd() {
  std::shared_ptr<StreamSink> sink;
  {
    MutexLock lock(&mutex_);
    if (!pending_.contains(lead_.request)) return;
    sink = TakeOut(lead_.request);
  }
  sink->OnEnd(StreamEnd::kServed, absl::OkStatus());
}

void StreamConnection::DiscardPayload() {
  discard_left_ = lead_.payload_bytes;
  phase_ = discard_left_ == 0 ? Phase::kLead : Phase::kDiscard;
}

void StreamConnection::LeaveSink() {
  std::shared_ptr<StreamSink> ended;
  StreamEnd end = StreamEnd::kCancelled;
  absl::Status why;
  {
    MutexLock lock(&mutex_);
    const auto it = pending_.find(receiving_);
    receiving_ = 0;
    if (it == pending_.end()) return;
    it->second->busy = false;
    if (!it->second->cancelled && !closed_) return;
    if (!it->second->cancelled) {
      end = end_;
      why = why_;
    }
    ended = TakeOut(it->first);
  }
  ended->OnEnd(end, why);
}

void StreamConnection::Fail(const absl::Status& why) {
  Close(EndOf(why), Annotate(why, peer_.address));
}

}  // namespace firnkv
