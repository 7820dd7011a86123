#include "proto/base/frame.h"

#include <algorithm>
#include <utility>

#include "proto/base/frame_body.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "proto/base/wire.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kMagic = 0x4b6e7246;  // "FrnK"
// Of the lead: how to find the next frame. What the bodies mean is the
// handshake's business.
constexpr std::uint16_t kFramingVersion = 1;

// nullopt for an unknown one.
std::optional<FrameType> TypeFromWire(std::uint16_t number) {
  const auto is_in = [number](FrameType first, FrameType last) {
    return number >= static_cast<std::uint16_t>(first) &&
           number <= static_cast<std::uint16_t>(last);
  };
  if (!is_in(FrameType::kHello, FrameType::kWriteEnd) &&
      !is_in(FrameType::kCallOpenRead, FrameType::kCallFailed)) {
    return std::nullopt;
  }
  return static_cast<FrameType>(number);
}

bool IsReadOutcome(Outcome outcome) {
  return outcome >= Outcome::kHit && outcome <= Outcome::kStaleLocation;
}

}  // namespace

std::string EncodeLead(const FrameLead& lead) {
  std::string out;
  out.reserve(kFrameLeadBytes);
  WireWriter writer(&out);
  writer.U32(kMagic);
  writer.U16(kFramingVersion);
  writer.U16(static_cast<std::uint16_t>(lead.type));
  writer.U64(lead.request);
  writer.U64(lead.payload_bytes);
  writer.U32(lead.body_bytes);
  return SealBody(std::move(out));
}

bool BeginsFrame(std::string_view bytes) {
  return WireReader(bytes).U32() == kMagic;
}

absl::StatusOr<FrameLead> DecodeLead(std::string_view bytes) {
  if (bytes.size() != kFrameLeadBytes)
    return MalformedFrame("a lead cut short");
  WireReader reader(bytes);
  if (reader.U32() != kMagic) return MalformedFrame("no FirnKV stream");
  if (const std::uint16_t version = reader.U16(); version != kFramingVersion) {
    return MalformedFrame(StrCat("framing version ", version, " is unknown"));
  }
  RETURN_IF_ERROR(OpenBody(bytes).status());
  const std::uint16_t number = reader.U16();
  const std::optional<FrameType> type = TypeFromWire(number);
  if (!type) return MalformedFrame(StrCat("type ", number, " is unknown"));
  FrameLead lead;
  lead.type = *type;
  lead.request = reader.U64();
  lead.payload_bytes = reader.U64();
  lead.body_bytes = reader.U32();
  if (lead.body_bytes > kMaxFrameBodyBytes) {
    return MalformedFrame(StrCat("a body of ", lead.body_bytes,
                                 " bytes; at most ", kMaxFrameBodyBytes,
                                 " are allowed"));
  }
  const bool bulk =
      lead.type == FrameType::kBlock || lead.type == FrameType::kWrite;
  const std::uint64_t most = bulk ? kLargestBlockBytes : 0;
  if (lead.payload_bytes > most) {
    return MalformedFrame(StrCat("a payload of ", lead.payload_bytes,
                                 " bytes; at most ", most, " are allowed"));
  }
  return lead;
}

std::string EncodeHello(const HelloBody& body) {
  std::string out;
  WireWriter writer(&out);
  writer.U32(body.handshake.oldest_protocol);
  writer.U32(body.handshake.newest_protocol);
  writer.Id(body.handshake.cluster);
  writer.Id(body.handshake.test_vector);
  writer.Id(body.node);
  writer.U64(static_cast<std::uint64_t>(body.epoch));
  writer.U32(static_cast<std::uint32_t>(body.token.size()));
  writer.Bytes(body.token);
  return SealBody(std::move(out));
}

absl::StatusOr<HelloBody> DecodeHello(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  HelloBody body;
  body.handshake.oldest_protocol = reader.U32();
  body.handshake.newest_protocol = reader.U32();
  body.handshake.cluster = reader.TakeId<ClusterId>();
  body.handshake.test_vector = reader.TakeId<BlockKey>();
  body.node = reader.TakeId<NodeId>();
  body.epoch = NodeEpoch{reader.U64()};
  const std::uint32_t token_bytes = reader.U32();
  if (token_bytes > kMaxTokenBytes) {
    return MalformedFrame(StrCat("a token of ", token_bytes, " bytes"));
  }
  body.token = reader.Bytes(token_bytes);
  // What a newer version put after it is passed over: the two must be able to
  // tell each other that they have no version in common.
  if (!reader.ok()) return MalformedFrame("a hello cut short");
  return body;
}

std::string EncodeRefused(const RefusedBody& body) {
  const std::string reason = Printable(ToStd(body.reason.message()));
  std::string out;
  WireWriter writer(&out);
  writer.U32(static_cast<std::uint32_t>(body.reason.code()));
  writer.U32(static_cast<std::uint32_t>(reason.size()));
  writer.Bytes(reason);
  return SealBody(std::move(out));
}

