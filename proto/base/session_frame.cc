#include "proto/base/session_frame.h"

#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/frame_body.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kLeadingRun = 1;
constexpr std::uint32_t kForView = 2;

// What one block of a Reserve takes.
constexpr std::size_t kReserveBlockBytes = 3 * BlockKey::kBytes + 24;

std::uint32_t Size32(std::size_t size) {
  return static_cast<std::uint32_t>(size);
}

// A count of 1 to `most`, of things of at least `least_bytes` each: checked
// before anything is allocated for them.
absl::StatusOr<std::size_t> TakeCount(WireReader* reader, std::string_view what,
                                      std::size_t most,
                                      std::size_t least_bytes) {
  const std::size_t count = reader->U32();
  if (count == 0 || count > most) {
    return MalformedFrame(StrCat("a call with ", count, " ", what, "; 1 to ",
                                 most, " are allowed"));
  }
  if (reader->left() / least_bytes < count) {
    return MalformedFrame(StrCat("a call that is too short for its ", what));
  }
  return count;
}

absl::StatusOr<absl::Duration> TakeDuration(WireReader* reader) {
  const auto duration = DurationFromMicros(reader->U64());
  if (!duration) return MalformedFrame("a duration beyond the longest");
  return *duration;
}

absl::StatusOr<Outcome> TakeOutcome(WireReader* reader, Outcome last) {
  const std::uint8_t number = reader->U8();
  const std::optional<Outcome> outcome = OutcomeFromWire(number);
  if (!outcome || *outcome > last) {
    return MalformedFrame(StrCat("outcome ", number, " of a call"));
  }
  return *outcome;
}

// As one piece: a call has a hundred of them, and eight bytes at a time cost
// more than all the rest of it.
void AppendExtents(const CallExtents& extents, WireWriter* writer) {
  writer->U8(static_cast<std::uint8_t>(extents.size()));
  static_assert(sizeof(CallExtent) == 3 * sizeof(std::uint64_t));
  writer->Bytes({reinterpret_cast<const char*>(extents.data()),
                 extents.size() * sizeof(CallExtent)});
}

// As AppendExtents; keys are their bytes.
void AppendKeys(const std::vector<BlockKey>& keys, WireWriter* writer) {
  static_assert(sizeof(BlockKey) == BlockKey::kBytes);
  writer->U32(Size32(keys.size()));
  writer->Bytes({reinterpret_cast<const char*>(keys.data()),
                 keys.size() * sizeof(BlockKey)});
}

absl::StatusOr<CallExtents> TakeExtents(WireReader* reader,
                                        std::uint64_t* bytes) {
  const std::size_t count = reader->U8();
  if (count == 0 || count > kMaxExtents) {
    return MalformedFrame(StrCat("a block of ", count, " extents"));
  }
  CallExtents extents;
  for (std::size_t i = 0; i < count; ++i) {
    CallExtent extent;
    extent.memory = reader->U64();
    extent.offset = reader->U64();
    extent.length = reader->U64();
    // Each at most the largest, so that the sum cannot overflow.
    if (extent.length == 0 || extent.length > kLargestBlockBytes) {
      return MalformedFrame(StrCat("an extent of ", extent.length, " bytes"));
    }
    *bytes += extent.length;
    extents.push_back(extent);
  }
  if (*bytes > kLargestBlockBytes) {
    return MalformedFrame(StrCat("a block of ", *bytes, " bytes"));
  }
  return extents;
}

void AppendOutcomes(const std::vector<Outcome>& outcomes, WireWriter* writer) {
  writer->U32(Size32(outcomes.size()));
  for (const Outcome outcome : outcomes) {
    writer->U8(static_cast<std::uint8_t>(outcome));
  }
}

absl::StatusOr<std::vector<Outcome>> TakeOutcomes(WireReader* reader) {
  ASSIGN_OR_RETURN(const std::size_t count,
                   TakeCount(reader, "outcomes", kMaxCallKeys, 1));
  std::vector<Outcome> outcomes;
  outcomes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Outcome outcome,
                     TakeOutcome(reader, Outcome{kLastOutcome}));
    outcomes.push_back(outcome);
  }
  return outcomes;
}

