#include "proto/base/write_frame.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/frame_body.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kLastWait = 2;
constexpr std::uint32_t kLastSessionState = 2;
constexpr std::size_t kReserveBlockBytes =
    std::size_t{3} * BlockKey::kBytes + 3 * 4 + 2 * 2 + 8;
static_assert(kMaxReserveBlocks * kReserveBlockBytes + 4096 <=
              kMaxFrameBodyBytes);

bool IsWriteOutcome(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCorrupt:
    case Outcome::kDenied:
    case Outcome::kUnavailable:
    case Outcome::kTimedOut:
    case Outcome::kCongested:
    case Outcome::kCancelled:
    case Outcome::kWrongSize:
    case Outcome::kStored:
    case Outcome::kAlreadyThere:
    case Outcome::kOverQuota:
    case Outcome::kReservationOver:
    case Outcome::kCleared:
      return true;
    case Outcome::kUnset:
    case Outcome::kHit:
    case Outcome::kMiss:
    case Outcome::kExpired:
    case Outcome::kBeingWritten:
    case Outcome::kSkipped:
    case Outcome::kStaleLocation:
      return false;
  }
  return false;
}

absl::StatusOr<Outcome> WriteOutcomeFrom(std::uint8_t number) {
  const std::optional<Outcome> outcome = OutcomeFromWire(number);
  if (!outcome || !IsWriteOutcome(*outcome)) {
    return MalformedFrame(StrCat("outcome ", int{number}, " of a write"));
  }
  return *outcome;
}

void AppendBlock(const ReserveBody::Block& block, WireWriter* writer) {
  writer->Id(block.key);
  writer->Id(block.place.parent);
  writer->Id(block.place.anchor);
  writer->U32(block.place.position);
  writer->U32(block.place.first_token);
  writer->U32(block.place.tokens);
  writer->U16(block.place.shard.count);
  writer->U16(block.place.shard.index);
  writer->U64(block.length);
}

absl::StatusOr<ReserveBody::Block> TakeBlock(WireReader* reader) {
  ReserveBody::Block block;
  block.key = reader->TakeId<BlockKey>();
  block.place.parent = reader->TakeId<BlockKey>();
  block.place.anchor = reader->TakeId<BlockKey>();
  block.place.position = reader->U32();
  block.place.first_token = reader->U32();
  block.place.tokens = reader->U32();
  block.place.shard.count = reader->U16();
  block.place.shard.index = reader->U16();
  block.length = reader->U64();
  if (block.place.shard.index >= block.place.shard.count) {
    return MalformedFrame("a shard beyond its count");
  }
  if (block.length == 0 || block.length > kLargestBlockBytes) {
    return MalformedFrame(StrCat("a block of ", block.length, " bytes"));
  }
  return block;
}

absl::Status CheckCount(std::uint32_t count) {
  if (count >= 1 && count <= kMaxReserveBlocks) return absl::OkStatus();
  return MalformedFrame(StrCat("a write of ", count, " blocks; 1 to ",
                               kMaxReserveBlocks, " are allowed"));
}

// The outcomes of a reservation, or nothing where its status is not OK.
absl::StatusOr<std::vector<Outcome>> TakeOutcomes(WireReader* reader,
                                                  const absl::Status& status) {
  const std::uint32_t count = reader->U32();
  if (!status.ok()) {
    if (count != 0) return MalformedFrame("outcomes beside a failure");
    return std::vector<Outcome>();
  }
  RETURN_IF_ERROR(CheckCount(count));
  if (reader->left() != count)
    return MalformedFrame("outcomes of a wrong size");
  std::vector<Outcome> outcomes;
  outcomes.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Outcome outcome, WriteOutcomeFrom(reader->U8()));
    outcomes.push_back(outcome);
  }
  return outcomes;
}

}  // namespace

std::string EncodeReserve(const ReserveBody& body) {
  std::string out;
  WireWriter writer(&out);
  AppendHeader(body.header, &writer);
  writer.Id(body.name_space);
  writer.U64(static_cast<std::uint64_t>(body.clear_epoch));
  writer.U64(MicrosFor(body.reserve_for));
  writer.U32(body.wait_for);
  writer.U32(body.session_state);
  writer.U32(static_cast<std::uint32_t>(body.conversation.size()));
  writer.Bytes(body.conversation);
  writer.U32(static_cast<std::uint32_t>(body.blocks.size()));
  for (const ReserveBody::Block& block : body.blocks) {
    AppendBlock(block, &writer);
  }
  return SealBody(std::move(out));
}

