// One SOCK_SEQPACKET connection of the local session: the state machine under
// UnixSockets' LocalSockets.
//
// Threading. Messages are received on the loop's thread, or on one that lends
// itself meanwhile (ReceiveHere), by one at a time; every callback runs on the
// loop's, so they never overlap. Send and Close come from any thread. No lock
// is held over a callback, nor over a system call (see `users_`) but Watch's.
//
// Ownership. Shared by the LocalSocket and the loop (event_loop.h), since a
// callback may destroy the LocalSocket.

#ifndef FIRNKV_CLIENT_TRANSPORT_UNIX_CONNECTION_H_
#define FIRNKV_CLIENT_TRANSPORT_UNIX_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/callback_gate.h"
#include "client/transport/descriptor.h"
#include "client/transport/event_loop.h"
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
  void Close();
  bool ReceiveHere(
      absl::FunctionRef<LocalSocket::Taken(std::string_view message)> take)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void StopReceiving() ABSL_LOCKS_EXCLUDED(mutex_);
  const PeerCredentials& credentials() const { return credentials_; }

  // Closes; no callback runs after return, but the one this is called from.
  void Abandon() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnEvents(std::uint32_t events) override;
  void OnLoopStopped() override { Close(); }

 private:
  struct Message {
    std::string bytes;
    // Shared with the sender: kept until it has been sent.
    std::shared_ptr<SharedMemory> memory;
  };
  // Of a closed connection that nobody uses any more; they end outside the
  // lock.
  struct Remains {
    Descriptor socket;
    std::deque<Message> unsent;
  };
  // What one recvmsg brought.
  struct Received {
    enum class Kind : std::uint8_t { kMessage, kNothingNow, kEnd } kind;
    Message message;
    absl::Status why;  // Of kEnd.
  };

  UnixConnection(EventLoop* loop, Descriptor socket,
                 const PeerCredentials& credentials);

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
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_UNIX_CONNECTION_H_
