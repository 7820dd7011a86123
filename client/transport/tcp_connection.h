// One TCP connection: the state machine under TcpNetwork's ByteStreams.
//
// Every transfer is tried at once where it was started; only what the kernel
// has no room or no bytes for waits for the loop. So a small frame costs one
// system call and no change of thread, and large ones are copied by the thread
// that has them at hand.
//
// A receive takes a little more than it was asked for where that is there
// already, for the receive that follows: a frame's lead, its body and what
// comes behind a payload are then one system call instead of three.
//
// Threading. Any thread. No lock is held over a system call or a `done`:
// whoever sets `busy` of a direction under the lock owns that direction's
// transfer until it clears it, and nobody else looks at it meanwhile.
//
// Ownership. Shared by the ByteStream, the loop (event_loop.h) and the calls in
// progress, since a `done` may destroy the ByteStream.

#ifndef FIRNKV_CLIENT_TRANSPORT_TCP_CONNECTION_H_
#define FIRNKV_CLIENT_TRANSPORT_TCP_CONNECTION_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/byte_stream.h"
#include "client/transport/callback_gate.h"
#include "client/transport/descriptor.h"
#include "client/transport/event_loop.h"
#include "proto/base/mutex.h"

namespace firnkv {

class TcpConnection final : public EventWatcher,
                            public std::enable_shared_from_this<TcpConnection> {
 public:
  // `socket` is connected and non-blocking; `loop` outlives the connection.
  static absl::StatusOr<std::shared_ptr<TcpConnection>> Make(EventLoop* loop,
                                                             Descriptor socket,
                                                             std::string peer);
  ~TcpConnection() override;

  // As ByteStream's.
  void StartSend(std::vector<absl::Span<const std::byte>> pieces,
                 ByteStreamDone done);
  void StartReceive(std::vector<absl::Span<std::byte>> pieces,
                    ByteStreamDone done);
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  const std::string& peer() const { return peer_; }

  // Close, and returns when every `done` has run, but those that this is called
  // from inside of. Those that nobody runs yet run in here.
  void CloseAndWait() ABSL_LOCKS_EXCLUDED(mutex_);

  // As ByteStream's; false: not lent. `fd` is open until GiveBack, whoever
  // closes the connection: it is then readable.
  bool Lend(int* fd) ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveBack() ABSL_LOCKS_EXCLUDED(mutex_);
  LentStream::Received ReceiveLent() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnEvents(std::uint32_t events) override;
  void OnLoopStopped() override { Close(); }

 private:
  enum Direction : std::size_t { kSend = 0, kReceive = 1 };
  static constexpr std::size_t kDirections = 2;
  // A read of 64 keys or the lead and body of a block's frame; little to copy
  // once more where it is the begin of a payload.
  static constexpr std::size_t kAheadBytes = 4096;

  // What is to be moved. Belongs to whoever has `busy`, or starts it.
  struct Transfer {
    std::vector<iovec> pieces;
    // The first piece that is not done; its base and length are of what is left
    // of it.
    std::size_t next = 0;
    bool begun = false;
    absl::Status failure;
    ByteStreamDone done;

    // So many bytes more are done; returns those beyond its end.
    std::size_t Took(std::size_t bytes);
  };
  struct State {
    // There is a transfer whose `done` nobody has taken.
    bool active = false;
    // A thread is moving bytes.
    bool busy = false;
    // The kernel reported readiness meanwhile: try again before waiting.
    bool again = false;
  };
  // What became of one turn.
  enum class Turn : std::uint8_t {
    kFinished,  // All moved, or failed.
    kBlocked,   // The kernel has no room, or no bytes.
    kYielded,   // It goes on, but others have their turn first.
  };

  TcpConnection(EventLoop* loop, Descriptor socket, std::string peer);

  void Start(Direction direction, std::vector<iovec> pieces,
             ByteStreamDone done) ABSL_LOCKS_EXCLUDED(mutex_);
  void Pump(Direction direction) ABSL_LOCKS_EXCLUDED(mutex_);
  Turn Move(int fd, Direction direction, Transfer* transfer);
  Turn Send(int fd, Transfer* transfer) const;
  Turn Receive(int fd, Transfer* transfer);
  // Into the transfer what came ahead of it.
  void TakeAhead(Transfer* transfer);
  void CloseOnly(bool* unfinished) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs what Close left waiting.
  void FinishClosed() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunDone(ByteStreamDone done, absl::Status status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The descriptor, if the connection is closed and nobody uses it any more.
  Descriptor TakeDeadSocket() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Abort(Descriptor socket) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Failure(Direction direction, int error) const;
  // Tells the loop what to look for, and to look anew.
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  EventLoop* const loop_;
  const std::string peer_;

  // Not guarded: see Threading above. The lock under which `busy` passes from
  // one thread to the next orders their uses.
  std::array<Transfer, kDirections> transfers_;
  // Received and not asked for yet: [ahead_begin_, ahead_end_). As the
  // receive's transfer.
  std::array<std::byte, kAheadBytes> ahead_;
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;

  Mutex mutex_;
  CallbackGate gate_ ABSL_GUARDED_BY(mutex_);
  std::array<State, kDirections> states_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The loop says when there is room to send: from the first on, and once a
  // connection was lent, from the first send that finds none.
  bool watches_sends_ ABSL_GUARDED_BY(mutex_) = true;
  // Somebody waits for the descriptor's arrivals; it stays open meanwhile.
  bool lent_ ABSL_GUARDED_BY(mutex_) = false;
  Descriptor socket_ ABSL_GUARDED_BY(mutex_);
  WatchId watch_ ABSL_GUARDED_BY(mutex_) = WatchId::kNone;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_TCP_CONNECTION_H_
