// Control calls as encoded messages. A seam: gRPC in production
// (grpc_channel.h), the simulated network in tests.
//
// Everything above this line speaks protobuf bytes and method names, so client,
// node and catalog run whole without gRPC: in the simulator, and in the
// sanitizer builds. On the wire it is ordinary gRPC: other languages call the
// services of proto/*.proto with generated stubs.
//
// Bulk bytes never go here (byte_stream.h).

#ifndef FIRNKV_CLIENT_TRANSPORT_CONTROL_CHANNEL_H_
#define FIRNKV_CLIENT_TRANSPORT_CONTROL_CHANNEL_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace firnkv {

// Runs exactly once, on a thread of the channel or of the handler, never under
// a lock; must not block.
using ControlReply =
    absl::AnyInvocable<void(absl::StatusOr<std::string> response) &&>;

// One peer, called.
class ControlChannel {
 public:
  // Ends what is outstanding with CANCELLED; every `done` has run on return.
  virtual ~ControlChannel() = default;

  // Calls `method`, "/firnkv.v1.NodeService/OpenRead". `timeout` must be
  // positive; DEADLINE_EXCEEDED once it is over, UNAVAILABLE where the peer
  // cannot be reached. Never retried here. `done` may run inside StartCall.
  virtual void StartCall(std::string_view method, std::string request,
                         absl::Duration timeout, ControlReply done) = 0;
};

// Makes channels. Connecting is lazy: a channel to nobody fails its calls.
class ControlConnector {
 public:
  virtual ~ControlConnector() = default;
  // "unix:/run/firnkv/node.sock" or "host:port".
  virtual std::unique_ptr<ControlChannel> Connect(std::string_view address) = 0;
};

// Who calls, as far as the transport knows.
struct ControlPeer {
  // Over a unix socket of this host; only then may a session id speak for the
  // caller (rule S3).
  bool local = false;
  // For logs.
  std::string address;
};

// The serving side of one service.
class ControlService {
 public:
  virtual ~ControlService() = default;

  // "firnkv.v1.NodeService".
  virtual std::string_view service() const = 0;

  // Serves one call; `method` is the whole path, as StartCall has it. `request`
  // is valid only until Handle returns. `reply` runs exactly once, at once or
  // later, also if the caller is gone by then.
  virtual void Handle(std::string_view method, const ControlPeer& peer,
                      std::string_view request, ControlReply reply) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_CONTROL_CHANNEL_H_
