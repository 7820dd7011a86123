#include "proto/base/frame_body.h"

#include <algorithm>

#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

std::uint32_t ChecksumOf(std::string_view bytes) {
  return Crc32c(
      {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

}  // namespace

absl::Status MalformedFrame(std::string_view what) {
  return absl::InvalidArgumentError(StrCat("frame: ", what));
}

std::string SealBody(std::string body) {
  const std::uint32_t crc = ChecksumOf(body);
  WireWriter(&body).U32(crc);
  return body;
}

absl::StatusOr<std::string_view> OpenBody(std::string_view body) {
  if (body.size() < 4 || body.size() > kMaxFrameBodyBytes) {
    return MalformedFrame(StrCat("a body of ", body.size(), " bytes"));
  }
  const std::string_view content = body.substr(0, body.size() - 4);
  WireReader crc(body.substr(content.size()));
  if (crc.U32() != ChecksumOf(content)) {
    return MalformedFrame("the body's checksum is wrong");
  }
  return content;
}

std::uint64_t MicrosFor(absl::Duration duration) {
  const absl::Duration bounded =
      std::clamp(duration, absl::ZeroDuration(), kLongestDeadline);
  return static_cast<std::uint64_t>(absl::ToInt64Microseconds(bounded));
}

std::optional<absl::Duration> DurationFromMicros(std::uint64_t micros) {
  if (micros > MicrosFor(kLongestDeadline)) return std::nullopt;
  return absl::Microseconds(static_cast<std::int64_t>(micros));
}

std::string Printable(std::string_view text) {
  std::string out(text.substr(0, kMaxReasonBytes));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

void AppendHeader(const RequestHeader& header, WireWriter* writer) {
  writer->U32(header.protocol);
  writer->U32(static_cast<std::uint32_t>(header.traffic));
  writer->U64(MicrosFor(header.remaining));
  writer->Id(header.trace);
  writer->Id(header.session);
}

absl::StatusOr<RequestHeader> TakeHeader(WireReader* reader) {
  RequestHeader header;
  header.protocol = reader->U32();
  const std::uint32_t traffic_number = reader->U32();
  const auto traffic = TrafficClassFromWire(traffic_number);
  if (!traffic) {
    return MalformedFrame(StrCat("traffic class ", traffic_number));
  }
  header.traffic = *traffic;
  const auto remaining = DurationFromMicros(reader->U64());
  if (!remaining) return MalformedFrame("a deadline beyond the longest");
  header.remaining = *remaining;
  header.trace = reader->TakeId<TraceId>();
  header.session = reader->TakeId<SessionId>();
  return header;
}

}  // namespace firnkv
