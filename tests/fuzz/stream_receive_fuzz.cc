// The client's end of the stream transport: whatever a node sends, on a
// connection with three reads and two writes on it
// (client/transport/stream_connection.h).

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "client/transport/stream_connection.h"
#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "proto/base/write_frame.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/proto/samples.h"
#include "tests/support/sim_executor.h"

namespace firnkv {
namespace {

constexpr int kReads = 3;
// Their requests follow the reads'.
constexpr int kWrites = 2;
constexpr std::size_t kKeys = 4;
// All that go over a stream.
constexpr std::uint8_t kTypes = 12;
constexpr std::size_t kRoom = 70'000;
constexpr ClearEpoch kSeen{3};
const NamespaceId kNamespace = CountingId<NamespaceId>(0x10);

BlockKey KeyAt(std::size_t index) {
  return CountingId<BlockKey>(static_cast<std::uint8_t>(0x20 + index));
}

// What the node sends, to its end. Every receive completes inside its start.
class Script : public ByteStream {
 public:
  explicit Script(std::string bytes) : bytes_(std::move(bytes)) {}

  void StartSend(std::vector<absl::Span<const std::byte>>,
                 ByteStreamDone done) override {
    std::move(done)(closed_ ? absl::CancelledError("closed")
                            : absl::OkStatus());
  }
  void StartReceive(std::vector<absl::Span<std::byte>> pieces,
                    ByteStreamDone done) override {
    for (const absl::Span<std::byte> piece : pieces) {
      if (closed_ || piece.size() > bytes_.size() - place_) {
        return std::move(done)(absl::OutOfRangeError("the end"));
      }
      std::memcpy(piece.data(), bytes_.data() + place_, piece.size());
      place_ += piece.size();
    }
    std::move(done)(absl::OkStatus());
  }
  void Close() override { closed_ = true; }
  std::string peer() const override { return "node"; }

 private:
  const std::string bytes_;
  std::size_t place_ = 0;
  bool closed_ = false;
};

class OneNode : public Network {
 public:
  void StartConnect(
      std::string_view, absl::Duration,
      absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>
          done) override {
    connect = std::move(done);
  }
  absl::StatusOr<std::unique_ptr<ByteStreamListener>> Listen(
      std::string_view,
      absl::AnyInvocable<void(std::unique_ptr<ByteStream>)>) override {
    return absl::UnimplementedError("nobody connects here");
  }
  absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>
      connect;
};

// What a reader may rely on, whatever the node does.
class CheckedSink : public StreamSink {
 public:
  ByteRun OnHeader(std::size_t index, const SlotHeader& header) override {
    CHECK(!ended_ && !landing_ && index >= next_ && index < kKeys);
    CHECK(IsSane(header));
    CHECK((header.block == BlockId{kNamespace, KeyAt(index)}));
    CHECK(header.length <= kRoom && header.clear_epoch >= kSeen);
    header_ = header;
    landing_ = true;
    landed_.assign(header.length, std::byte{0});
    // In two parts, as a reader's pages may be.
    const std::size_t half = landed_.size() / 2;
    return {absl::MakeSpan(landed_).subspan(0, half),
            absl::MakeSpan(landed_).subspan(half)};
  }
  void OnBlock(std::size_t index, Outcome outcome, absl::Duration) override {
    CHECK(!ended_ && index >= next_ && index < kKeys);
    next_ = index + 1;
    if (outcome == Outcome::kHit) {
      CHECK(landing_ && PieceChecksums(landed_) == header_.pieces);
    }
    landing_ = false;
  }
  void OnEnd(StreamEnd, const absl::Status&) override {
    CHECK(!ended_);
    ended_ = true;
  }
  bool ended() const { return ended_; }

