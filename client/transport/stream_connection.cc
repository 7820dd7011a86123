#include "client/transport/stream_connection.h"

#include <algorithm>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

absl::Span<std::byte> BytesOf(std::string* text) {
  return {reinterpret_cast<std::byte*>(text->data()), text->size()};
}

}  // namespace

StreamConnection::StreamConnection(const Parts& parts, StreamPeer peer,
                                   StreamCredentials credentials)
    : parts_(parts),
      peer_(std::move(peer)),
      credentials_(std::move(credentials)),
      lead_bytes_(kFrameLeadBytes, '\0') {}

StreamConnection::~StreamConnection() = default;

void StreamConnection::Connect(absl::Duration timeout) {
  parts_.counters->connects.Add();
  // Shared: the network may answer after everybody else has let go.
  parts_.seams->network->StartConnect(
      peer_.address, timeout,
      [self = shared_from_this()](
          absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
        self->OnConnected(std::move(stream));
      });
}

void StreamConnection::OnConnected(
    absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
  if (!stream.ok()) {
    parts_.counters->failures.Add();
    Close(StreamEnd::kUnreachable, stream.status());
    return;
  }
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    stream_ = *std::move(stream);
    // Until the first receive waits: Destroy must not return before.
    ++users_;
  }
  Send();
  ReceiveLoop();
  Release();
}

std::optional<std::uint64_t> StreamConnection::StartRead(
    StreamRead read, std::shared_ptr<StreamSink> sink) {
  std::uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    if (closed_) return std::nullopt;
    id = next_id_++;
    load_.fetch_add(read.keys.size(), std::memory_order_relaxed);
    auto pending = std::make_unique<Pending>();
    pending->unanswered = read.keys.size();
    pending->read = std::move(read);
    pending->sink = std::move(sink);
    pending_.emplace(id, std::move(pending));
    outgoing_.push_back({FrameType::kRead, id});
  }
  parts_.counters->reads.Add();
  Send();
  return id;
}

std::optional<std::uint64_t> StreamConnection::StartWrite(
    StreamWrite write, std::shared_ptr<StreamWriteSink> sink) {
  std::uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    if (closed_) return std::nullopt;
    id = next_id_++;
    if (!writes_.Add(id, std::move(write), std::move(sink))) {
      return std::nullopt;
    }
  }
  parts_.counters->writes.Add();
  writes_.EndIfTooOld();
  Send();
  return id;
}

bool StreamConnection::SendBlock(std::uint64_t id, StreamBlock block) {
  if (!writes_.AddBlock(id, std::move(block))) return false;
  Send();
  return true;
}

void StreamConnection::Cancel(std::uint64_t id, absl::Duration grace) {
  std::shared_ptr<StreamSink> ended;
  Progress before;
  const bool write = writes_.Has(id);
  {
    MutexLock lock(&mutex_);
    const auto it = pending_.find(id);
    if (!write && (it == pending_.end() || it->second->cancelled)) return;
    before = {.frames = frames_, .sends = sends_};
    if (!write) {
      it->second->cancelled = true;
      const bool sent = it->second->sent;
      if (!it->second->busy) ended = TakeOut(id);
      if (sent && !closed_) outgoing_.push_back({FrameType::kCancel, id, {}});
      // Nobody has heard of it.
      if (!sent) before.frames = UINT64_MAX;
    }
  }
  if (write) writes_.Cancel(id);
  if (ended != nullptr) {
    ended->OnEnd(StreamEnd::kCancelled, absl::CancelledError("by the reader"));
  }
  Send();
  parts_.seams->executor->PostAt(parts_.seams->clock->Now() + grace,
                                 // Weak: a timer keeps no connection.
                                 [weak = weak_from_this(), id, before] {
                                   if (const auto self = weak.lock())
                                     self->OnGraceOver(id, before);
                                 });
}

