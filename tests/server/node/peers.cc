#include "tests/server/node/peers.h"

#include <utility>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/request.h"
#include "proto/convert.h"

namespace firnkv {
namespace {

absl::Span<std::byte> BytesOf(std::string* text) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(text->data()),
                        text->size());
}

}  // namespace

SessionPeer::SessionPeer(SimMachine* machine, std::string_view path,
                         bool reads) {
  auto socket = machine->seams().sockets->Connect(path);
  if (!socket.ok()) return;
  socket_ = *std::move(socket);
  if (!reads) return;
  socket_->Start(
      {.on_message =
           [this](std::string text, std::shared_ptr<SharedMemory> memory) {
             if (BeginsFrame(text)) {
               const absl::StatusOr<CallFrame> frame = DecodeCallPacket(text);
               CHECK(frame.ok());
               frames.push_back(
                   {frame->type, frame->request, std::string(frame->body)});
               return;
             }
             v1::NodeMessage message;
             CHECK(message.ParseFromString(text));
             got.push_back({std::move(message), std::move(memory)});
           },
       .on_closed = [this](const absl::Status&) { closed_ = true; }});
}

v1::ClientMessage SessionPeer::Hello(ClusterId cluster,
                                     const std::string& token) {
  v1::ClientMessage message;
  ToProto(Handshake{.cluster = cluster, .test_vector = HandshakeTestVector()},
          message.mutable_hello()->mutable_handshake());
  message.mutable_hello()->add_mapped_layouts(1);
  message.mutable_hello()->set_token(token);
  message.mutable_hello()->set_client_name("a test");
  message.mutable_hello()->set_call_frames(kCallFrames);
  return message;
}

void SessionPeer::Send(const v1::ClientMessage& message,
                       std::shared_ptr<SharedMemory> memory) {
  SendRaw(message.SerializeAsString(), std::move(memory));
}

void SessionPeer::SendRaw(std::string bytes,
                          std::shared_ptr<SharedMemory> memory) {
  // A node that has closed is what some tests wait for.
  (void)socket_->Send(std::move(bytes), std::move(memory));
}

std::uint64_t SessionPeer::SendCall(FrameType type, const std::string& body) {
  SendRaw(EncodeCallPacket(type, ++last_call_, body));
  return last_call_;
}

void SessionPeer::WantDescriptor(std::uint64_t region, std::uint32_t what) {
  v1::ClientMessage message;
  message.mutable_descriptor_wanted()->set_region(region);
  message.mutable_descriptor_wanted()->set_what(what);
  Send(message);
}

void SessionPeer::Taken(std::uint64_t region, std::uint32_t what) {
  v1::ClientMessage message;
  message.mutable_descriptor_taken()->set_region(region);
  message.mutable_descriptor_taken()->set_what(what);
  Send(message);
}

void SessionPeer::AddStaging(std::uint64_t id,
                             std::shared_ptr<SharedMemory> memory,
                             std::uint64_t bytes) {
  v1::ClientMessage message;
  message.mutable_add_staging()->set_staging(id);
  message.mutable_add_staging()->set_bytes(bytes);
  Send(message, std::move(memory));
}

const v1::SessionWelcome* SessionPeer::welcome() const {
  for (const Got& one : got) {
    if (one.message.has_welcome()) return &one.message.welcome();
  }
  return nullptr;
}

const v1::SessionRefused* SessionPeer::refused() const {
  for (const Got& one : got) {
    if (one.message.has_refused()) return &one.message.refused();
  }
  return nullptr;
}

SessionId SessionPeer::id() const {
  CHECK(welcome() != nullptr);
  return *SessionId::FromBytes(welcome()->session());
}

RawStreamPeer::RawStreamPeer(SimMachine* machine, std::string_view address) {
  machine->seams().network->StartConnect(
      address, absl::Seconds(5),
      [this](absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
        if (!stream.ok()) {
          closed_ = true;
          return;
        }
        stream_ = *std::move(stream);
        SendNext();
        ReceiveLead();
      });
}

void RawStreamPeer::SendRaw(std::string bytes) {
  to_send_.push_back(std::move(bytes));
  SendNext();
}

void RawStreamPeer::SendNext() {
  if (stream_ == nullptr || sending_ || to_send_.empty()) return;
  sending_ = true;
  sent_ = std::move(to_send_.front());
  to_send_.erase(to_send_.begin());
  stream_->StartSend({BytesOf(&sent_)}, [this](const absl::Status& status) {
    sending_ = false;
    if (status.ok()) SendNext();
  });
}

void RawStreamPeer::SendFrame(FrameType type, std::uint64_t request,
                              const std::string& body,
                              std::uint64_t payload_bytes) {
  SendRaw(EncodeLead({.type = type,
                      .request = request,
                      .body_bytes = static_cast<std::uint32_t>(body.size()),
                      .payload_bytes = payload_bytes}) +
          body);
}

