#include "client/transport/tcp_network.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "client/transport/acceptor.h"
#include "client/transport/descriptor.h"
#include "client/transport/socket_address.h"
#include "client/transport/tcp_connection.h"
#include "client/transport/tcp_connector.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

using ConnectDone =
    absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>) &&>;

class LentTcpStream : public LentStream {
 public:
  LentTcpStream(std::shared_ptr<TcpConnection> connection, int fd)
      : connection_(std::move(connection)), fd_(fd) {}
  ~LentTcpStream() override { connection_->GiveBack(); }

  int descriptor() const override { return fd_; }
  Received Receive() override { return connection_->ReceiveLent(); }

 private:
  // Shared: the stream may end before.
  const std::shared_ptr<TcpConnection> connection_;
  const int fd_;
};

class TcpStream : public ByteStream {
 public:
  explicit TcpStream(std::shared_ptr<TcpConnection> connection)
      : connection_(std::move(connection)) {}
  ~TcpStream() override { connection_->CloseAndWait(); }

  // A `done` that runs inside may destroy this stream: hence the copies.
  void StartSend(std::vector<absl::Span<const std::byte>> pieces,
                 ByteStreamDone done) override {
    const std::shared_ptr<TcpConnection> connection = connection_;
    connection->StartSend(std::move(pieces), std::move(done));
  }
  void StartReceive(std::vector<absl::Span<std::byte>> pieces,
                    ByteStreamDone done) override {
    const std::shared_ptr<TcpConnection> connection = connection_;
    connection->StartReceive(std::move(pieces), std::move(done));
  }
  void Close() override { connection_->Close(); }
  std::string peer() const override { return connection_->peer(); }
  std::unique_ptr<LentStream> Lend() override {
    int fd = -1;
    if (!connection_->Lend(&fd)) return nullptr;
    return std::make_unique<LentTcpStream>(connection_, fd);
  }

 private:
  // Shared with the loop and with calls in progress (tcp_connection.h).
  const std::shared_ptr<TcpConnection> connection_;
};

class TcpListener : public ByteStreamListener {
 public:
  TcpListener(std::shared_ptr<Acceptor> acceptor, std::string address)
      : acceptor_(std::move(acceptor)), address_(std::move(address)) {}
  ~TcpListener() override { acceptor_->Stop(); }

  std::string address() const override { return address_; }

 private:
  // Shared with the loop (acceptor.h).
  const std::shared_ptr<Acceptor> acceptor_;
  const std::string address_;
};

void SetInt(int fd, int level, int option, int value) {
  // An option that a kernel refuses costs speed or patience, not truth.
  setsockopt(fd, level, option, &value, sizeof(value));
}

// Keepalives: the first after half of the time, two more a quarter apart.
void Tune(int fd, absl::Duration user_timeout) {
  const auto millis = static_cast<int>(absl::ToInt64Milliseconds(user_timeout));
  const int idle_seconds = std::max(1, millis / 2000);
  const int interval_seconds = std::max(1, millis / 4000);
  SetInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, millis);
  SetInt(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_seconds);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_seconds);
  SetInt(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
}

absl::StatusOr<std::unique_ptr<ByteStream>> MakeStream(
    EventLoop* loop, Descriptor socket, absl::Duration user_timeout,
    std::string peer) {
  Tune(socket.get(), user_timeout);
  ASSIGN_OR_RETURN(
      std::shared_ptr<TcpConnection> connection,
      TcpConnection::Make(loop, std::move(socket), std::move(peer)));
  return std::make_unique<TcpStream>(std::move(connection));
}

absl::StatusOr<SocketAddress> AddressToListenOn(std::string_view address) {
  ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  if (const auto numeric = NumericAddress(host_port)) return *numeric;
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> found,
                   ResolveNow(host_port));
  if (found.empty()) {
    return absl::UnavailableError(StrCat("'", address, "' has no address"));
  }
  return found.front();
}

