#include "tests/process/hostile_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "client/transport/socket_address.h"
#include "proto/base/status.h"
#include "proto/convert.h"
#include "tests/process/hostile_session.h"

namespace firnkv {

Descriptor ConnectStream(const std::string& address) {
  const auto host = ParseHostPort(address);
  if (!host.ok()) return {};
  const auto numeric = NumericAddress(*host);
  if (!numeric.has_value()) return {};
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {.tv_sec = kPatienceSeconds, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  if (connect(fd.get(), numeric->get(), numeric->length) != 0) return {};
  return fd;
}

absl::StatusOr<HostileStream> HostileStream::Connect(
    const v1::SessionWelcome& welcome, const std::string& token) {
  HostileStream stream(ConnectStream(welcome.stream_address()));
  HelloBody hello;
  ASSIGN_OR_RETURN(const Handshake theirs, FromProto(welcome.handshake()));
  hello.handshake.cluster = theirs.cluster;
  hello.handshake.test_vector = HandshakeTestVector();
  hello.token = token;
  if (!stream.Send(FrameType::kHello, 0, EncodeHello(hello))) {
    return absl::UnavailableError("the node takes no stream");
  }
  const std::optional<Frame> answer = stream.Receive();
  if (!answer.has_value()) return absl::UnavailableError("no answer");
  if (answer->lead.type == FrameType::kRefused) {
    ASSIGN_OR_RETURN(const RefusedBody refused, DecodeRefused(answer->body));
    return refused.reason;
  }
  return stream;
}

bool HostileStream::Send(FrameType type, std::uint64_t request,
                         const std::string& body, std::uint64_t payload_bytes,
                         const std::string& payload) {
  return SendRaw(
      EncodeLead({.type = type,
                  .request = request,
                  .body_bytes = static_cast<std::uint32_t>(body.size()),
                  .payload_bytes = payload_bytes}) +
      body + payload);
}

bool HostileStream::SendRaw(const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(socket_.get(), bytes.data() + sent,
                               bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

bool HostileStream::ReceiveBytes(std::size_t count, std::string* bytes) {
  bytes->assign(count, '\0');
  return count == 0 || recv(socket_.get(), bytes->data(), count, MSG_WAITALL) ==
                           static_cast<ssize_t>(count);
}

std::optional<HostileStream::Frame> HostileStream::Receive() {
  std::string bytes;
  if (!ReceiveBytes(kFrameLeadBytes, &bytes)) return std::nullopt;
  const absl::StatusOr<FrameLead> lead = DecodeLead(bytes);
  if (!lead.ok()) return std::nullopt;
  Frame frame{.lead = *lead, .body = {}};
  if (!ReceiveBytes(lead->body_bytes, &frame.body) ||
      !ReceiveBytes(lead->payload_bytes, &bytes)) {
    return std::nullopt;
  }
  return frame;
}

bool HostileStream::IsEnded() { return firnkv::IsEnded(socket_.get()); }

}  // namespace firnkv
