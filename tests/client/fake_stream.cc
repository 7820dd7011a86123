#include "tests/client/fake_stream.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/checksum.h"
#include "proto/base/request.h"

namespace firnkv {

class FakeStream::Connection {
 public:
  Connection(FakeStream* owner, std::unique_ptr<ByteStream> stream)
      : owner_(*owner), stream_(std::move(stream)) {
    Receive(kFrameLeadBytes, [this] { OnLead(); });
  }

  void Close() { stream_->Close(); }

  void Send(std::string bytes) {
    if (bytes.empty()) return;
    if (owner_.cut_after && sent_ + bytes.size() > *owner_.cut_after) {
      bytes.resize(*owner_.cut_after - std::min(sent_, *owner_.cut_after));
      cut_ = true;
    }
    sent_ += bytes.size();
    queue_.push_back(std::move(bytes));
    SendNext();
  }

 private:
  void Receive(std::size_t bytes, std::function<void()> then) {
    buffer_.assign(bytes, '\0');
    stream_->StartReceive(
        {{reinterpret_cast<std::byte*>(buffer_.data()), bytes}},
        [then = std::move(then)](const absl::Status& status) {
          if (status.ok()) then();
        });
  }

  void OnLead() {
    const auto lead = DecodeLead(buffer_);
    ASSERT_TRUE(lead.ok()) << lead.status();
    lead_ = *lead;
    if (lead_.body_bytes == 0) {
      buffer_.clear();
      return OnFrame();
    }
    Receive(lead_.body_bytes, [this] { OnFrame(); });
  }

  void OnFrame() {
    if (lead_.type == FrameType::kHello) {
      const auto hello = DecodeHello(buffer_);
      ASSERT_TRUE(hello.ok()) << hello.status();
      owner_.tokens.push_back(hello->token);
      Send(owner_.on_hello ? owner_.on_hello() : owner_.Hello());
    } else if (lead_.type == FrameType::kRead) {
      const auto body = DecodeRead(buffer_);
      ASSERT_TRUE(body.ok()) << body.status();
      ++owner_.reads;
      if (!owner_.silent) {
        Send(owner_.on_read ? owner_.on_read(lead_.request, *body)
                            : owner_.Serve(lead_.request, *body));
      }
    } else if (lead_.type == FrameType::kReserve) {
      OnReserve();
    } else if (lead_.type == FrameType::kWrite) {
      return OnWrite();
    } else if (lead_.type == FrameType::kCancel) {
      ++owner_.cancels;
      if (owner_.ends_cancelled) {
        Send(Frame(FrameType::kReadEnd, lead_.request, "", ""));
      }
    }
    Receive(kFrameLeadBytes, [this] { OnLead(); });
  }

  void OnReserve() {
    const auto body = DecodeReserve(buffer_);
    ASSERT_TRUE(body.ok()) << body.status();
    ++owner_.reserves;
    owner_.reserved.push_back(*body);
    const auto left = std::make_shared<std::size_t>(body->blocks.size());
    for (const ReserveBody::Block& block : body->blocks) {
      owner_.awaited_[block.key] = left;
    }
    if (owner_.silent) return;
    Send(owner_.on_reserve
             ? owner_.on_reserve(lead_.request, *body)
             : Reserved(lead_.request, std::vector<Outcome>(body->blocks.size(),
                                                            Outcome::kStored)));
  }

  void OnWrite() {
    const auto body = DecodeWrite(buffer_, lead_.payload_bytes);
    ASSERT_TRUE(body.ok()) << body.status();
    if (owner_.takes_no_payload) return;
    Receive(lead_.payload_bytes, [this, body = *body] {
      const absl::Span<const std::byte> payload(
          reinterpret_cast<const std::byte*>(buffer_.data()), buffer_.size());
      if (PieceChecksums(payload) == body.pieces) {
        owner_.written[body.key] = buffer_;
      }
      if (!owner_.silent) {
        Send(owner_.on_write ? owner_.on_write(lead_.request, body)
                             : owner_.Take(lead_.request, body));
      }
      Receive(kFrameLeadBytes, [this] { OnLead(); });
    });
  }

