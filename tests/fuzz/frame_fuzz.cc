// Frames of the data path (proto/base/frame.h), every kind of body.

#include "proto/base/check.h"
#include "proto/base/frame.h"
#include "proto/base/limits.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/sealed_parts.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t {
  kLead,
  kHello,
  kRefused,
  kRead,
  kBlock,
  kFoundCorrupt,
};

void TryLead(const std::string& bytes) {
  const auto lead = DecodeLead(bytes);
  if (!lead.ok()) return;
  CHECK(lead->body_bytes <= kMaxFrameBodyBytes);
  CHECK(lead->payload_bytes <= kLargestBlockBytes);
  CHECK(lead->payload_bytes == 0 || lead->type == FrameType::kBlock ||
        lead->type == FrameType::kWrite);
  CHECK(EncodeLead(*lead) == bytes);
}

void TryHello(const std::string& bytes) {
  const auto body = DecodeHello(bytes);
  if (!body.ok()) return;
  CHECK(body->token.size() <= kMaxTokenBytes);
  // A newer version may have put more behind it.
  const std::string known = WithoutCrc(EncodeHello(*body));
  CHECK(bytes.substr(0, known.size()) == known);
  CHECK(DecodeHello(WithCrc(known)).ok());
}

void TryRefused(const std::string& bytes) {
  const auto body = DecodeRefused(bytes);
  if (!body.ok()) return;
  CHECK(!body->reason.ok());
  CHECK(body->reason.message().size() <= kMaxReasonBytes);
  for (const char c : body->reason.message()) {
    CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  }
  const auto again = DecodeRefused(EncodeRefused(*body));
  CHECK(again.ok() && again->reason == body->reason);
}

void TryRead(const std::string& bytes) {
  const auto body = DecodeRead(bytes);
  if (!body.ok()) return;
  CHECK(!body->keys.empty() && body->keys.size() <= kMaxBatchKeys);
  CHECK(body->header.remaining >= absl::ZeroDuration() &&
        body->header.remaining <= kLongestDeadline);
  CHECK(EncodeRead(*body) == bytes);
}

void TryBlock(const std::string& bytes) {
  const auto body = DecodeBlock(bytes);
  if (!body.ok()) return;
  CHECK(body->index < kMaxBatchKeys);
  CHECK(body->outcome != Outcome::kUnset);
  CHECK(body->retry_after <= kLongestDeadline);
  if (body->outcome == Outcome::kHit) CHECK(IsSane(body->header));
  CHECK(EncodeBlock(*body) == bytes);
}

void TryFoundCorrupt(const std::string& bytes) {
  const auto body = DecodeFoundCorrupt(bytes);
  if (body.ok()) CHECK(EncodeFoundCorrupt(*body) == bytes);
}

HelloBody SampleHello() {
  HelloBody hello;
  hello.handshake.cluster = CountingId<ClusterId>(1);
  hello.handshake.test_vector = HandshakeTestVector();
  hello.token = "a token";
  hello.node = CountingId<NodeId>(0x30);
  hello.epoch = NodeEpoch{0x99};
  return hello;
}

ReadBody SampleRead() {
  ReadBody read;
  read.header.remaining = absl::Milliseconds(250);
  read.name_space = CountingId<NamespaceId>(0x10);
  read.clear_epoch = ClearEpoch{3};
  for (std::uint8_t i = 0; i < 3; ++i) {
    read.keys.push_back(
        {CountingId<BlockKey>(static_cast<std::uint8_t>(0x20 + i)), 70'000});
  }
  return read;
}

// By Part.
constexpr TryPart kTries[] = {TryLead, TryHello, TryRefused,
                              TryRead, TryBlock, TryFoundCorrupt};

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  const auto sealed = [&seeds](Part part, const std::string& bytes) {
    AddSealed(part, bytes, &seeds);
  };
  sealed(kLead, EncodeLead({.type = FrameType::kBlock,
                            .request = 7,
                            .body_bytes = 300,
                            .payload_bytes = 70'000}));
  sealed(kHello, EncodeHello(SampleHello()));
  sealed(kRefused, EncodeRefused({absl::PermissionDeniedError("not yours")}));
  sealed(kRead, EncodeRead(SampleRead()));
  BlockBody hit{.index = 1,
                .outcome = Outcome::kHit,
                .retry_after = absl::ZeroDuration(),
                .header = SampleHeader()};
  sealed(kBlock, EncodeBlock(hit));
  sealed(kBlock, EncodeBlock({.index = 2,
                              .outcome = Outcome::kCongested,
                              .retry_after = absl::Milliseconds(20),
                              .header = {}}));
  sealed(kFoundCorrupt,
         EncodeFoundCorrupt({SampleHeader().block, Generation{9}}));
  return seeds;
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  firnkv::TryOnePart(firnkv::FuzzInput(bytes, size), firnkv::kTries);
  return 0;
}