absl::StatusOr<Descriptor> ListenOn(const SocketAddress& address, int backlog) {
  const auto failed = [&address](std::string_view what, int error) {
    return absl::ErrnoToStatus(error, StrCat(what, " ", address.ToString()));
  };
  Descriptor fd(
      socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return failed("socket for", errno);
  // Else a restarted daemon waits a minute for its last one's connections.
  SetInt(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd.get(), address.get(), address.length) != 0) {
    return failed("bind", errno);
  }
  if (listen(fd.get(), backlog) != 0) return failed("listen", errno);
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpNetwork>> TcpNetwork::Make(
    const Options& options, const Clock* clock) {
  // The constructor is private. NOLINTNEXTLINE
  std::unique_ptr<TcpNetwork> network(new TcpNetwork(options));
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop,
                     EventLoop::Start(options.thread_name, clock));
    network->loops_.push_back(std::move(loop));
  }
  network->resolver_.emplace();
  return network;
}

TcpNetwork::~TcpNetwork() { resolver_.reset(); }

EventLoop* TcpNetwork::NextLoop() {
  return loops_[dealt_.fetch_add(1) % loops_.size()].get();
}

void TcpNetwork::StartConnect(std::string_view address, absl::Duration timeout,
                              ConnectDone done) {
  EventLoop* const loop = NextLoop();
  // Shared by the timer, the watch and the look-up (tcp_connector.h).
  auto connector = std::make_shared<TcpConnector>(
      loop, std::string(address),
      [loop, user_timeout = options_.user_timeout, peer = std::string(address),
       done = std::move(done)](absl::StatusOr<Descriptor> socket) mutable {
        if (!socket.ok()) {
          return std::move(done)(std::move(socket).status());
        }
        std::move(done)(
            MakeStream(loop, *std::move(socket), user_timeout, peer));
      });
  absl::StatusOr<HostPort> host_port = ParseHostPort(address);
  // What is known at once: the address of a number, or that it is none.
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> known;
  if (!host_port.ok()) {
    known = std::move(host_port).status();
  } else if (const auto numeric = NumericAddress(*host_port)) {
    known = std::vector<SocketAddress>{*numeric};
  }
  const bool look_up = !known.has_value();
  loop->Post([connector, timeout, known = std::move(known)]() mutable {
    connector->Arm(timeout);
    if (known.has_value()) connector->Begin(*std::move(known));
  });
  if (!look_up) return;
  resolver_->Resolve(
      *std::move(host_port),
      [loop, connector](absl::StatusOr<std::vector<SocketAddress>> found) {
        loop->Post([connector, found = std::move(found)]() mutable {
          connector->Begin(std::move(found));
        });
      });
}

absl::StatusOr<std::unique_ptr<ByteStreamListener>> TcpNetwork::Listen(
    std::string_view address,
    absl::AnyInvocable<void(std::unique_ptr<ByteStream>)> on_accept) {
  ASSIGN_OR_RETURN(const SocketAddress wanted, AddressToListenOn(address));
  ASSIGN_OR_RETURN(Descriptor listening, ListenOn(wanted, options_.backlog));
  std::string bound = SocketAddress::LocalOf(listening.get()).ToString();
  ASSIGN_OR_RETURN(
      std::shared_ptr<Acceptor> acceptor,
      Acceptor::Start(
          loops_.front().get(), std::move(listening),
          [this, user_timeout = options_.user_timeout,
           on_accept = std::move(on_accept)](Descriptor socket) mutable {
            std::string peer = SocketAddress::PeerOf(socket.get()).ToString();
            absl::StatusOr<std::unique_ptr<ByteStream>> stream = MakeStream(
                NextLoop(), std::move(socket), user_timeout, std::move(peer));
            // Refused by the kernel or the end of the loop: the peer sees its
            // connection closed.
            if (stream.ok()) on_accept(*std::move(stream));
          }));
  return std::make_unique<TcpListener>(std::move(acceptor), std::move(bound));
}

}  // namespace firnkv