absl::Status CheckEnd(const WireReader& reader) {
  if (!reader.AtEnd()) return MalformedFrame("a call of a wrong size");
  return absl::OkStatus();
}

void AppendPlace(const ChainPlace& place, WireWriter* writer) {
  writer->Id(place.parent);
  writer->Id(place.anchor);
  writer->U32(place.position);
  writer->U32(place.first_token);
  writer->U32(place.tokens);
  writer->U16(place.shard.count);
  writer->U16(place.shard.index);
}

absl::StatusOr<ChainPlace> TakePlace(WireReader* reader) {
  ChainPlace place;
  place.parent = reader->TakeId<BlockKey>();
  place.anchor = reader->TakeId<BlockKey>();
  place.position = reader->U32();
  place.first_token = reader->U32();
  place.tokens = reader->U32();
  place.shard.count = reader->U16();
  place.shard.index = reader->U16();
  if (place.shard.index >= place.shard.count) {
    return MalformedFrame(
        StrCat("shard ", place.shard.index, " of ", place.shard.count));
  }
  return place;
}

}  // namespace

// --- Packets.

std::string EncodeCallPacket(FrameType type, std::uint64_t request,
                             std::string_view body) {
  std::string packet = EncodeLead(
      {.type = type, .request = request, .body_bytes = Size32(body.size())});
  packet.append(body);
  return packet;
}

absl::StatusOr<CallFrame> DecodeCallPacket(std::string_view packet) {
  ASSIGN_OR_RETURN(const FrameLead lead,
                   DecodeLead(packet.substr(0, kFrameLeadBytes)));
  if (lead.type < FrameType::kCallOpenRead ||
      lead.type > FrameType::kCallFailed) {
    return MalformedFrame("no call of a session");
  }
  CallFrame frame{.type = lead.type,
                  .request = lead.request,
                  .body = packet.substr(kFrameLeadBytes)};
  if (frame.body.size() != lead.body_bytes) {
    return MalformedFrame("a packet that is not one frame");
  }
  return frame;
}

// --- OpenRead.

std::string EncodeCallOpenRead(const CallOpenReadBody& body) {
  std::string out;
  out.reserve(128 + body.keys.size() * BlockKey::kBytes);
  WireWriter writer(&out);
  AppendHeader(body.header, &writer);
  writer.Id(body.name_space);
  writer.U64(static_cast<std::uint64_t>(body.clear_epoch));
  writer.U32((body.leading_run ? kLeadingRun : 0) |
             (body.for_view ? kForView : 0));
  writer.U64(MicrosFor(body.lease));
  AppendKeys(body.keys, &writer);
  return SealBody(std::move(out));
}

absl::StatusOr<CallOpenReadBody> DecodeCallOpenRead(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  CallOpenReadBody body;
  ASSIGN_OR_RETURN(body.header, TakeHeader(&reader));
  body.name_space = reader.TakeId<NamespaceId>();
  body.clear_epoch = ClearEpoch{reader.U64()};
  const std::uint32_t flags = reader.U32();
  if (flags > (kLeadingRun | kForView)) {
    return MalformedFrame(StrCat("flags ", flags, " of an OpenRead"));
  }
  body.leading_run = (flags & kLeadingRun) != 0;
  body.for_view = (flags & kForView) != 0;
  ASSIGN_OR_RETURN(body.lease, TakeDuration(&reader));
  ASSIGN_OR_RETURN(const std::size_t count,
                   TakeCount(&reader, "keys", kMaxCallKeys, BlockKey::kBytes));
  body.keys.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    body.keys.push_back(reader.TakeId<BlockKey>());
  }
  RETURN_IF_ERROR(CheckEnd(reader));
  return body;
}

