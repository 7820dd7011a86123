// Local sessions of production: unix sockets that keep messages whole
// (SOCK_SEQPACKET), pass memfds (SCM_RIGHTS) and say who the peer is.
//
// A listener appears under its path already listening and with mode 0666: it is
// bound beside it and renamed over it, so there is no moment with a mode that
// the umask chose.
//
// Threading. As local_socket.h says; callbacks run on one loop's thread.
//
// Ownership. Sockets and listeners end before the UnixSockets.

#ifndef FIRNKV_CLIENT_TRANSPORT_UNIX_SOCKET_H_
#define FIRNKV_CLIENT_TRANSPORT_UNIX_SOCKET_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/descriptor.h"
#include "client/transport/event_loop.h"
#include "client/transport/local_socket.h"
#include "client/transport/peer_credentials.h"
#include "proto/base/clock.h"

namespace firnkv {

class UnixSockets : public LocalSockets {
 public:
  struct Options {
    NamespaceProof namespace_proof = NamespaceProof::kNamespaceLink;
    std::string thread_name = "firnkv-unix";
  };

  // `clock` outlives it. RESOURCE_EXHAUSTED where the machine gives no threads
  // or descriptors.
  static absl::StatusOr<std::unique_ptr<UnixSockets>> Make(
      const Options& options, const Clock* clock);

  // UNAVAILABLE where nobody listens, naming the path.
  absl::StatusOr<std::unique_ptr<LocalSocket>> Connect(
      std::string_view path) override;

  // A status names the path. ALREADY_EXISTS where somebody listens there.
  absl::StatusOr<std::unique_ptr<LocalListener>> Listen(
      std::string_view path,
      absl::AnyInvocable<void(std::unique_ptr<LocalSocket>)> on_accept)
      override;

 private:
  explicit UnixSockets(const Options& options) : options_(options) {}

  const Options options_;
  std::unique_ptr<EventLoop> loop_;
};

// Ordinary unix sockets (SOCK_STREAM), listened for in the same way, as they
// are: non-blocking, close-on-exec. For servers that know what to do with a
// descriptor. The callback runs on the loop's thread; `loop` outlives the
// listener.
absl::StatusOr<std::unique_ptr<LocalListener>> ListenForStreams(
    EventLoop* loop, std::string_view path,
    absl::AnyInvocable<void(Descriptor)> on_socket);

// OK where nothing is at `path`, or the socket of somebody who has ended;
// ALREADY_EXISTS where somebody listens (on a socket of whatever type),
// FAILED_PRECONDITION where the path is something else. Also for the gRPC
// server, which would replace a live socket without a word.
absl::Status CheckSocketPathIsFree(std::string_view path);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_UNIX_SOCKET_H_
