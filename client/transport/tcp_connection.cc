#include "client/transport/tcp_connection.h"

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Pieces that one system call takes.
constexpr std::size_t kPiecesACall = IOV_MAX;

// Bytes after which a transfer lets others have their turn: 4 MiB are about a
// millisecond of copying.
constexpr std::size_t kTurnBytes = 4 * kMiB;

// A `done` that starts the next transfer, which is finished at once, whose
// `done` starts the next: so deep on one stack, then by way of the loop.
constexpr int kMaxInlineDepth = 4;

// As edges: a transfer always tries before it waits, so nothing has to be said
// to epoll when one begins.
constexpr std::uint32_t kEdge = EPOLLET;
constexpr std::uint32_t kReceiveEvents = EPOLLIN | EPOLLRDHUP;
constexpr std::uint32_t kSendEvents = EPOLLOUT;
// Aligned as a pointer: a thread's segment of less, that ends within 8 bytes of
// a page's end, is laid out by lld so that the program does not start.
alignas(void*) thread_local int inline_depth = 0;

template <typename Byte>
std::vector<iovec> ToVectors(absl::Span<const absl::Span<Byte>> pieces) {
  std::vector<iovec> vectors;
  // One more: where a receive looks ahead.
  vectors.reserve(pieces.size() + 1);
  for (const absl::Span<Byte> piece : pieces) {
    if (piece.empty()) continue;
    // sendmsg(2) takes const memory through a pointer that is not.
    vectors.push_back(
        {const_cast<void*>(static_cast<const void*>(piece.data())),
         piece.size()});
  }
  return vectors;
}

absl::Status Closed() {
  return absl::CancelledError("the connection was closed on this side");
}

}  // namespace

TcpConnection::TcpConnection(EventLoop* loop, Descriptor socket,
                             std::string peer)
    : loop_(loop), peer_(std::move(peer)), socket_(std::move(socket)) {}

TcpConnection::~TcpConnection() = default;

absl::StatusOr<std::shared_ptr<TcpConnection>> TcpConnection::Make(
    EventLoop* loop, Descriptor socket, std::string peer) {
  const int fd = socket.get();
  // The constructor is private. NOLINTNEXTLINE
  std::shared_ptr<TcpConnection> connection(
      new TcpConnection(loop, std::move(socket), std::move(peer)));
  MutexLock lock(&connection->mutex_);
  ASSIGN_OR_RETURN(
      connection->watch_,
      loop->Watch(fd, kReceiveEvents | kSendEvents | kEdge, connection));
  return connection;
}

void TcpConnection::StartSend(std::vector<absl::Span<const std::byte>> pieces,
                              ByteStreamDone done) {
  Start(kSend, ToVectors<const std::byte>(pieces), std::move(done));
}

void TcpConnection::StartReceive(std::vector<absl::Span<std::byte>> pieces,
                                 ByteStreamDone done) {
  Start(kReceive, ToVectors<std::byte>(pieces), std::move(done));
}

void TcpConnection::Start(Direction direction, std::vector<iovec> pieces,
                          ByteStreamDone done) {
  absl::Status refused;
  {
    MutexLock lock(&mutex_);
    State& state = states_[direction];
    if (closed_) {
      refused = Closed();
    } else if (state.active) {
      refused = absl::FailedPreconditionError(
          StrCat("a ", direction == kSend ? "send" : "receive", " to or from ",
                 peer_, " is outstanding"));
    } else {
      state.active = true;
      // Not active before, so nobody is busy with it: it is this thread's.
      transfers_[direction] = Transfer{.pieces = std::move(pieces),
                                       .next = 0,
                                       .begun = false,
                                       .failure = absl::OkStatus(),
                                       .done = std::move(done)};
    }
  }
  if (!refused.ok()) {
    RunDone(std::move(done), std::move(refused));
  } else if (inline_depth < kMaxInlineDepth) {
    Pump(direction);
  } else {
    loop_->Post(
        [self = shared_from_this(), direction] { self->Pump(direction); });
  }
}