  void SendNext() {
    if (sending_ || queue_.empty()) return;
    sending_ = true;
    out_ = std::move(queue_.front());
    queue_.pop_front();
    stream_->StartSend(
        {{reinterpret_cast<const std::byte*>(out_.data()), out_.size()}},
        [this](const absl::Status& status) {
          sending_ = false;
          if (!status.ok()) return;
          if (cut_ && queue_.empty()) return stream_->Close();
          SendNext();
        });
  }

  FakeStream& owner_;
  std::string buffer_;
  FrameLead lead_;
  std::deque<std::string> queue_;
  std::string out_;
  bool sending_ = false;
  bool cut_ = false;
  std::size_t sent_ = 0;
  std::unique_ptr<ByteStream> stream_;
};

FakeStream::FakeStream(SimMachine* machine, const std::string& address,
                       const Identity& identity, Find find)
    : identity_(identity), find_(std::move(find)) {
  auto listener = machine->seams().network->Listen(
      address, [this](std::unique_ptr<ByteStream> stream) {
        Accept(std::move(stream));
      });
  EXPECT_TRUE(listener.ok()) << listener.status();
  if (listener.ok()) listener_ = *std::move(listener);
}

FakeStream::~FakeStream() = default;

void FakeStream::Accept(std::unique_ptr<ByteStream> stream) {
  ++connections;
  connected_.push_back(std::make_unique<Connection>(this, std::move(stream)));
}

void FakeStream::CutAll() {
  for (const auto& connection : connected_) connection->Close();
}

std::string FakeStream::Frame(FrameType type, std::uint64_t request,
                              const std::string& body,
                              const std::string& payload) {
  return EncodeLead({.type = type,
                     .request = request,
                     .body_bytes = static_cast<std::uint32_t>(body.size()),
                     .payload_bytes = payload.size()}) +
         body + payload;
}

std::string FakeStream::Block(std::uint64_t request, std::uint32_t index,
                              const Copy& copy) {
  BlockBody body;
  body.index = index;
  body.outcome = Outcome::kHit;
  body.header = copy.header;
  return Frame(FrameType::kBlock, request, EncodeBlock(body),
               std::string(reinterpret_cast<const char*>(copy.bytes.data()),
                           copy.bytes.size()));
}

std::string FakeStream::NoBlock(std::uint64_t request, std::uint32_t index,
                                Outcome outcome) {
  BlockBody body;
  body.index = index;
  body.outcome = outcome;
  return Frame(FrameType::kBlock, request, EncodeBlock(body), "");
}

std::string FakeStream::Serve(std::uint64_t request,
                              const ReadBody& body) const {
  std::string out;
  for (std::uint32_t i = 0; i < body.keys.size(); ++i) {
    const auto copy = find_(BlockId{body.name_space, body.keys[i].key});
    if (!copy) {
      out += NoBlock(request, i, Outcome::kMiss);
    } else if (copy->bytes.size() > body.keys[i].room) {
      out += NoBlock(request, i, Outcome::kWrongSize);
    } else {
      out += Block(request, i, *copy);
    }
  }
  return out + Frame(FrameType::kReadEnd, request, "", "");
}

std::string FakeStream::Reserved(std::uint64_t request,
                                 const std::vector<Outcome>& outcomes) {
  ReservedBody body;
  body.valid_for = absl::Seconds(30);
  body.outcomes = outcomes;
  return Frame(FrameType::kReserved, request, EncodeReserved(body), "");
}

std::string FakeStream::Written(std::uint64_t request, std::uint32_t index,
                                Outcome outcome) {
  WrittenBody body;
  body.blocks.push_back({index, outcome});
  return Frame(FrameType::kWritten, request, EncodeWritten(body), "");
}

std::string FakeStream::WriteEnd(std::uint64_t request) {
  return Frame(FrameType::kWriteEnd, request, "", "");
}

std::string FakeStream::Take(std::uint64_t request, const WriteBody& body) {
  const std::string written = Written(request, body.index, Outcome::kStored);
  const auto left = awaited_[body.key];
  awaited_.erase(body.key);
  if (left == nullptr || --*left > 0) return written;
  return written + WriteEnd(request);
}

std::string FakeStream::Hello() const {
  HelloBody hello;
  hello.handshake.cluster = identity_.cluster;
  hello.handshake.test_vector = HandshakeTestVector();
  hello.node = identity_.node;
  hello.epoch = identity_.epoch;
  return Frame(FrameType::kHello, 0, EncodeHello(hello), "");
}

}  // namespace firnkv