void RawStreamPeer::SendHello(ClusterId cluster, const std::string& token) {
  SendFrame(FrameType::kHello, 0,
            EncodeHello({.handshake = {.cluster = cluster,
                                       .test_vector = HandshakeTestVector()},
                         .token = token,
                         .node = {},
                         .epoch = NodeEpoch::kNone}));
}

void RawStreamPeer::SendRead(std::uint64_t request, NamespaceId name_space,
                             const std::vector<BlockKey>& keys, ReadBody body) {
  body.name_space = name_space;
  if (body.header.remaining == absl::ZeroDuration()) {
    body.header.remaining = absl::Seconds(5);
  }
  for (const BlockKey& key : keys) {
    body.keys.push_back({key, kLargestBlockBytes});
  }
  SendFrame(FrameType::kRead, request, EncodeRead(body));
}

void RawStreamPeer::SendReserve(std::uint64_t request, ReserveBody body) {
  body.header.protocol = kProtocolOfStreamWrites;
  if (body.header.remaining == absl::ZeroDuration()) {
    body.header.remaining = absl::Seconds(5);
  }
  if (body.reserve_for == absl::ZeroDuration()) {
    body.reserve_for = absl::Seconds(30);
  }
  SendFrame(FrameType::kReserve, request, EncodeReserve(body));
}

void RawStreamPeer::SendWrite(std::uint64_t request, std::uint32_t index,
                              const BlockKey& key,
                              absl::Span<const std::byte> content) {
  SendFrame(
      FrameType::kWrite, request,
      EncodeWrite(
          {.index = index, .key = key, .pieces = PieceChecksums(content)}),
      content.size());
  SendRaw(std::string(reinterpret_cast<const char*>(content.data()),
                      content.size()));
}

void RawStreamPeer::ReadOn() {
  reading_ = true;
  if (std::exchange(has_lead_, false)) return ReceiveRest();
  if (!receiving_) ReceiveLead();
}

void RawStreamPeer::ReceiveLead() {
  if (!reading_ || closed_) return;
  receiving_ = true;
  lead_.resize(kFrameLeadBytes);
  stream_->StartReceive({BytesOf(&lead_)}, [this](const absl::Status& status) {
    if (!status.ok()) {
      closed_ = true;
      return;
    }
    const auto lead = DecodeLead(lead_);
    CHECK(lead.ok());
    next_ = Got{*lead, std::string(lead->body_bytes, '\0'),
                std::string(lead->payload_bytes, '\0')};
    has_lead_ = !reading_;
    if (reading_) ReceiveRest();
  });
}

void RawStreamPeer::ReceiveRest() {
  if (next_.body.empty() && next_.payload.empty()) {
    got.push_back(next_);
    receiving_ = false;
    return ReceiveLead();
  }
  stream_->StartReceive({BytesOf(&next_.body), BytesOf(&next_.payload)},
                        [this](const absl::Status& status) {
                          if (!status.ok()) {
                            closed_ = true;
                            return;
                          }
                          got.push_back(std::move(next_));
                          receiving_ = false;
                          ReceiveLead();
                        });
}

std::vector<Outcome> RawStreamPeer::OutcomesOf(std::uint64_t request) const {
  std::vector<Outcome> outcomes;
  for (const Got& one : got) {
    if (one.lead.type != FrameType::kBlock || one.lead.request != request) {
      continue;
    }
    const auto body = DecodeBlock(one.body);
    CHECK(body.ok());
    CHECK(body->index == outcomes.size());
    outcomes.push_back(body->outcome);
  }
  return outcomes;
}

bool RawStreamPeer::Ended(std::uint64_t request) const {
  for (const Got& one : got) {
    const bool end = one.lead.type == FrameType::kReadEnd ||
                     one.lead.type == FrameType::kWriteEnd;
    if (end && one.lead.request == request) return true;
  }
  return false;
}

std::vector<Outcome> RawStreamPeer::ReservedOf(std::uint64_t request) const {
  for (const Got& one : got) {
    if (one.lead.type != FrameType::kReserved || one.lead.request != request) {
      continue;
    }
    const auto body = DecodeReserved(one.body);
    CHECK(body.ok());
    return body->outcomes;
  }
  return {};
}

std::map<std::uint32_t, Outcome> RawStreamPeer::WrittenOf(
    std::uint64_t request) const {
  std::map<std::uint32_t, Outcome> outcomes;
  for (const Got& one : got) {
    if (one.lead.type != FrameType::kWritten || one.lead.request != request) {
      continue;
    }
    const auto body = DecodeWritten(one.body);
    CHECK(body.ok());
    for (const WrittenBody::Block& block : body->blocks) {
      // One outcome a block.
      CHECK(outcomes.emplace(block.index, block.outcome).second);
    }
  }
  return outcomes;
}

absl::Status RawStreamPeer::refusal() const {
  for (const Got& one : got) {
    if (one.lead.type != FrameType::kRefused) continue;
    const auto body = DecodeRefused(one.body);
    CHECK(body.ok());
    return body->reason;
  }
  return absl::OkStatus();
}

}  // namespace firnkv