// An edge that comes while a thread is busy sets `again`; one that comes while
// there is no transfer is forgotten, since the next transfer tries first. So no
// readiness is lost: between a turn that was blocked and the clearing of `busy`
// every edge is seen by the test of `again`, and later ones come here.
void TcpConnection::Pump(Direction direction) {
  Transfer& transfer = transfers_[direction];
  int fd = -1;
  {
    MutexLock lock(&mutex_);
    State& state = states_[direction];
    state.again = state.busy;
    if (!state.active || state.busy || closed_) return;
    state.busy = true;
    fd = socket_.get();
  }
  for (;;) {
    const Turn turn = Move(fd, direction, &transfer);

    Descriptor dead;
    ByteStreamDone done;
    absl::Status status;
    bool lent = false;
    {
      MutexLock lock(&mutex_);
      State& state = states_[direction];
      lent = lent_ && direction == kReceive;
      if (turn == Turn::kBlocked && state.again && !closed_) {
        state.again = false;
        continue;
      }
      state.busy = false;
      if (turn == Turn::kBlocked && direction == kSend && !watches_sends_) {
        watches_sends_ = true;
        if (!closed_) Watch();
      }
      if (turn == Turn::kFinished || closed_) {
        status =
            turn == Turn::kFinished ? std::move(transfer.failure) : Closed();
        state.active = false;
        done = std::move(transfer.done);
        gate_.Enter();
      }
      dead = TakeDeadSocket();
    }
    if (dead.valid()) Abort(std::move(dead));
    if (done != nullptr) {
      ++inline_depth;
      std::move(done)(std::move(status));
      --inline_depth;
      MutexLock lock(&mutex_);
      gate_.Leave();
    } else if (turn == Turn::kYielded && !lent) {
      // Whoever has it lent finds it readable still.
      loop_->Post(
          [self = shared_from_this(), direction] { self->Pump(direction); });
    }
    return;
  }
}

TcpConnection::Turn TcpConnection::Move(int fd, Direction direction,
                                        Transfer* transfer) {
  return direction == kSend ? Send(fd, transfer) : Receive(fd, transfer);
}

TcpConnection::Turn TcpConnection::Send(int fd, Transfer* transfer) const {
  std::size_t moved_this_turn = 0;
  while (transfer->next < transfer->pieces.size()) {
    if (moved_this_turn >= kTurnBytes) return Turn::kYielded;
    msghdr message = {};
    message.msg_iov = &transfer->pieces[transfer->next];
    message.msg_iovlen =
        std::min(transfer->pieces.size() - transfer->next, kPiecesACall);
    const ssize_t result = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Turn::kBlocked;
      transfer->failure = Failure(kSend, errno);
      return Turn::kFinished;
    }
    moved_this_turn += static_cast<std::size_t>(result);
    transfer->Took(static_cast<std::size_t>(result));
  }
  return Turn::kFinished;
}

TcpConnection::Turn TcpConnection::Receive(int fd, Transfer* transfer) {
  TakeAhead(transfer);
  std::size_t moved_this_turn = 0;
  while (transfer->next < transfer->pieces.size()) {
    if (moved_this_turn >= kTurnBytes) return Turn::kYielded;
    // What came ahead was all taken, or there would be nothing left to receive.
    transfer->pieces.push_back({ahead_.data(), ahead_.size()});
    msghdr message = {};
    message.msg_iov = &transfer->pieces[transfer->next];
    message.msg_iovlen =
        std::min(transfer->pieces.size() - transfer->next, kPiecesACall);
    const ssize_t result = recvmsg(fd, &message, 0);
    transfer->pieces.pop_back();
    if (result < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Turn::kBlocked;
      transfer->failure = Failure(kReceive, errno);
      return Turn::kFinished;
    }
    if (result == 0) {
      transfer->failure = transfer->begun
                              ? absl::UnavailableError(
                                    StrCat(peer_, " closed within a message"))
                              : absl::OutOfRangeError(StrCat(peer_, " closed"));
      return Turn::kFinished;
    }
    moved_this_turn += static_cast<std::size_t>(result);
    ahead_begin_ = 0;
    ahead_end_ = transfer->Took(static_cast<std::size_t>(result));
  }
  return Turn::kFinished;
}

void TcpConnection::TakeAhead(Transfer* transfer) {
  while (ahead_begin_ < ahead_end_ &&
         transfer->next < transfer->pieces.size()) {
    const iovec& piece = transfer->pieces[transfer->next];
    const std::size_t part = std::min(ahead_end_ - ahead_begin_, piece.iov_len);
    std::memcpy(piece.iov_base, ahead_.data() + ahead_begin_, part);
    ahead_begin_ += part;
    transfer->Took(part);
  }
}

