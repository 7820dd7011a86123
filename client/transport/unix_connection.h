// One SOCK_SEQPACKET connection of the local session: the state machine under
// UnixSockets' LocalSockets.
//
// Threading. Messages are received on the loop's thread, or on one that lends
// itself meanwhile (ReceiveHere), by one at a time; every callback runs on the
// loop's, so they never overlap. Send and Close come from any thread. No lock
// is held over a callback, nor over a system call (see `users_`) but those of
// Watch and TakeRemains, which do not block.
//
// What the peer has received (OnTaken). A descriptor in a unix socket's queue
// counts as one in flight of the sender's user until the peer receives it, and
// the queue stays with the peer for as long as that keeps its end open.
// SIOCOUTQ says how much of what was sent is still there: each message with its
// own bytes and some of the kernel's, at least kLeastMessage in all. A peer
// receives in order; so while a watched message is there, so is all that was
// sent after it, and the queue has at least kLeastMessage more than that. What
// was sent after it counts with no more than it has: with its bytes, or with
// the growth of the queue in its send, which is less where the peer received
// meanwhile. So a message that is still there is never taken for one that has
// left; one that has left is seen to, at the latest once the queue is empty.
// The kernel wakes the loop (EPOLLOUT) for each message that the peer takes
// from a queue that is less than a quarter full.
//
// A connection that is waited for in that way keeps its descriptor, shut down
// in both directions, when it is closed.
//
// Ownership. Shared by the LocalSocket and the loop (event_loop.h), since a
// callback may destroy the LocalSocket.

#ifndef FIRNKV_CLIENT_TRANSPORT_UNIX_CONNECTION_H_
#define FIRNKV_CLIENT_TRANSPORT_UNIX_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/callback_gate.h"
#include "client/transport/descriptor.h"
#include "client/transport/event_loop.h"
#include "client/transport/foreign_descriptor.h"
#include "client/transport/local_socket.h"
#include "proto/base/bytes.h"
#include "proto/base/mutex.h"

