// The network of production: TCP on a few event loops, one as a rule.
//
// Sockets are non-blocking, without Nagle's delay, with keepalives and
// TCP_USER_TIMEOUT, so that a peer that is gone without a word ends the
// connection. That is not a deadline: one that reads a byte now and then is
// alive to TCP, and every request has its own (rule T3).
//
// A connection always ends by an abort (linger 0): what is queued is dropped,
// not sent later from memory that may be another block's by then (rule T2).
//
// Threading. As byte_stream.h says. Bytes are moved by the thread that starts a
// transfer as far as the kernel has room, else by the connection's loop, or by
// who has its arrivals lent. `on_accept` runs on the first loop.
//
// Ownership. Streams and listeners end before the network; connects that are
// outstanding at its end are answered CANCELLED.

#ifndef FIRNKV_CLIENT_TRANSPORT_TCP_NETWORK_H_
#define FIRNKV_CLIENT_TRANSPORT_TCP_NETWORK_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/byte_stream.h"
#include "client/transport/event_loop.h"
#include "client/transport/host_resolver.h"
#include "proto/base/clock.h"

namespace firnkv {

class TcpNetwork : public Network {
 public:
  struct Options {
    // Data that a peer does not acknowledge for so long ends its connection;
    // silence of an idle one is noticed after about as long, by keepalives.
    absl::Duration user_timeout = absl::Seconds(10);
    // Connections that wait to be accepted, by listener; the kernel caps it
    // at net.core.somaxconn.
    int backlog = 1024;
    std::string thread_name = "firnkv-tcp";
    // Connections are dealt out among them; each stays with its thread.
    int threads = 1;
  };

  // `clock` outlives the network. RESOURCE_EXHAUSTED where the machine gives no
  // threads or descriptors.
  static absl::StatusOr<std::unique_ptr<TcpNetwork>> Make(
      const Options& options, const Clock* clock);
  ~TcpNetwork() override;

  // Host names are looked up; where one has several addresses they are tried in
  // turn. `done` never runs inside StartConnect.
  void StartConnect(
      std::string_view address, absl::Duration timeout,
      absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>
          done) override;

  // A status names the address. Looks a host name up here and now.
  absl::StatusOr<std::unique_ptr<ByteStreamListener>> Listen(
      std::string_view address,
      absl::AnyInvocable<void(std::unique_ptr<ByteStream>)> on_accept) override;

 private:
  explicit TcpNetwork(const Options& options) : options_(options) {}
  // Whose turn it is to take a connection.
  EventLoop* NextLoop();

  const Options options_;
  // At least one; the first accepts.
  std::vector<std::unique_ptr<EventLoop>> loops_;
  std::atomic<std::size_t> dealt_{0};
  // Ends before the loops, which its answers go to.
  std::optional<HostResolver> resolver_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_TCP_NETWORK_H_