absl::StatusOr<ReserveBody> DecodeReserve(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  ReserveBody body;
  ASSIGN_OR_RETURN(body.header, TakeHeader(&reader));
  body.name_space = reader.TakeId<NamespaceId>();
  body.clear_epoch = ClearEpoch{reader.U64()};
  const auto reserve_for = DurationFromMicros(reader.U64());
  if (!reserve_for) return MalformedFrame("a reservation beyond the longest");
  body.reserve_for = *reserve_for;
  body.wait_for = reader.U32();
  body.session_state = reader.U32();
  if (body.wait_for > kLastWait || body.session_state > kLastSessionState) {
    return MalformedFrame("a wait or a hint of no known number");
  }
  const std::uint32_t conversation = reader.U32();
  if (conversation > kMaxConversationBytes) {
    return MalformedFrame(StrCat("a conversation of ", conversation, " bytes"));
  }
  body.conversation = reader.Bytes(conversation);
  const std::uint32_t count = reader.U32();
  RETURN_IF_ERROR(CheckCount(count));
  if (reader.left() != count * kReserveBlockBytes) {
    return MalformedFrame("a reservation of a wrong size");
  }
  body.blocks.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(ReserveBody::Block block, TakeBlock(&reader));
    body.blocks.push_back(block);
  }
  return body;
}

std::string EncodeReserved(const ReservedBody& body) {
  const std::string reason = Printable(ToStd(body.status.message()));
  std::string out;
  WireWriter writer(&out);
  writer.U32(static_cast<std::uint32_t>(body.status.code()));
  writer.U32(static_cast<std::uint32_t>(reason.size()));
  writer.Bytes(reason);
  writer.U64(MicrosFor(body.valid_for));
  writer.U64(MicrosFor(body.retry_after));
  writer.U64(static_cast<std::uint64_t>(body.clear_epoch));
  writer.U32(static_cast<std::uint32_t>(body.outcomes.size()));
  for (const Outcome outcome : body.outcomes) {
    writer.U8(static_cast<std::uint8_t>(outcome));
  }
  return SealBody(std::move(out));
}

absl::StatusOr<ReservedBody> DecodeReserved(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  const std::uint32_t code = reader.U32();
  const std::uint32_t reason_bytes = reader.U32();
  constexpr auto kLastCode =
      static_cast<std::uint32_t>(absl::StatusCode::kUnauthenticated);
  if (code > kLastCode || reason_bytes > kMaxReasonBytes) {
    return MalformedFrame("a reservation's status is none");
  }
  const std::string_view reason = reader.Bytes(reason_bytes);
  ReservedBody body;
  body.status =
      absl::Status(static_cast<absl::StatusCode>(code), Printable(reason));
  const auto valid_for = DurationFromMicros(reader.U64());
  const auto retry_after = DurationFromMicros(reader.U64());
  if (!valid_for || !retry_after) {
    return MalformedFrame("a reservation beyond the longest");
  }
  body.valid_for = *valid_for;
  body.retry_after = *retry_after;
  body.clear_epoch = ClearEpoch{reader.U64()};
  ASSIGN_OR_RETURN(body.outcomes, TakeOutcomes(&reader, body.status));
  if (!reader.AtEnd()) return MalformedFrame("bytes after a reservation");
  return body;
}

std::string EncodeWrite(const WriteBody& body) {
  std::string out;
  WireWriter writer(&out);
  writer.U32(body.index);
  writer.Id(body.key);
  writer.U32(static_cast<std::uint32_t>(body.pieces.size()));
  for (const std::uint32_t piece : body.pieces) writer.U32(piece);
  return SealBody(std::move(out));
}

absl::StatusOr<WriteBody> DecodeWrite(std::string_view bytes,
                                      std::uint64_t payload_bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  WriteBody body;
  body.index = reader.U32();
  body.key = reader.TakeId<BlockKey>();
  const std::uint32_t count = reader.U32();
  if (body.index >= kMaxReserveBlocks) {
    return MalformedFrame(StrCat("index ", body.index, " of a write"));
  }
  if (payload_bytes == 0 || count != DivideUp(payload_bytes, kPieceBytes) ||
      reader.left() != std::uint64_t{4} * count) {
    return MalformedFrame(
        StrCat(count, " checksums for a payload of ", payload_bytes, " bytes"));
  }
  body.pieces.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) body.pieces.push_back(reader.U32());
  return body;
}

std::string EncodeWritten(const WrittenBody& body) {
  std::string out;
  WireWriter writer(&out);
  writer.U64(MicrosFor(body.retry_after));
  writer.U32(static_cast<std::uint32_t>(body.blocks.size()));
  for (const WrittenBody::Block& block : body.blocks) {
    writer.U32(block.index);
    writer.U8(static_cast<std::uint8_t>(block.outcome));
  }
  return SealBody(std::move(out));
}

absl::StatusOr<WrittenBody> DecodeWritten(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  WrittenBody body;
  const auto retry_after = DurationFromMicros(reader.U64());
  if (!retry_after) return MalformedFrame("a retry-after beyond the longest");
  body.retry_after = *retry_after;
  const std::uint32_t count = reader.U32();
  RETURN_IF_ERROR(CheckCount(count));
  if (reader.left() != std::uint64_t{5} * count) {
    return MalformedFrame("outcomes of a wrong size");
  }
  body.blocks.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    WrittenBody::Block block;
    block.index = reader.U32();
    ASSIGN_OR_RETURN(block.outcome, WriteOutcomeFrom(reader.U8()));
    if (block.index >= kMaxReserveBlocks) {
      return MalformedFrame(StrCat("index ", block.index, " of a write"));
    }
    body.blocks.push_back(block);
  }
  return body;
}

}  // namespace firnkv