std::string EncodeCallOpened(const CallOpenedBody& body) {
  // 33 bytes a hit of one extent, one a miss.
  std::string out;
  out.reserve(64 + body.blocks.size() * 34);
  WireWriter writer(&out);
  writer.U64(body.lease);
  writer.U64(MicrosFor(body.lease_time));
  writer.U64(static_cast<std::uint64_t>(body.clear_epoch));
  writer.U64(MicrosFor(body.retry_after));
  writer.U32(Size32(body.blocks.size()));
  for (const CallOpenedBody::Block& block : body.blocks) {
    writer.U8(static_cast<std::uint8_t>(block.outcome));
    if (block.outcome != Outcome::kHit) continue;
    writer.U64(static_cast<std::uint64_t>(block.generation));
    AppendExtents(block.extents, &writer);
  }
  return SealBody(std::move(out));
}

absl::StatusOr<CallOpenedBody> DecodeCallOpened(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  CallOpenedBody body;
  body.lease = reader.U64();
  ASSIGN_OR_RETURN(body.lease_time, TakeDuration(&reader));
  body.clear_epoch = ClearEpoch{reader.U64()};
  ASSIGN_OR_RETURN(body.retry_after, TakeDuration(&reader));
  ASSIGN_OR_RETURN(const std::size_t count,
                   TakeCount(&reader, "blocks", kMaxCallKeys, 1));
  body.blocks.resize(count);
  for (CallOpenedBody::Block& block : body.blocks) {
    ASSIGN_OR_RETURN(block.outcome,
                     TakeOutcome(&reader, Outcome::kStaleLocation));
    if (block.outcome != Outcome::kHit) continue;
    block.generation = Generation{reader.U64()};
    std::uint64_t length = 0;
    ASSIGN_OR_RETURN(block.extents, TakeExtents(&reader, &length));
    if (block.generation == Generation::kNone || body.lease == 0) {
      return MalformedFrame("a hit without generation or lease");
    }
  }
  RETURN_IF_ERROR(CheckEnd(reader));
  return body;
}

// --- Release.

std::string EncodeCallRelease(const CallReleaseBody& body) {
  std::string out;
  WireWriter writer(&out);
  writer.Id(body.session);
  writer.U32(Size32(body.leases.size()));
  for (const std::uint64_t lease : body.leases) writer.U64(lease);
  return SealBody(std::move(out));
}

absl::StatusOr<CallReleaseBody> DecodeCallRelease(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  CallReleaseBody body;
  body.session = reader.TakeId<SessionId>();
  ASSIGN_OR_RETURN(const std::size_t count,
                   TakeCount(&reader, "leases", kMaxCallReleases, 8));
  body.leases.reserve(count);
  for (std::size_t i = 0; i < count; ++i) body.leases.push_back(reader.U64());
  RETURN_IF_ERROR(CheckEnd(reader));
  return body;
}

// --- Reserve.

std::string EncodeCallReserve(const CallReserveBody& body) {
  std::string out;
  out.reserve(160 + body.blocks.size() * kReserveBlockBytes);
  WireWriter writer(&out);
  AppendHeader(body.header, &writer);
  writer.Id(body.name_space);
  writer.U64(static_cast<std::uint64_t>(body.clear_epoch));
  writer.U64(MicrosFor(body.reservation));
  writer.U32(body.wait_for);
  writer.U32(body.session_state);
  writer.U32(Size32(body.conversation.size()));
  writer.Bytes(body.conversation);
  writer.U32(Size32(body.blocks.size()));
  for (const CallReserveBody::Block& block : body.blocks) {
    writer.Id(block.key);
    AppendPlace(block.place, &writer);
    writer.U64(block.length);
  }
  return SealBody(std::move(out));
}

absl::StatusOr<CallReserveBody> DecodeCallReserve(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  CallReserveBody body;
  ASSIGN_OR_RETURN(body.header, TakeHeader(&reader));
  body.name_space = reader.TakeId<NamespaceId>();
  body.clear_epoch = ClearEpoch{reader.U64()};
  ASSIGN_OR_RETURN(body.reservation, TakeDuration(&reader));
  body.wait_for = reader.U32();
  body.session_state = reader.U32();
  const std::uint32_t conversation_bytes = reader.U32();
  if (conversation_bytes > kMaxConversationBytes) {
    return MalformedFrame(
        StrCat("a conversation of ", conversation_bytes, " bytes"));
  }
  body.conversation = reader.Bytes(conversation_bytes);
  ASSIGN_OR_RETURN(
      const std::size_t count,
      TakeCount(&reader, "blocks", kMaxCallKeys, kReserveBlockBytes));
  body.blocks.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    CallReserveBody::Block block;
    block.key = reader.TakeId<BlockKey>();
    ASSIGN_OR_RETURN(block.place, TakePlace(&reader));
    block.length = reader.U64();
    if (block.length > kLargestBlockBytes) {
      return MalformedFrame(StrCat("a block of ", block.length, " bytes"));
    }
    body.blocks.push_back(block);
  }
  RETURN_IF_ERROR(CheckEnd(reader));
  return body;
}