void StreamConnection::OnGraceOver(std::uint64_t id, Progress before) {
  {
    MutexLock lock(&mutex_);
    // The cancellation itself is a send that ends: only one that is under way
    // behind it shows that the node takes something.
    const bool moves =
        frames_ != before.frames || (sending_ && sends_ != before.sends);
    if (!pending_.contains(id) && !writes_.Has(id) && moves) return;
  }
  Close(StreamEnd::kBroken, absl::UnavailableError("the node has been silent"));
}

void StreamConnection::Close(StreamEnd end, const absl::Status& why) {
  // Sinks of reads in whose memory nothing is landing; the others end once
  // their receive has.
  std::vector<std::shared_ptr<StreamSink>> ended;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    end_ = end;
    why_ = why;
    outgoing_.clear();
    std::vector<std::uint64_t> idle;
    for (const auto& [id, pending] : pending_) {
      if (!pending->busy) idle.push_back(id);
    }
    // In the order in which they were asked, as the same seed must give the
    // same run.
    std::sort(idle.begin(), idle.end());
    for (const std::uint64_t id : idle) ended.push_back(TakeOut(id));
  }
  if (ByteStream* const stream = Acquire(); stream != nullptr) {
    if (end == StreamEnd::kBroken) parts_.counters->failures.Add();
    stream->Close();
    Release();
  }
  for (const std::shared_ptr<StreamSink>& sink : ended) sink->OnEnd(end, why);
  writes_.EndAll(end, why);
}

std::shared_ptr<StreamSink> StreamConnection::TakeOut(std::uint64_t id) {
  const auto it = pending_.find(id);
  load_.fetch_sub(it->second->unanswered, std::memory_order_relaxed);
  std::shared_ptr<StreamSink> sink = std::move(it->second->sink);
  pending_.erase(it);
  return sink;
}

void StreamConnection::Destroy() {
  Close(StreamEnd::kCancelled, absl::CancelledError("the Client was closed"));
  std::unique_ptr<ByteStream> stream;
  {
    MutexLock lock(&mutex_);
    while (users_ > 0) released_.Wait(&mutex_);
    stream = std::move(stream_);
  }
  // Its destructor has run every completion on return.
  stream.reset();
}

bool StreamConnection::KeepFor(const LentStreams* here) {
  MutexLock lock(&mutex_);
  const LentStreams* const keeper = keeper_.load(std::memory_order_relaxed);
  if (keeper != nullptr) return keeper == here;
  if (closed_ || stream_ == nullptr || load() > 0 || !pending_.empty()) {
    return false;
  }
  keeper_.store(here, std::memory_order_release);
  return true;
}

void StreamConnection::LendTo(LentStreams* here) {
  if (here->Has(this)) return;
  std::unique_ptr<LentStream> lent;
  if (ByteStream* const stream = Acquire(); stream != nullptr) {
    lent = stream->Lend();
    Release();
  }
  if (lent == nullptr) {
    keeper_.store(nullptr, std::memory_order_release);
    return;
  }
  here->Add(this, std::move(lent), [self = shared_from_this()] {
    self->keeper_.store(nullptr, std::memory_order_release);
  });
}

bool StreamConnection::open() const {
  MutexLock lock(&mutex_);
  return !closed_;
}

ByteStream* StreamConnection::Acquire() {
  MutexLock lock(&mutex_);
  if (stream_ == nullptr) return nullptr;
  ++users_;
  return stream_.get();
}

void StreamConnection::Release() {
  MutexLock lock(&mutex_);
  --users_;
  if (users_ == 0) released_.SignalAll();
}

// --- Sending.

void StreamConnection::Send() {
  {
    MutexLock lock(&mutex_);
    if (sending_ || closed_ || stream_ == nullptr) return;
    sending_ = true;
  }
  SendLoop();
}

