#include "client/transport/unix_socket.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "client/transport/acceptor.h"
#include "client/transport/descriptor.h"
#include "client/transport/foreign_descriptor.h"
#include "client/transport/unix_connection.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

// Of Linux 6.16; Debian 12's headers are older.
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace firnkv {
namespace {

// Sessions that connect while the loop is busy; the kernel caps it at
// net.core.somaxconn.
constexpr int kBacklog = 512;

// What is appended to the path of a listener that is not yet there.
constexpr std::string_view kNascent = ".new";

absl::StatusOr<sockaddr_un> UnixAddress(std::string_view path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::size_t longest = sizeof(address.sun_path) - 1 - kNascent.size();
  if (path.empty() || path.size() > longest) {
    return absl::InvalidArgumentError(
        StrCat("socket path '", path, "' has ", path.size(),
               " bytes; the system's limit leaves 1 to ", longest));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* Plain(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

absl::Status PathStatus(int error, std::string_view what,
                        std::string_view path) {
  const std::string text = StrCat(what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ECONNREFUSED:
    // The listener's queue is full.
    case EAGAIN:
      return absl::UnavailableError(text);
    default:
      return absl::Status(absl::ErrnoToStatusCode(error), text);
  }
}

// `type`: SOCK_SEQPACKET, SOCK_STREAM. Over the latter no descriptors come:
// where the kernel can, it refuses them to their sender (rule S4), since who
// receives there does not look for any. An older one drops them.
absl::StatusOr<Descriptor> NewSocket(int type) {
  Descriptor fd(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "unix socket");
  const int no = 0;
  if (type == SOCK_STREAM) {
    setsockopt(fd.get(), SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
  }
  return fd;
}

class UnixLocalSocket : public LocalSocket {
 public:
  explicit UnixLocalSocket(std::shared_ptr<UnixConnection> connection)
      : connection_(std::move(connection)) {}
  ~UnixLocalSocket() override { connection_->Abandon(); }

  void Start(Callbacks callbacks) override {
    connection_->Start(std::move(callbacks));
  }
  absl::Status Send(std::string message,
                    std::shared_ptr<SharedMemory> memory) override {
    return connection_->Send(std::move(message), std::move(memory));
  }
  absl::Status SendWatched(std::string message,
                           std::shared_ptr<SharedMemory> memory,
                           OnTaken on_taken) override {
    return connection_->SendWatched(std::move(message), std::move(memory),
                                    std::move(on_taken));
  }
  void Close() override { connection_->Close(); }
  bool ReceiveHere(absl::FunctionRef<Taken(std::string_view message)> take,
                   absl::FunctionRef<bool()> waits) override {
    return connection_->ReceiveHere(take, waits);
  }
  void StopReceiving() override { connection_->StopReceiving(); }
  void LendSoon() override { connection_->LendSoon(); }
  void TakeBack() override { connection_->TakeBack(); }
  const PeerCredentials& credentials() const override {
    return connection_->credentials();
  }

 private:
  // Shared with the loop (unix_connection.h).
  const std::shared_ptr<UnixConnection> connection_;
};

absl::StatusOr<std::unique_ptr<LocalSocket>> MakeSocket(EventLoop* loop,
                                                        Descriptor fd,
                                                        NamespaceProof proof) {
  const absl::StatusOr<PeerCredentials> peer =
      ReadPeerCredentials(fd.get(), proof);
  if (!peer.ok()) {
    CloseForeign(std::move(fd));
    return peer.status();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<UnixConnection> connection,
                   UnixConnection::Make(loop, std::move(fd), *peer));
  return std::make_unique<UnixLocalSocket>(std::move(connection));
}

// Which file a path names now.
struct FileIdentity {
  dev_t device;
  ino_t inode;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
std::optional<FileIdentity> IdentityOf(const std::string& path) {
  struct stat stat = {};
  if (lstat(path.c_str(), &stat) != 0) return std::nullopt;
  return FileIdentity{stat.st_dev, stat.st_ino};
}

class UnixListener : public LocalListener {
 public:
  UnixListener(std::shared_ptr<Acceptor> acceptor, std::string path,
               std::optional<FileIdentity> identity)
      : acceptor_(std::move(acceptor)),
        path_(std::move(path)),
        identity_(identity) {}
  // Takes the socket file away, unless a successor has put its own there.
  ~UnixListener() override {
    acceptor_->Stop();
    if (identity_.has_value() && IdentityOf(path_) == identity_) {
      unlink(path_.c_str());
    }
  }

 private:
  // Shared with the loop (acceptor.h).
  const std::shared_ptr<Acceptor> acceptor_;
  const std::string path_;
  const std::optional<FileIdentity> identity_;
};

// A socket that listens at `path`, where nothing of worth is.
absl::StatusOr<Descriptor> ListenAt(const std::string& path, int type) {
  const std::string nascent = StrCat(path, kNascent);
  ASSIGN_OR_RETURN(sockaddr_un address, UnixAddress(path));
  std::memcpy(address.sun_path, nascent.data(), nascent.size());
  ASSIGN_OR_RETURN(Descriptor fd, NewSocket(type));
  // Left by somebody who was killed here.
  unlink(nascent.c_str());
  if (bind(fd.get(), Plain(address), sizeof(address)) != 0) {
    return PathStatus(errno, "bind", nascent);
  }
  int error = 0;
  if (listen(fd.get(), kBacklog) != 0 || chmod(nascent.c_str(), 0666) != 0 ||
      rename(nascent.c_str(), path.c_str()) != 0) {
    error = errno;
    unlink(nascent.c_str());
    return PathStatus(error, "listen at", path);
  }
  return fd;
}

absl::StatusOr<std::unique_ptr<LocalListener>> AcceptAt(
    EventLoop* loop, std::string_view path, int type,
    Acceptor::OnSocket on_socket) {
  RETURN_IF_ERROR(CheckSocketPathIsFree(path));
  std::string name(path);
  ASSIGN_OR_RETURN(Descriptor listening, ListenAt(name, type));
  const std::optional<FileIdentity> identity = IdentityOf(name);
  ASSIGN_OR_RETURN(
      std::shared_ptr<Acceptor> acceptor,
      Acceptor::Start(loop, std::move(listening), std::move(on_socket)));
  return std::make_unique<UnixListener>(std::move(acceptor), std::move(name),
                                        identity);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixSockets>> UnixSockets::Make(
    const Options& options, const Clock* clock) {
  // The constructor is private. NOLINTNEXTLINE
  std::unique_ptr<UnixSockets> sockets(new UnixSockets(options));
  ASSIGN_OR_RETURN(sockets->loop_,
                   EventLoop::Start(options.thread_name, clock));
  return sockets;
}

absl::StatusOr<std::unique_ptr<LocalSocket>> UnixSockets::Connect(
    std::string_view path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  ASSIGN_OR_RETURN(Descriptor fd, NewSocket(SOCK_SEQPACKET));
  // On a unix socket this ends at once, one way or the other.
  if (connect(fd.get(), Plain(address), sizeof(address)) != 0) {
    return PathStatus(errno, "connect to", path);
  }
  return MakeSocket(loop_.get(), std::move(fd), options_.namespace_proof);
}

absl::StatusOr<std::unique_ptr<LocalListener>> UnixSockets::Listen(
    std::string_view path,
    absl::AnyInvocable<void(std::unique_ptr<LocalSocket>)> on_accept) {
  EventLoop* const loop = loop_.get();
  return AcceptAt(loop, path, SOCK_SEQPACKET,
                  [loop, proof = options_.namespace_proof,
                   on_accept = std::move(on_accept)](Descriptor fd) mutable {
                    absl::StatusOr<std::unique_ptr<LocalSocket>> socket =
                        MakeSocket(loop, std::move(fd), proof);
                    // Else the peer is gone, or the loop ends.
                    if (socket.ok()) on_accept(*std::move(socket));
                  });
}

absl::StatusOr<std::unique_ptr<LocalListener>> ListenForStreams(
    EventLoop* loop, std::string_view path,
    absl::AnyInvocable<void(Descriptor)> on_socket) {
  return AcceptAt(loop, path, SOCK_STREAM, std::move(on_socket));
}

absl::Status CheckSocketPathIsFree(std::string_view path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  struct stat stat = {};
  if (lstat(address.sun_path, &stat) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return PathStatus(errno, "look at", path);
  }
  if (!S_ISSOCK(stat.st_mode)) {
    return absl::FailedPreconditionError(
        StrCat(path,
               " exists and is not a socket; remove it or name "
               "another path"));
  }
  ASSIGN_OR_RETURN(const Descriptor fd, NewSocket(SOCK_SEQPACKET));
  const int result = connect(fd.get(), Plain(address), sizeof(address));
  // Refused by a socket file whose owner has ended. Any other answer, also that
  // the type is another one (EPROTOTYPE) or the queue full, is of somebody who
  // lives.
  if (result != 0 && (errno == ECONNREFUSED || errno == ENOENT)) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(
      StrCat(path, " is the socket of a process that runs"));
}

}  // namespace firnkv