 private:
  bool ended_ = false;
  bool landing_ = false;
  std::size_t next_ = 0;
  SlotHeader header_;
  std::vector<std::byte> landed_;
};

// What a writer may rely on, whatever the node does.
class CheckedWriteSink : public StreamWriteSink {
 public:
  void OnReserved(const ReservedBody& body) override {
    CHECK(!ended_ && !reserved_);
    CHECK(body.outcomes.size() == (body.status.ok() ? kKeys : 0));
    reserved_ = true;
  }
  void OnWritten(std::uint32_t index, Outcome outcome,
                 absl::Duration) override {
    CHECK(!ended_ && index < kKeys && outcome != Outcome::kUnset);
  }
  void OnSent(std::uint32_t index) override { CHECK(!ended_ && index < kKeys); }
  void OnEnd(StreamEnd, const absl::Status&) override {
    CHECK(!ended_);
    ended_ = true;
  }
  bool ended() const { return ended_; }

 private:
  bool reserved_ = false;
  bool ended_ = false;
};

std::string Frame(FrameType type, std::uint64_t request,
                  const std::string& body, const std::string& payload) {
  return EncodeLead({.type = type,
                     .request = request,
                     .body_bytes = static_cast<std::uint32_t>(body.size()),
                     .payload_bytes = payload.size()}) +
         body + payload;
}

std::string Hello() {
  HelloBody hello;
  hello.handshake.cluster = CountingId<ClusterId>(1);
  hello.handshake.test_vector = HandshakeTestVector();
  hello.node = CountingId<NodeId>(0x30);
  hello.epoch = NodeEpoch{0x99};
  return Frame(FrameType::kHello, 0, EncodeHello(hello), "");
}

// A hit as a true node sends it, and then as it does not: `spoiled` says what
// is changed.
std::string Hit(FuzzInput* input) {
  const std::uint64_t request = input->U8();
  const std::uint8_t index = input->U8();
  const std::uint8_t spoiled = input->U8();
  const std::size_t length = std::size_t{1} + input->U16();
  const std::string payload(length, static_cast<char>(input->U8()));
  BlockBody body{.index = index,
                 .outcome = Outcome::kHit,
                 .retry_after = absl::ZeroDuration(),
                 .header = SampleHeader()};
  SlotHeader& header = body.header;
  header.block = {kNamespace, KeyAt(index % kKeys)};
  header.length = length;
  header.pieces = PieceChecksums(
      {reinterpret_cast<const std::byte*>(payload.data()), length});
  if ((spoiled & 1) != 0) header.pieces.front() ^= 1;
  if ((spoiled & 2) != 0) header.block.key = KeyAt(index + 1);
  if ((spoiled & 4) != 0) header.clear_epoch = ClearEpoch{1};
  std::string frame =
      Frame(FrameType::kBlock, request, EncodeBlock(body), payload);
  if ((spoiled & 8) != 0) frame.resize(frame.size() - length / 2);
  return frame;
}

// The node's bytes, as the input says.
std::string Assemble(FuzzInput input) {
  std::string bytes;
  while (!input.empty()) {
    switch (input.U8() % 7) {
      case 0:
        bytes += Hello();
        break;
      case 1:
        bytes += Hit(&input);
        break;
      case 2: {
        const std::uint64_t request = input.U8();
        const BlockBody body{.index = input.U8(),
                             .outcome = static_cast<Outcome>(input.U8()),
                             .retry_after = absl::Milliseconds(input.U8()),
                             .header = {}};
        if (body.outcome == Outcome::kHit) break;
        bytes += Frame(FrameType::kBlock, request, EncodeBlock(body), "");
        break;
      }
      case 3: {
        const auto type = static_cast<FrameType>(1 + input.U8() % kTypes);
        const std::uint64_t request = input.U8();
        const std::string_view content = input.Bytes(input.U16());
        bytes +=
            Frame(type, request, content.empty() ? "" : WithCrc(content), "");
        break;
      }
      case 5: {
        const std::uint64_t request = input.U8();
        ReservedBody body;
        body.valid_for = absl::Seconds(1);
        body.outcomes.assign(input.U8() % (2 * kKeys),
                             static_cast<Outcome>(input.U8()));
        if (body.outcomes.empty()) {
          body.status = absl::InvalidArgumentError("wrong");
        }
        bytes += Frame(FrameType::kReserved, request, EncodeReserved(body), "");
        break;
      }
      case 6: {
        const std::uint64_t request = input.U8();
        WrittenBody body;
        const std::uint32_t index = input.U8();
        body.blocks.push_back({index, static_cast<Outcome>(input.U8())});
        bytes += Frame(FrameType::kWritten, request, EncodeWritten(body), "");
        break;
      }
      default:
        bytes += input.Bytes(input.U16());
        break;
    }
  }
  return bytes;
}

void Try(const std::string& bytes) {
  SimExecutor executor;
  SeededRandom random(1);
  OneNode network;
  Seams seams;
  seams.clock = executor.clock();
  seams.executor = &executor;
  seams.random = &random;
  seams.network = &network;
  StreamCounters counters;
  // Shared: as the transport holds it.
  const auto connection = std::make_shared<StreamConnection>(
      StreamConnection::Parts{&seams, &counters},
      StreamPeer{"node", CountingId<NodeId>(0x30), NodeEpoch{0x99}},
      StreamCredentials{CountingId<ClusterId>(1), "token"});
  connection->Connect(absl::Seconds(1));
  std::vector<std::shared_ptr<CheckedSink>> sinks;
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < kReads; ++i) {
    StreamRead read;
    read.name_space = kNamespace;
    read.clear_epoch = kSeen;
    read.deadline = executor.Now() + absl::Seconds(1);
    for (std::size_t k = 0; k < kKeys; ++k) {
      read.keys.push_back({KeyAt(k), kRoom});
    }
    sinks.push_back(std::make_shared<CheckedSink>());
    ids.push_back(connection->StartRead(read, sinks.back()).value());
  }
  const std::vector<std::byte> block(kRoom, std::byte{7});
  std::vector<std::shared_ptr<CheckedWriteSink>> writers;
  for (int i = 0; i < kWrites; ++i) {
    StreamWrite write;
    write.name_space = kNamespace;
    write.deadline = executor.Now() + absl::Seconds(1);
    write.reserve_for = absl::Seconds(1);
    for (std::size_t k = 0; k < kKeys; ++k) {
      write.blocks.push_back({KeyAt(k), ChainPlace{.anchor = KeyAt(k)}, kRoom});
    }
    writers.push_back(std::make_shared<CheckedWriteSink>());
    const auto id = connection->StartWrite(write, writers.back());
    // The first of them is sent ahead of the node's answer.
    if (i == 0) {
      StreamBlock first;
      first.pieces = PieceChecksums(block);
      first.bytes = {block};
      CHECK(connection->SendBlock(id.value(), first));
    }
  }
  connection->Cancel(ids[2], absl::Seconds(1));
  std::move(network.connect)(std::make_unique<Script>(bytes));
  executor.RunFor(absl::Seconds(2));
  connection->Destroy();
  for (const auto& sink : sinks) CHECK(sink->ended());
  for (const auto& writer : writers) CHECK(writer->ended());
  CHECK(connection->load() == 0);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string hello(1, '\0');
  // Request, index, spoiled, length - 1, byte.
  const std::string hit("\1\1\0\0\xff\x0f\x5a", 7);
  const std::string miss("\2\1\1\2\0", 5);
  const std::string end("\3\4\1\0\0", 5);
  // Reserved: request, outcomes, which (kStored); written: request, index,
  // outcome.
  const std::string reserved("\5\4\4\16", 4);
  const std::string written("\6\4\0\16", 4);
  const std::string write_end("\3\13\4\0\0", 5);
  std::vector<std::string> seeds = {hello + reserved + written + write_end,
                                    hello + written + reserved,
                                    hello + reserved + reserved,
                                    hello + reserved + written + written,
                                    hello + std::string("\5\5\0\16", 4),
                                    hello + std::string("\5\5\3\16", 4),
                                    hello + std::string("\6\4\7\16", 4),
                                    hello + write_end,
                                    hello + hit + miss + end,
                                    hello + miss + end + miss,
                                    hit + hello,
                                    hello + hello};
  for (const char spoiled : {1, 2, 4, 8}) {
    std::string bad = hit;
    bad[3] = spoiled;
    seeds.push_back(hello + bad + hit + end);
  }
  std::string late = hit;
  late[1] = 3;
  seeds.push_back(hello + late + hit);
  return seeds;
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  firnkv::Try(firnkv::Assemble(firnkv::FuzzInput(bytes, size)));
  return 0;
}