std::string EncodeCallReserved(const CallReservedBody& body) {
  std::string out;
  WireWriter writer(&out);
  writer.U64(body.reservation);
  writer.U64(MicrosFor(body.reservation_time));
  writer.U64(static_cast<std::uint64_t>(body.clear_epoch));
  writer.U64(MicrosFor(body.retry_after));
  AppendOutcomes(body.outcomes, &writer);
  return SealBody(std::move(out));
}

absl::StatusOr<CallReservedBody> DecodeCallReserved(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  CallReservedBody body;
  body.reservation = reader.U64();
  ASSIGN_OR_RETURN(body.reservation_time, TakeDuration(&reader));
  body.clear_epoch = ClearEpoch{reader.U64()};
  ASSIGN_OR_RETURN(body.retry_after, TakeDuration(&reader));
  ASSIGN_OR_RETURN(body.outcomes, TakeOutcomes(&reader));
  RETURN_IF_ERROR(CheckEnd(reader));
  return body;
}

// --- Commit.

std::string EncodeCallCommit(const CallCommitBody& body) {
  std::string out;
  WireWriter writer(&out);
  AppendHeader(body.header, &writer);
  writer.U64(body.reservation);
  writer.U32(body.wait_for);
  writer.U32(Size32(body.blocks.size()));
  for (const CallCommitBody::Block& block : body.blocks) {
    writer.U32(block.index);
    AppendExtents(block.extents, &writer);
    for (const std::uint32_t piece : block.pieces) writer.U32(piece);
  }
  return SealBody(std::move(out));
}

absl::StatusOr<CallCommitBody> DecodeCallCommit(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  CallCommitBody body;
  ASSIGN_OR_RETURN(body.header, TakeHeader(&reader));
  body.reservation = reader.U64();
  body.wait_for = reader.U32();
  // An index, one extent, one piece.
  constexpr std::size_t kLeastBytes = 4 + 1 + 24 + 4;
  ASSIGN_OR_RETURN(const std::size_t count,
                   TakeCount(&reader, "blocks", kMaxCallKeys, kLeastBytes));
  body.blocks.resize(count);
  for (CallCommitBody::Block& block : body.blocks) {
    block.index = reader.U32();
    std::uint64_t length = 0;
    ASSIGN_OR_RETURN(block.extents, TakeExtents(&reader, &length));
    const std::uint64_t pieces = DivideUp(length, kPieceBytes);
    if (reader.left() / 4 < pieces) {
      return MalformedFrame("a commit with fewer checksums than pieces");
    }
    block.pieces.reserve(pieces);
    for (std::uint64_t i = 0; i < pieces; ++i) {
      block.pieces.push_back(reader.U32());
    }
  }
  RETURN_IF_ERROR(CheckEnd(reader));
  return body;
}

std::string EncodeCallCommitted(const CallCommittedBody& body) {
  std::string out;
  WireWriter writer(&out);
  writer.U64(MicrosFor(body.retry_after));
  AppendOutcomes(body.outcomes, &writer);
  return SealBody(std::move(out));
}

absl::StatusOr<CallCommittedBody> DecodeCallCommitted(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  CallCommittedBody body;
  ASSIGN_OR_RETURN(body.retry_after, TakeDuration(&reader));
  ASSIGN_OR_RETURN(body.outcomes, TakeOutcomes(&reader));
  RETURN_IF_ERROR(CheckEnd(reader));
  return body;
}

}  // namespace firnkv