namespace firnkv {

class UnixConnection final
    : public EventWatcher,
      public std::enable_shared_from_this<UnixConnection> {
 public:
  // Messages that wait for a peer that does not read, besides what the kernel
  // holds (about 200 KiB). A session asks and is answered, so few ever wait.
  static constexpr std::size_t kMaxQueuedMessages = 64;
  static constexpr std::size_t kMaxQueuedBytes = kMiB;
  // Of those, messages with a descriptor: one is in flight at a time (rule S4),
  // and one more may be asked for meanwhile.
  static constexpr std::size_t kMaxQueuedDescriptors = 2;

  // `socket` is connected and non-blocking; `loop` outlives the connection.
  static absl::StatusOr<std::shared_ptr<UnixConnection>> Make(
      EventLoop* loop, Descriptor socket, const PeerCredentials& credentials);

  // As LocalSocket's.
  void Start(LocalSocket::Callbacks callbacks) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Send(std::string message, std::shared_ptr<SharedMemory> memory)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Shared: see Message.
  absl::Status SendWatched(std::string message,
                           std::shared_ptr<SharedMemory> memory,
                           LocalSocket::OnTaken on_taken)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Close();
  bool ReceiveHere(
      absl::FunctionRef<LocalSocket::Taken(std::string_view message)> take,
      absl::FunctionRef<bool()> waits) ABSL_LOCKS_EXCLUDED(mutex_);
  void StopReceiving() ABSL_LOCKS_EXCLUDED(mutex_);
  void LendSoon() ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeBack() ABSL_LOCKS_EXCLUDED(mutex_);
  const PeerCredentials& credentials() const { return credentials_; }

  // Closes; no callback runs after return, but the one this is called from.
  void Abandon() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnEvents(std::uint32_t events) override;
  void OnLoopStopped() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Message {
    std::string bytes;
    // Shared with the sender: kept until it has been sent.
    std::shared_ptr<SharedMemory> memory;
    bool watched = false;
  };
  // The message of SendWatched that the peer has not received.
  struct Watched {
    LocalSocket::OnTaken on_taken;
    bool sent = false;
    // Of what was sent after it: see above.
    std::size_t after = 0;
  };
  // Of a closed connection that nobody uses any more; they end outside the
  // lock.
  struct Remains {
    Remains() = default;
    Remains(Remains&&) = default;
    Remains& operator=(Remains&&) = default;
    // Of what its peer has sent nothing may make us wait.
    ~Remains() { CloseForeign(std::move(socket)); }

    Descriptor socket;
    std::deque<Message> unsent;
    std::optional<Watched> watched;
  };
  // What one recvmsg brought.
  struct Received {
    enum class Kind : std::uint8_t { kMessage, kNothingNow, kEnd } kind;
    Message message;
    absl::Status why;  // Of kEnd.
  };

  UnixConnection(EventLoop* loop, Descriptor socket,
                 const PeerCredentials& credentials);

  // Of every message of a peer's queue, whatever it says: the kernel's own part
  // is more than 500 bytes.
  static constexpr std::size_t kLeastMessage = 256;

  absl::Status Enqueue(Message message, LocalSocket::OnTaken on_taken)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells of what the peer has received since.
  void TellTaken() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether somebody is still to be told.
  bool IsWatching() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (watched_ && watched_->sent) || (closed_ && on_gone_ != nullptr);
  }
  // One message has been sent, which made the queue grow by `grown`.
  Message NoteSent(std::size_t grown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Receive() ABSL_LOCKS_EXCLUDED(mutex_);
  Received ReceiveOne(int fd);
  // The thread that says so receives; EndReceiving gives that up. False:
  // another one does, or there is nothing to receive from.
  bool BeginReceiving(int* fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndReceiving() ABSL_LOCKS_EXCLUDED(mutex_);
  // One message that has come, or the end. False: nothing comes any more.
  bool TakeOne(
      Received received,
      absl::FunctionRef<LocalSocket::Taken(std::string_view message)> take,
      bool* last) ABSL_LOCKS_EXCLUDED(mutex_);
  // Until there is something to receive. False: StopReceiving was called.
  bool AwaitMessage(int fd) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the loop is woken for from now on.
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Deliver(Message message) ABSL_LOCKS_EXCLUDED(mutex_);
  // On the loop, before it receives again: what a lending thread received and
  // was not for it comes before what it has not received. A task alone would
  // not do: the loop looks at events before it runs what woke it.
  bool DeliverHandedBack() ABSL_LOCKS_EXCLUDED(mutex_);
  void SendQueued() ABSL_LOCKS_EXCLUDED(mutex_);
  void CloseWith(absl::Status why) ABSL_LOCKS_EXCLUDED(mutex_);
  void TellClosed() ABSL_LOCKS_EXCLUDED(mutex_);
  // Between: the descriptor stays open. False: it is closed already.
  bool BeginUse(int* fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndUse() ABSL_LOCKS_EXCLUDED(mutex_);
  Remains TakeRemains() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveCallback() ABSL_LOCKS_EXCLUDED(mutex_);

  EventLoop* const loop_;
  const PeerCredentials credentials_;
  // Touched by the thread that receives only.
  std::vector<char> buffer_;

  Mutex mutex_;
  CallbackGate gate_ ABSL_GUARDED_BY(mutex_);
  // Set by Start, called on the loop's thread without the lock; taken away by
  // Abandon when none runs, else by the thread that runs one, when it ends.
  LocalSocket::Callbacks callbacks_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status closed_why_ ABSL_GUARDED_BY(mutex_);
  // Threads in a system call on the socket: the last of them closes it.
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
  Descriptor socket_ ABSL_GUARDED_BY(mutex_);
  WatchId watch_ ABSL_GUARDED_BY(mutex_) = WatchId::kNone;

  // Some thread receives; it is not the loop's.
  bool receiving_ ABSL_GUARDED_BY(mutex_) = false;
  bool lent_ ABSL_GUARDED_BY(mutex_) = false;
  // Received by a lending thread and not for it; oldest first.
  std::deque<Message> handed_back_ ABSL_GUARDED_BY(mutex_);
  // Of StopReceiving; the eventfd, made by the first ReceiveHere, wakes a
  // thread that waits there.
  bool stop_receiving_ ABSL_GUARDED_BY(mutex_) = false;
  Descriptor waker_ ABSL_GUARDED_BY(mutex_);

  // One thread at a time sends, so that messages stay in order.
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  // The kernel took no more; the loop waits for room.
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;
  bool send_again_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t queued_descriptors_ ABSL_GUARDED_BY(mutex_) = 0;

  std::optional<Watched> watched_ ABSL_GUARDED_BY(mutex_);
  LocalSocket::OnTaken on_gone_ ABSL_GUARDED_BY(mutex_);
  // Closed, and kept to see what the peer receives.
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_UNIX_CONNECTION_H_
