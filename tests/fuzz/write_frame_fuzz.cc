// Frames of writes over the stream (proto/base/write_frame.h).

#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/write_frame.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/sealed_parts.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t { kReserve, kReserved, kWrite, kWritten };
// Of the sample's block, and of the lead of every kWrite here.
constexpr std::uint64_t kPayloadBytes = 70'000;

void TryReserve(const std::string& bytes) {
  const auto body = DecodeReserve(bytes);
  if (!body.ok()) return;
  CHECK(!body->blocks.empty() && body->blocks.size() <= kMaxReserveBlocks);
  CHECK(body->conversation.size() <= kMaxConversationBytes);
  CHECK(body->reserve_for <= kLongestDeadline);
  for (const ReserveBody::Block& block : body->blocks) {
    CHECK(block.length > 0 && block.length <= kLargestBlockBytes);
    CHECK(block.place.shard.index < block.place.shard.count);
  }
  CHECK(EncodeReserve(*body) == bytes);
}

void TryReserved(const std::string& bytes) {
  const auto body = DecodeReserved(bytes);
  if (!body.ok()) return;
  CHECK(body->outcomes.size() <= kMaxReserveBlocks);
  CHECK(body->outcomes.empty() == !body->status.ok());
  const auto again = DecodeReserved(EncodeReserved(*body));
  CHECK(again.ok() && again->outcomes == body->outcomes &&
        again->status == body->status);
}

void TryWrite(const std::string& bytes) {
  const auto body = DecodeWrite(bytes, kPayloadBytes);
  if (!body.ok()) return;
  CHECK(body->index < kMaxReserveBlocks);
  CHECK(body->pieces.size() == DivideUp(kPayloadBytes, kPieceBytes));
  CHECK(EncodeWrite(*body) == bytes);
}

void TryWritten(const std::string& bytes) {
  const auto body = DecodeWritten(bytes);
  if (!body.ok()) return;
  CHECK(!body->blocks.empty() && body->blocks.size() <= kMaxReserveBlocks);
  CHECK(EncodeWritten(*body) == bytes);
}

ReserveBody SampleReserve() {
  ReserveBody body;
  body.header.protocol = kProtocolOfStreamWrites;
  body.header.remaining = absl::Milliseconds(250);
  body.name_space = CountingId<NamespaceId>(0x10);
  body.clear_epoch = ClearEpoch{3};
  body.reserve_for = absl::Seconds(30);
  body.conversation = "chat 7";
  for (std::uint8_t i = 0; i < 3; ++i) {
    body.blocks.push_back(
        {CountingId<BlockKey>(static_cast<std::uint8_t>(0x20 + i)),
         SampleHeader().place, kPayloadBytes});
  }
  return body;
}

// By Part.
constexpr TryPart kTries[] = {TryReserve, TryReserved, TryWrite, TryWritten};

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  const auto sealed = [&seeds](Part part, const std::string& bytes) {
    AddSealed(part, bytes, &seeds);
  };
  sealed(kReserve, EncodeReserve(SampleReserve()));
  ReservedBody reserved;
  reserved.valid_for = absl::Seconds(30);
  reserved.outcomes = {Outcome::kStored, Outcome::kAlreadyThere};
  sealed(kReserved, EncodeReserved(reserved));
  ReservedBody refused;
  refused.status = absl::InvalidArgumentError("a key twice");
  sealed(kReserved, EncodeReserved(refused));
  sealed(kWrite, EncodeWrite({.index = 1,
                              .key = SampleHeader().block.key,
                              .pieces = SampleHeader().pieces}));
  WrittenBody written;
  written.blocks.push_back({1, Outcome::kStored});
  written.blocks.push_back({0, Outcome::kCorrupt});
  sealed(kWritten, EncodeWritten(written));
  return seeds;
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  firnkv::TryOnePart(firnkv::FuzzInput(bytes, size), firnkv::kTries);
  return 0;
}
