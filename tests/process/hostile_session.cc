#include "tests/process/hostile_session.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/base/limits.h"
#include "proto/base/request.h"
#include "proto/base/slot_header.h"
#include "proto/base/text.h"
#include "proto/convert.h"
#include "tests/client/transport/inbox.h"

namespace firnkv {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(kPatienceSeconds);
// As many as the kernel passes with a message.
constexpr std::size_t kMostDescriptors = 253;

std::string HelloPacket() {
  Handshake handshake;
  handshake.test_vector = HandshakeTestVector();
  v1::ClientMessage message;
  v1::SessionHello& hello = *message.mutable_hello();
  ToProto(handshake, hello.mutable_handshake());
  hello.add_mapped_layouts(kMappedLayoutVersion);
  hello.set_client_name("hostile");
  return message.SerializeAsString();
}

}  // namespace

Descriptor ConnectTo(const std::string& path, int type) {
  Descriptor fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const timeval patience = {.tv_sec = kPatienceSeconds, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
              sizeof(address)) != 0) {
    return {};
  }
  return fd;
}

bool SendPacket(int socket, const std::string& bytes,
                const std::vector<int>& descriptors) {
  iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * descriptors.size()));
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(rights), descriptors.data(),
                sizeof(int) * descriptors.size());
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) >= 0;
}

std::string ReceivePacket(int socket, Descriptor* descriptor) {
  std::string bytes(kMaxSessionMessageBytes, '\0');
  iovec piece = {bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)>
      control;
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = -1;
  do {
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  if (got < 0) return bytes;
  for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr;
       one = CMSG_NXTHDR(&header, one)) {
    if (one->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(one), sizeof(fd));
    Descriptor taken(fd);
    if (descriptor != nullptr) *descriptor = std::move(taken);
  }
  return bytes;
}

bool IsEnded(int socket) {
  std::array<char, 65536> bytes;
  for (;;) {
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

absl::StatusOr<std::unique_ptr<HostileSession>> HostileSession::Connect(
    const std::string& path) {
  auto session = std::make_unique<HostileSession>();
  session->socket_ = ConnectTo(path);
  if (!session->socket_.valid()) {
    return absl::UnavailableError("nobody listens");
  }
  SendPacket(session->socket(), HelloPacket(), {});
  const std::optional<v1::NodeMessage> answer = session->Receive();
  if (!answer.has_value()) return absl::UnavailableError("no answer");
  if (answer->has_refused()) {
    return absl::Status(static_cast<absl::StatusCode>(answer->refused().code()),
                        answer->refused().reason());
  }
  session->welcome_ = answer->welcome();
  return session;
}

SessionId HostileSession::id() const {
  return SessionId::FromBytes(welcome_.session()).value_or(SessionId{});
}

std::optional<v1::NodeMessage> HostileSession::Receive(Descriptor* descriptor) {
  const std::string bytes = ReceivePacket(socket(), descriptor);
  v1::NodeMessage message;
  if (bytes.empty() || !message.ParseFromString(bytes)) return std::nullopt;
  return message;
}

absl::StatusOr<Descriptor> HostileSession::TakeDescriptor(std::uint64_t region,
                                                          std::uint32_t what) {
  v1::ClientMessage wanted;
  wanted.mutable_descriptor_wanted()->set_region(region);
  wanted.mutable_descriptor_wanted()->set_what(what);
  Send(wanted);
  Descriptor descriptor;
  const std::optional<v1::NodeMessage> answer = Receive(&descriptor);
  if (!answer.has_value()) return absl::UnavailableError("no answer");
  if (!answer->has_descriptor_is() || !descriptor.valid()) {
    return absl::PermissionDeniedError(answer->descriptor_refused().reason());
  }
  v1::ClientMessage taken;
  taken.mutable_descriptor_taken()->set_region(region);
  taken.mutable_descriptor_taken()->set_what(what);
  Send(taken);
  return descriptor;
}

bool HostileSession::LendStaging(std::uint64_t id, int memory,
                                 std::uint64_t bytes) {
  v1::ClientMessage message;
  message.mutable_add_staging()->set_staging(id);
  message.mutable_add_staging()->set_bytes(bytes);
  Send(message, {memory});
  const std::optional<v1::NodeMessage> answer = Receive();
  return answer.has_value() && answer->has_staging_accepted();
}

void FillHeader(const SessionId& session, v1::RequestHeader* header) {
  RequestHeader filled;
  filled.remaining = kCallTimeout;
  filled.session = session;
  ToProto(filled, header);
}

absl::StatusOr<std::string> CallNode(ControlChannel* channel,
                                     const std::string& method,
                                     const std::string& request) {
  Inbox<absl::StatusOr<std::string>> answer;
  channel->StartCall(StrCat("/firnkv.v1.NodeService/", method), request,
                     kCallTimeout,
                     [&answer](absl::StatusOr<std::string> response) {
                       answer.Put(std::move(response));
                     });
  return answer.Take();
}

}  // namespace firnkv
