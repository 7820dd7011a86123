// The local session's socket: whole messages between processes of one host,
// with descriptors of shared memory beside them, the peer's credentials, and
// its life: the socket ends when the peer's process does. A seam: a unix
// SOCK_SEQPACKET socket in production (unix_socket.h), a queue in the
// simulator.
//
// Threading and lifetime as in byte_stream.h.

#ifndef FIRNKV_CLIENT_TRANSPORT_LOCAL_SOCKET_H_
#define FIRNKV_CLIENT_TRANSPORT_LOCAL_SOCKET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/shared_memory.h"

namespace firnkv {

struct PeerCredentials {
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  // The peer is in this process's own user namespace and its uid is not the
  // overflow uid: only then may a uid map speak for it (rule S2).
  bool uid_trusted = false;
  // The peer holds capabilities by which it could write what it may read
  // (rule P10).
  bool privileged = false;
};

class LocalSocket {
 public:
  // Closes; no callback runs after return (unless called from inside one).
  virtual ~LocalSocket() = default;

  // Told once the peer has received something, or never will. Runs under no
  // lock, on any thread, maybe long after Close and after the socket's
  // destruction. Destroyed unrun where it was not sent at all, or the transport
  // itself ends before.
  using OnTaken = absl::AnyInvocable<void() &&>;

  // Callbacks of one socket never overlap. Set once, right after connect or
  // accept.
  struct Callbacks {
    // One whole message, at most kMaxSessionMessageBytes; `memory` is null
    // where no descriptor came with it. Unexpected descriptors (more than one,
    // not memory) have been closed and the message is not delivered: the socket
    // closes (rule S4).
    absl::AnyInvocable<void(std::string message,
                            std::shared_ptr<SharedMemory> memory)>
        on_message;
    // Once: the peer is gone, or Close was called.
    absl::AnyInvocable<void(absl::Status)> on_closed;
    // May be empty. Runs once the socket has ended and nothing that was sent
    // waits for the peer any more: what waits costs this process memory for as
    // long as the peer keeps its end open, closed here or not.
    OnTaken on_gone;
  };
  virtual void Start(Callbacks callbacks) = 0;

  // Queues one message; RESOURCE_EXHAUSTED where the peer does not read (the
  // caller closes it). `memory` may be null; the socket keeps it until it has
  // been sent.
  virtual absl::Status Send(std::string message,
                            std::shared_ptr<SharedMemory> memory) = 0;

  // As Send, of a message with memory. `on_taken`: until then the kernel counts
  // its descriptor as one in flight of this process's user, whatever the peer
  // says, and also when the socket has been closed (rule S4). One at a time:
  // RESOURCE_EXHAUSTED before the last one's has run.
  virtual absl::Status SendWatched(std::string message,
                                   std::shared_ptr<SharedMemory> memory,
                                   OnTaken on_taken) = 0;

  virtual void Close() = 0;

  // --- A caller that waits for an answer may receive it itself, which saves
  // the waking of another thread.

  enum class Taken : std::uint8_t {
    kNotMine,  // on_message gets it, as ever.
    kMine,
    kLast,  // And there is nothing else to wait for.
  };
  // Receives on the calling thread, and shows each message without memory to
  // `take`, under no lock, until it says kLast, StopReceiving is called or the
  // socket ends. No other callback runs here. False at once: another thread is
  // receiving, or this kind of socket lets nobody (the simulator's).
  //
  // `waits`, under no lock, is asked before each time that it would sleep, once
  // nobody else receives: whoever received before may have taken what this
  // thread waits for, and the StopReceiving that was meant for it.
  virtual bool ReceiveHere(
      absl::FunctionRef<Taken(std::string_view message)> take,
      absl::FunctionRef<bool()> waits) {
    (void)take;
    (void)waits;
    return false;
  }
  // Ends the ReceiveHere that runs; else the next one returns at once.
  virtual void StopReceiving() {}
  // A ReceiveHere comes on this thread in a moment, for the answer to what is
  // sent now: an answer that is quicker wakes no other thread. Until then, or
  // TakeBack, nobody receives.
  virtual void LendSoon() {}
  // It does not come after all.
  virtual void TakeBack() {}

  virtual const PeerCredentials& credentials() const = 0;
};

class LocalListener {
 public:
  virtual ~LocalListener() = default;
};

class LocalSockets {
 public:
  virtual ~LocalSockets() = default;

  virtual absl::StatusOr<std::unique_ptr<LocalSocket>> Connect(
      std::string_view path) = 0;

  // Mode 0666: who may do what is decided by credentials. Replaces a dead
  // socket file, refuses a live one.
  virtual absl::StatusOr<std::unique_ptr<LocalListener>> Listen(
      std::string_view path,
      absl::AnyInvocable<void(std::unique_ptr<LocalSocket>)> on_accept) = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_LOCAL_SOCKET_H_