void StreamConnection::SendLoop() {
  while (TakeOutgoing()) {
    ByteStream* const stream = Acquire();
    if (stream == nullptr) {
      send_status_ = absl::CancelledError("closed");
      OnSent();
      return;
    }
    std::vector<absl::Span<const std::byte>> pieces = {
        absl::MakeConstSpan(BytesOf(&send_frame_))};
    pieces.insert(pieces.end(), send_write_.payload.begin(),
                  send_write_.payload.end());
    send_turn_.Begin();
    stream->StartSend(std::move(pieces),
                      // Shared: the frame's memory is this connection's.
                      [self = shared_from_this()](absl::Status status) {
                        self->send_status_ = std::move(status);
                        if (!self->send_turn_.Second()) return;
                        if (self->OnSent()) self->SendLoop();
                      });
    Release();
    if (!send_turn_.Second()) return;
    if (!OnSent()) return;
  }
}

bool StreamConnection::OnSent() {
  const absl::Status status = send_status_;
  {
    MutexLock lock(&mutex_);
    ++sends_;
  }
  // Its memory is its writer's again, however that went.
  writes_.Sent(std::exchange(send_write_, ConnectionWrites::Outgoing()));
  if (!status.ok()) Fail(status);
  return status.ok();
}

// Encodes what goes next into send_frame_; false: nothing does.
bool StreamConnection::TakeOutgoing() {
  MutexLock lock(&mutex_);
  if (closed_) {
    sending_ = false;
    return false;
  }
  if (TakeFrame()) return true;
  std::optional<ConnectionWrites::Outgoing> next =
      writes_.TakeNext(parts_.seams->clock->Now());
  if (!next) {
    sending_ = false;
    return false;
  }
  send_write_ = *std::move(next);
  send_frame_ = std::move(send_write_.frame);
  return true;
}

bool StreamConnection::TakeFrame() {
  if (!hello_sent_) {
    hello_sent_ = true;
    HelloBody hello;
    hello.handshake.cluster = credentials_.cluster;
    hello.handshake.test_vector = HandshakeTestVector();
    hello.token = credentials_.token;
    const std::string body = EncodeHello(hello);
    send_frame_ =
        EncodeLead({.type = FrameType::kHello,
                    .request = 0,
                    .body_bytes = static_cast<std::uint32_t>(body.size()),
                    .payload_bytes = 0}) +
        body;
    return true;
  }
  while (!outgoing_.empty()) {
    const Outgoing next = outgoing_.front();
    outgoing_.pop_front();
    if (next.type == FrameType::kCancel) {
      send_frame_ = EncodeLead({.type = FrameType::kCancel,
                                .request = next.id,
                                .body_bytes = 0,
                                .payload_bytes = 0});
      return true;
    }
    if (next.type == FrameType::kFoundCorrupt) {
      const std::string body = EncodeFoundCorrupt(next.corrupt);
      send_frame_ =
          EncodeLead({.type = FrameType::kFoundCorrupt,
                      .request = next.id,
                      .body_bytes = static_cast<std::uint32_t>(body.size()),
                      .payload_bytes = 0}) +
          body;
      return true;
    }
    const auto it = pending_.find(next.id);
    if (it == pending_.end()) continue;  // Cancelled before it was sent.
    it->second->sent = true;
    send_frame_ = EncodeReadFrame(next.id, it->second->read);
    return true;
  }
  return false;
}

std::string StreamConnection::EncodeReadFrame(std::uint64_t id,
                                              const StreamRead& read) const {
  ReadBody body;
  // At least something: a request whose time is over is cancelled by its
  // reader, not here.
  body.header.remaining = std::clamp(read.deadline - parts_.seams->clock->Now(),
                                     absl::Duration(absl::Microseconds(1)),
                                     absl::Duration(kLongestDeadline));
  body.header.traffic = read.traffic;
  body.header.trace = read.trace;
  body.name_space = read.name_space;
  body.clear_epoch = read.clear_epoch;
  body.leading_run = read.leading_run;
  body.keys = read.keys;
  const std::string encoded = EncodeRead(body);
  return EncodeLead({.type = FrameType::kRead,
                     .request = id,
                     .body_bytes = static_cast<std::uint32_t>(encoded.size()),
                     .payload_bytes = 0}) +
         encoded;
}

}  // namespace firnkv
