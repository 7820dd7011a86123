// The node's end of a stream connection: bytes and frames of somebody who may
// have said a true hello first (server/node/served_connection.h).

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/frame.h"
#include "proto/base/write_frame.h"
#include "tests/fuzz/fuzz_node.h"
#include "tests/fuzz/fuzz_target.h"

namespace firnkv {
namespace {

constexpr int kMostFrames = 12;
constexpr std::uint64_t kKeys = 3;

// All that go over a stream.
constexpr std::uint8_t kTypes = 12;
// Of what is reserved in the seeds, more than a piece.
constexpr std::uint16_t kBlockBytes = 65'000;
constexpr std::uint64_t kFirstWritten = 10;

enum Step : std::uint8_t { kRaw, kFrame, kTrueHello, kRun, kBlock, kSteps };
// What is wrong with a kBlock step's write, by bits.
enum Spoiled : std::uint8_t {
  kChecksum = 1,
  kAnnouncesMore = 2,
  kIsCut = 4,
};

std::string FrameStep(FrameType type, std::uint8_t request,
                      const std::string& body) {
  std::string step;
  WireWriter out(&step);
  const std::string content = body.empty() ? "" : WithoutCrc(body);
  out.U8(kFrame);
  out.U8(static_cast<std::uint8_t>(type));
  out.U8(request);
  out.U16(static_cast<std::uint16_t>(content.size()));
  out.Bytes(content);
  return step;
}

std::string BlockStep(std::uint8_t request, std::uint8_t index,
                      std::uint8_t key, std::uint8_t spoiled,
                      std::uint16_t length = kBlockBytes) {
  std::string step;
  WireWriter out(&step);
  out.U8(kBlock);
  out.U8(request);
  out.U8(index);
  out.U8(key);
  out.U8(spoiled);
  out.U16(length);
  return step;
}

// A block's bytes as a true writer sends them, and then as it does not.
void SendBlock(FuzzInput* input, RawStreamPeer* stream) {
  const std::uint64_t request = input->U8();
  const std::uint32_t index = input->U8();
  const std::uint64_t key = input->U8();
  const std::uint8_t spoiled = input->U8();
  std::string payload(std::size_t{1} + input->U16(), 'w');
  WriteBody body{.index = index,
                 .key = KeyOf(key),
                 .pieces = PieceChecksums(
                     {reinterpret_cast<const std::byte*>(payload.data()),
                      payload.size()})};
  if ((spoiled & kChecksum) != 0) body.pieces.back() ^= 1;
  const std::uint64_t more = (spoiled & kAnnouncesMore) != 0 ? 1 : 0;
  stream->SendFrame(FrameType::kWrite, request, EncodeWrite(body),
                    payload.size() + more);
  if ((spoiled & kIsCut) != 0) payload.resize(payload.size() / 2);
  stream->SendRaw(payload);
}

void Play(FuzzInput input) {
  FuzzNode& node = FuzzNode::Fresh();
  {
    // Its token is the stream's.
    const std::unique_ptr<SessionPeer> session = node.Hostile();
    const std::unique_ptr<RawStreamPeer> stream = node.HostileStream();
    for (int i = 0; i < kMostFrames && !input.empty(); ++i) {
      switch (input.U8() % kSteps) {
        case kRaw:
          stream->SendRaw(std::string(input.Bytes(input.U16())));
          break;
        case kFrame: {
          const auto type = static_cast<FrameType>(1 + input.U8() % kTypes);
          const std::uint8_t request = input.U8();
          const std::string_view content = input.Bytes(input.U16());
          stream->SendFrame(type, request,
                            content.empty() ? "" : WithCrc(content));
          break;
        }
        case kTrueHello:
          stream->SendHello(node.cluster(), session->welcome()->token());
          break;
        case kRun:
          node.Run(absl::Milliseconds(10));
          break;
        case kBlock:
          SendBlock(&input, stream.get());
          break;
      }
    }
    node.Run(absl::Milliseconds(20));
    stream->Close();
    node.Run(absl::Milliseconds(1));
  }
  node.CheckUnharmed();
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  FuzzNode& node = FuzzNode::Fresh();
  const std::string hello(1, static_cast<char>(kTrueHello));
  const std::string run(1, static_cast<char>(kRun));
  ReadBody read;
  read.header.remaining = absl::Milliseconds(250);
  read.name_space = node.hostile_namespace();
  read.leading_run = false;
  for (std::uint64_t n = 0; n < kKeys; ++n) {
    read.keys.push_back({KeyOf(n), 65536});
  }
  // Types are counted from 0 in a step.
  const auto step = [](FrameType type, std::uint8_t request,
                       const std::string& body) {
    return FrameStep(
        static_cast<FrameType>(static_cast<std::uint16_t>(type) - 1), request,
        body);
  };
  const std::string ask = step(FrameType::kRead, 1, EncodeRead(read));
  ReserveBody reserve;
  reserve.header.protocol = kProtocolOfStreamWrites;
  reserve.header.remaining = absl::Milliseconds(250);
  reserve.name_space = node.hostile_namespace();
  reserve.reserve_for = absl::Seconds(1);
  for (std::uint64_t n = kFirstWritten; n < kFirstWritten + 2; ++n) {
    reserve.blocks.push_back(
        {KeyOf(n), ChainPlace{.anchor = KeyOf(n)}, kBlockBytes + 1});
  }
  const std::string want = step(FrameType::kReserve, 1, EncodeReserve(reserve));
  const std::string first = BlockStep(1, 0, kFirstWritten, 0);
  const std::string second = BlockStep(1, 1, kFirstWritten + 1, 0);
  WrittenBody written;
  written.blocks.push_back({0, Outcome::kStored});
  ReservedBody reserved;
  reserved.outcomes = {Outcome::kStored, Outcome::kStored};
  return {hello + want + run + first + second + run + ask,
          hello + want + second + first,
          hello + want + first + first + run,
          hello + want + want,
          hello + first,
          hello + want + BlockStep(1, 1, kFirstWritten, 0),
          hello + want + BlockStep(1, 7, kFirstWritten, 0),
          hello + want + BlockStep(1, 0, kFirstWritten, 0, 100),
          hello + want + BlockStep(1, 0, kFirstWritten, kChecksum) + second,
          hello + want + BlockStep(1, 0, kFirstWritten, kAnnouncesMore),
          hello + want + BlockStep(1, 0, kFirstWritten, kIsCut),
          hello + want + run + BlockStep(1, 0, kFirstWritten, kIsCut) + run,
          hello + want + step(FrameType::kCancel, 1, "") + first + run,
          hello + step(FrameType::kReserved, 1, EncodeReserved(reserved)),
          hello + step(FrameType::kWritten, 1, EncodeWritten(written)),
          hello + step(FrameType::kWriteEnd, 1, ""),
          hello + run + ask + run,
          hello + ask + ask,
          hello + ask + step(FrameType::kCancel, 1, ""),
          ask + hello,
          hello + hello,
          hello + step(FrameType::kFoundCorrupt, 1,
                       EncodeFoundCorrupt({{node.hostile_namespace(), KeyOf(1)},
                                           Generation{1}})),
          step(FrameType::kHello, 0, EncodeHello({})),
          std::string("\0\4\0abcd", 7)};
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  firnkv::Play(firnkv::FuzzInput(bytes, size));
  return 0;
}
