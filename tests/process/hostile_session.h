// A local session by system calls: packets, descriptors of any kind, and calls
// with whatever session id. For clients that keep no rule.
//
// Threading. One thread; a receive waits for at most kPatienceSeconds.

#ifndef FIRNKV_TESTS_PROCESS_HOSTILE_SESSION_H_
#define FIRNKV_TESTS_PROCESS_HOSTILE_SESSION_H_

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/transport/control_channel.h"
#include "client/transport/descriptor.h"
#include "proto/base/id.h"
#include "proto/node.pb.h"
#include "proto/session.pb.h"

namespace firnkv {

inline constexpr int kPatienceSeconds = 20;

// A socket of the node's, connected and silent; invalid where it is refused.
// `type` as of socket(2).
Descriptor ConnectTo(const std::string& path, int type);
inline Descriptor ConnectTo(const std::string& path) {
  return ConnectTo(path, SOCK_SEQPACKET);
}
// False: the peer is gone.
bool SendPacket(int socket, const std::string& bytes,
                const std::vector<int>& descriptors);
// One packet, its descriptors closed but for the first, which goes to
// `descriptor`; empty at the end and after kPatienceSeconds.
std::string ReceivePacket(int socket, Descriptor* descriptor);
// Whether the peer ends the connection within kPatienceSeconds; what it says
// until then is thrown away.
bool IsEnded(int socket);

class HostileSession {
 public:
  // Says a true hello. PERMISSION_DENIED and the like, as the node says it.
  static absl::StatusOr<std::unique_ptr<HostileSession>> Connect(
      const std::string& path);

  int socket() const { return socket_.get(); }
  const v1::SessionWelcome& welcome() const { return welcome_; }
  SessionId id() const;

  bool Send(const v1::ClientMessage& message,
            const std::vector<int>& descriptors = {}) {
    return SendPacket(socket(), message.SerializeAsString(), descriptors);
  }
  std::optional<v1::NodeMessage> Receive(Descriptor* descriptor = nullptr);

  // The region's descriptor (0) or its header table's (1).
  absl::StatusOr<Descriptor> TakeDescriptor(std::uint64_t region,
                                            std::uint32_t what);
  // Whether the node took it.
  bool LendStaging(std::uint64_t id, int memory, std::uint64_t bytes);

 private:
  Descriptor socket_;
  v1::SessionWelcome welcome_;
};

// A header that speaks for the session.
void FillHeader(const SessionId& session, v1::RequestHeader* header);

// One call, waited for. `method`: "OpenRead".
absl::StatusOr<std::string> CallNode(ControlChannel* channel,
                                     const std::string& method,
                                     const std::string& request);

template <typename Response, typename Request>
absl::StatusOr<Response> CallAs(ControlChannel* channel,
                                const SessionId& session,
                                const std::string& method, Request request) {
  FillHeader(session, request.mutable_header());
  const absl::StatusOr<std::string> bytes =
      CallNode(channel, method, request.SerializeAsString());
  if (!bytes.ok()) return bytes.status();
  Response response;
  if (!response.ParseFromString(*bytes)) {
    return absl::InternalError("nonsense");
  }
  return response;
}

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_HOSTILE_SESSION_H_