std::size_t TcpConnection::Transfer::Took(std::size_t bytes) {
  begun = true;
  while (bytes > 0 && next < pieces.size()) {
    iovec& piece = pieces[next];
    const std::size_t part = std::min(bytes, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + part;
    piece.iov_len -= part;
    bytes -= part;
    if (piece.iov_len == 0) ++next;
  }
  return bytes;
}

absl::Status TcpConnection::Failure(Direction direction, int error) const {
  const std::string what =
      StrCat(direction == kSend ? "send to " : "receive from ", peer_, ": ",
             std::strerror(error));
  // The caller's memory was no memory.
  if (error == EFAULT) return absl::InvalidArgumentError(what);
  return absl::UnavailableError(what);
}

void TcpConnection::OnEvents(std::uint32_t events) {
  // A failure wakes both, so that each finds out by its own system call.
  const bool failed = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (failed || (events & (EPOLLIN | EPOLLRDHUP)) != 0) Pump(kReceive);
  if (failed || (events & EPOLLOUT) != 0) Pump(kSend);
}

// --- Lent.

// A change asks anew, and there is room to send nearly always: said, it would
// wake the loop for nothing.
void TcpConnection::Watch() {
  loop_->Change(watch_, socket_.get(),
                kEdge | (lent_ ? 0 : kReceiveEvents) |
                    (watches_sends_ ? kSendEvents : 0));
}

bool TcpConnection::Lend(int* fd) {
  MutexLock lock(&mutex_);
  if (closed_ || lent_ || loop_->InLoop()) return false;
  lent_ = true;
  watches_sends_ = states_[kSend].active;
  *fd = socket_.get();
  Watch();
  return true;
}

void TcpConnection::GiveBack() {
  Descriptor dead;
  {
    MutexLock lock(&mutex_);
    lent_ = false;
    // What has arrived meanwhile is an event anew.
    if (!closed_) Watch();
    dead = TakeDeadSocket();
  }
  if (dead.valid()) Abort(std::move(dead));
}

LentStream::Received TcpConnection::ReceiveLent() {
  {
    MutexLock lock(&mutex_);
    if (closed_) return LentStream::Received::kEnded;
    // Or it runs a `done`, which begins the next receive or closes.
    if (states_[kReceive].busy || !states_[kReceive].active) {
      return LentStream::Received::kOtherThread;
    }
  }
  Pump(kReceive);
  return LentStream::Received::kAll;
}

void TcpConnection::RunDone(ByteStreamDone done, absl::Status status) {
  {
    MutexLock lock(&mutex_);
    gate_.Enter();
  }
  ++inline_depth;
  std::move(done)(std::move(status));
  --inline_depth;
  MutexLock lock(&mutex_);
  gate_.Leave();
}

void TcpConnection::Close() {
  bool unfinished = false;
  CloseOnly(&unfinished);
  // Not from in here: the caller may hold what `done` wants.
  if (unfinished) {
    loop_->Post([self = shared_from_this()] { self->FinishClosed(); });
  }
}

void TcpConnection::CloseOnly(bool* unfinished) {
  Descriptor dead;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    for (const State& state : states_) {
      *unfinished = *unfinished || (state.active && !state.busy);
    }
    // Wakes who has it lent; the peer notices nothing.
    if (lent_) shutdown(socket_.get(), SHUT_RD);
    dead = TakeDeadSocket();
  }
  if (dead.valid()) Abort(std::move(dead));
}

void TcpConnection::FinishClosed() {
  for (std::size_t direction = 0; direction < kDirections; ++direction) {
    ByteStreamDone done;
    {
      MutexLock lock(&mutex_);
      State& state = states_[direction];
      // Whoever is busy sees closed_ and finishes it.
      if (!state.active || state.busy) continue;
      state.active = false;
      done = std::move(transfers_[direction].done);
      gate_.Enter();
    }
    ++inline_depth;
    std::move(done)(Closed());
    --inline_depth;
    MutexLock lock(&mutex_);
    gate_.Leave();
  }
}

void TcpConnection::CloseAndWait() {
  bool unfinished = false;
  CloseOnly(&unfinished);
  FinishClosed();
  MutexLock lock(&mutex_);
  // A thread that is busy enters the gate in the step in which it ends to be.
  const auto moving = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::any_of(states_.begin(), states_.end(),
                       [](const State& state) { return state.busy; });
  };
  while (moving() || gate_.OthersRun()) gate_.Wait(&mutex_);
}

Descriptor TcpConnection::TakeDeadSocket() {
  if (!closed_ || lent_) return {};
  if (states_[kSend].busy || states_[kReceive].busy) return {};
  return std::move(socket_);
}

// Linger 0 makes close(2) send a reset and drop what is queued. connect(2) to
// no address does the same to the connection itself, should a child of fork(2)
// keep the descriptor.
void TcpConnection::Abort(Descriptor socket) {
  WatchId watch = WatchId::kNone;
  {
    MutexLock lock(&mutex_);
    watch = watch_;
  }
  loop_->Unwatch(watch, socket.get());
  const linger none = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
  const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(socket.get(), &nobody, sizeof(nobody));
}

}  // namespace firnkv
