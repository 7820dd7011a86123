// Serves ControlServices as ordinary gRPC services, on several addresses.
//
// To gRPC it looks like generated code: the methods are those of the services'
// descriptors, so health checks and reflection list them and grpcurl works. To
// the handlers it is the control channel: names, bytes, statuses.
//
// Threading. Handlers are called on gRPC's threads, several at a time, and must
// not block. All methods from one thread, the owner's; not from a handler.
//
// Ownership. Handlers outlive the server.

#ifndef FIRNKV_SERVER_BASE_GRPC_SERVER_H_
#define FIRNKV_SERVER_BASE_GRPC_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/control_channel.h"
#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "server/base/capped_listener.h"

namespace firnkv {

class GrpcServer {
 public:
  struct Options {
    // "unix:/run/firnkv/node.sock.control", "127.0.0.1:7410", "[::]:7410".
    // A unix socket gets mode 0666: who may do what is decided by sessions and
    // tokens.
    std::vector<std::string> addresses;
    // Connections to each unix socket; one beyond is closed (rule S4).
    CappedListener::Options unix_connections;
    // Longer requests and answers are RESOURCE_EXHAUSTED.
    std::size_t max_message_bytes = kMaxControlMessageBytes;
    // Of messages that are being received, all connections together; beyond it
    // gRPC reads no further and refuses streams.
    std::uint64_t max_buffered_bytes = 256 * kMiB;
    // gRPC's threads of its own for this server.
    int max_threads = 8;
    // Calls at a time on one connection; more wait in the caller.
    int max_calls_a_connection = 1024;
    // The shortest time between pings that a peer may send; half of the
    // connector's keepalive, which would be ended as abuse otherwise.
    absl::Duration shortest_ping_interval = absl::Seconds(5);
  };

  // UNAVAILABLE, naming the address and why, where one cannot be had (a socket
  // of somebody who lives is one); FAILED_PRECONDITION where a handler's
  // service is not among the messages linked into the program.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const Options& options, std::vector<ControlService*> handlers);

  // Shutdown without grace.
  ~GrpcServer();

  // Where it listens really: ports asked for as 0 are the ones it got.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // What the health service answers for all services; true from the start.
  void SetServing(bool serving);

  // Refuses new calls, lets running ones end within `grace`, then cancels them,
  // and returns when the last handler has replied. Handlers that are destroyed
  // unreplied have: the caller is told UNAVAILABLE. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  class Bridge;
  struct Parts;

  explicit GrpcServer(std::unique_ptr<Parts> parts);

  // What became of listening; fills addresses_.
  absl::Status NoteAddresses(const std::vector<std::string>& addresses,
                             const std::vector<int>& ports);
  // Connections may come from now on.
  absl::Status ListenAtPaths(const Options& options);

  const std::unique_ptr<Parts> parts_;
  std::vector<std::string> addresses_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_BASE_GRPC_SERVER_H_