absl::StatusOr<RefusedBody> DecodeRefused(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  const std::uint32_t code = reader.U32();
  const std::string_view reason = reader.Bytes(reader.U32());
  if (!reader.AtEnd() || reason.size() > kMaxReasonBytes) {
    return MalformedFrame("a refusal of a wrong size");
  }
  constexpr auto kLastCode =
      static_cast<std::uint32_t>(absl::StatusCode::kUnauthenticated);
  if (code == 0 || code > kLastCode) {
    return MalformedFrame(StrCat("a refusal with status code ", code));
  }
  return RefusedBody{
      absl::Status(static_cast<absl::StatusCode>(code), Printable(reason))};
}

std::string EncodeRead(const ReadBody& body) {
  std::string out;
  WireWriter writer(&out);
  AppendHeader(body.header, &writer);
  writer.Id(body.name_space);
  writer.U64(static_cast<std::uint64_t>(body.clear_epoch));
  writer.U32(body.leading_run ? 1 : 0);
  writer.U32(static_cast<std::uint32_t>(body.keys.size()));
  for (const ReadBody::Key& key : body.keys) {
    writer.Id(key.key);
    writer.U64(key.room);
  }
  return SealBody(std::move(out));
}

absl::StatusOr<ReadBody> DecodeRead(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  ReadBody body;
  ASSIGN_OR_RETURN(body.header, TakeHeader(&reader));
  body.name_space = reader.TakeId<NamespaceId>();
  body.clear_epoch = ClearEpoch{reader.U64()};
  const std::uint32_t flags = reader.U32();
  if (flags > 1) return MalformedFrame(StrCat("flags ", flags, " of a read"));
  body.leading_run = flags == 1;
  const std::uint32_t count = reader.U32();
  if (count == 0 || count > kMaxBatchKeys) {
    return MalformedFrame(StrCat("a read of ", count, " keys; 1 to ",
                                 kMaxBatchKeys, " are allowed"));
  }
  constexpr std::size_t kKeyBytes = BlockKey::kBytes + 8;
  if (reader.left() != count * kKeyBytes) {
    return MalformedFrame("a read of a wrong size");
  }
  body.keys.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    ReadBody::Key key;
    key.key = reader.TakeId<BlockKey>();
    key.room = reader.U64();
    body.keys.push_back(key);
  }
  return body;
}

std::string EncodeBlock(const BlockBody& body) {
  std::string out;
  WireWriter writer(&out);
  writer.U32(body.index);
  writer.U32(static_cast<std::uint32_t>(body.outcome));
  writer.U64(MicrosFor(body.retry_after));
  if (body.outcome == Outcome::kHit) AppendSlotHeader(body.header, &out);
  return SealBody(std::move(out));
}

absl::StatusOr<BlockBody> DecodeBlock(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  BlockBody body;
  body.index = reader.U32();
  const std::uint32_t number = reader.U32();
  const auto retry_after = DurationFromMicros(reader.U64());
  if (!reader.ok()) return MalformedFrame("a block's body cut short");
  if (body.index >= kMaxBatchKeys) {
    return MalformedFrame(StrCat("index ", body.index, " of a block"));
  }
  const std::optional<Outcome> outcome =
      number <= kLastOutcome
          ? OutcomeFromWire(static_cast<std::uint8_t>(number))
          : std::nullopt;
  if (!outcome || !IsReadOutcome(*outcome)) {
    return MalformedFrame(StrCat("outcome ", number, " of a read"));
  }
  body.outcome = *outcome;
  if (!retry_after) return MalformedFrame("a retry-after beyond the longest");
  body.retry_after = *retry_after;
  std::string_view rest = reader.Bytes(reader.left());
  if (body.outcome == Outcome::kHit) {
    std::optional<SlotHeader> header = TakeSlotHeader(&rest);
    if (!header) return MalformedFrame("a block's header is broken");
    body.header = *std::move(header);
  }
  if (!rest.empty()) return MalformedFrame("bytes after a block's body");
  return body;
}

std::string EncodeFoundCorrupt(const FoundCorruptBody& body) {
  std::string out;
  WireWriter writer(&out);
  writer.Id(body.block.name_space);
  writer.Id(body.block.key);
  writer.U64(static_cast<std::uint64_t>(body.generation));
  return SealBody(std::move(out));
}

absl::StatusOr<FoundCorruptBody> DecodeFoundCorrupt(std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::string_view content, OpenBody(bytes));
  WireReader reader(content);
  FoundCorruptBody body;
  body.block.name_space = reader.TakeId<NamespaceId>();
  body.block.key = reader.TakeId<BlockKey>();
  body.generation = Generation{reader.U64()};
  if (!reader.AtEnd()) return MalformedFrame("a report of a wrong size");
  return body;
}

}  // namespace firnkv
