// The node's end of a stream connection: bytes and frames of somebody who may
// have said a true hello first (server/node/served_connection.h).

#include "proto/base/check.h"
#include "proto/base/frame.h"
#include "tests/fuzz/fuzz_node.h"
#include "tests/fuzz/fuzz_target.h"

namespace firnkv {
namespace {

constexpr int kMostFrames = 12;
constexpr std::uint64_t kKeys = 3;

enum Step : std::uint8_t { kRaw, kFrame, kTrueHello, kRun, kSteps };

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
          const auto type = static_cast<FrameType>(1 + input.U8() % 7);
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
  return {hello + run + ask + run,
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
