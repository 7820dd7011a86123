// Calls of a local session as frames (proto/base/session_frame.h), every kind
// of body, and whole packets.

#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/session_frame.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/sealed_parts.h"
#include "tests/proto/samples.h"

namespace firnkv {
namespace {

enum Part : std::uint8_t {
  kPacket,
  kOpenRead,
  kOpened,
  kRelease,
  kReserve,
  kReserved,
  kCommit,
  kCommitted,
};

void CheckExtents(const CallExtents& extents) {
  CHECK(!extents.empty() && extents.size() <= kMaxExtents);
  std::uint64_t bytes = 0;
  for (const CallExtent& extent : extents) {
    CHECK(extent.length > 0);
    bytes += extent.length;
  }
  CHECK(bytes <= kLargestBlockBytes);
}

void TryPacket(const std::string& bytes) {
  const auto frame = DecodeCallPacket(bytes);
  if (!frame.ok()) return;
  CHECK(BeginsFrame(bytes));
  CHECK(EncodeCallPacket(frame->type, frame->request, frame->body) == bytes);
}

void TryOpenRead(const std::string& bytes) {
  const auto body = DecodeCallOpenRead(bytes);
  if (!body.ok()) return;
  CHECK(!body->keys.empty() && body->keys.size() <= kMaxCallKeys);
  CHECK(EncodeCallOpenRead(*body) == bytes);
}

void TryOpened(const std::string& bytes) {
  const auto body = DecodeCallOpened(bytes);
  if (!body.ok()) return;
  CHECK(!body->blocks.empty() && body->blocks.size() <= kMaxCallKeys);
  for (const CallOpenedBody::Block& block : body->blocks) {
    if (block.outcome == Outcome::kHit) CheckExtents(block.extents);
  }
  CHECK(EncodeCallOpened(*body) == bytes);
}

void TryRelease(const std::string& bytes) {
  const auto body = DecodeCallRelease(bytes);
  if (!body.ok()) return;
  CHECK(!body->leases.empty() && body->leases.size() <= kMaxCallReleases);
  CHECK(EncodeCallRelease(*body) == bytes);
}

void TryReserve(const std::string& bytes) {
  const auto body = DecodeCallReserve(bytes);
  if (!body.ok()) return;
  CHECK(!body->blocks.empty() && body->blocks.size() <= kMaxCallKeys);
  CHECK(body->conversation.size() <= kMaxConversationBytes);
  for (const CallReserveBody::Block& block : body->blocks) {
    CHECK(block.length <= kLargestBlockBytes);
    CHECK(block.place.shard.index < block.place.shard.count);
  }
  CHECK(EncodeCallReserve(*body) == bytes);
}

void TryReserved(const std::string& bytes) {
  const auto body = DecodeCallReserved(bytes);
  if (!body.ok()) return;
  CHECK(!body->outcomes.empty() && body->outcomes.size() <= kMaxCallKeys);
  CHECK(EncodeCallReserved(*body) == bytes);
}

void TryCommit(const std::string& bytes) {
  const auto body = DecodeCallCommit(bytes);
  if (!body.ok()) return;
  CHECK(!body->blocks.empty() && body->blocks.size() <= kMaxCallKeys);
  for (const CallCommitBody::Block& block : body->blocks) {
    CheckExtents(block.extents);
    CHECK(!block.pieces.empty());
  }
  CHECK(EncodeCallCommit(*body) == bytes);
}

void TryCommitted(const std::string& bytes) {
  const auto body = DecodeCallCommitted(bytes);
  if (!body.ok()) return;
  CHECK(!body->outcomes.empty() && body->outcomes.size() <= kMaxCallKeys);
  CHECK(EncodeCallCommitted(*body) == bytes);
}

// By Part.
constexpr TryPart kTries[] = {TryPacket,  TryOpenRead, TryOpened, TryRelease,
                              TryReserve, TryReserved, TryCommit, TryCommitted};

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  const auto sealed = [&seeds](Part part, const std::string& bytes) {
    AddSealed(part, bytes, &seeds);
  };
  const std::string release =
      EncodeCallRelease({.session = CountingId<SessionId>(1), .leases = {5}});
  sealed(kPacket, EncodeCallPacket(FrameType::kCallRelease, 9, release));
  sealed(kOpenRead, EncodeCallOpenRead(SampleCallOpenRead()));
  sealed(kOpened, EncodeCallOpened(SampleCallOpened()));
  sealed(kRelease, release);
  sealed(kReserve, EncodeCallReserve(SampleCallReserve()));
  sealed(kReserved, EncodeCallReserved(SampleCallReserved()));
  sealed(kCommit, EncodeCallCommit(SampleCallCommit()));
  sealed(kCommitted, EncodeCallCommitted({.retry_after = absl::Milliseconds(20),
                                          .outcomes = {Outcome::kStored}}));
  return seeds;
}

}  // namespace firnkv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes,
                                      std::size_t size) {
  firnkv::TryOnePart(firnkv::FuzzInput(bytes, size), firnkv::kTries);
  return 0;
}
