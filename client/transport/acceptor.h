// Accepts connections of one listening socket, TCP or unix, on an event loop.
//
// Where the process is out of descriptors, a connection is accepted by giving
// up a spare one, and closed at once: the peer hears of it now, and the loop
// does not spin on a socket that stays readable (rule S4).
//
// Threading. Start and Stop from any thread; the callback runs on the loop's.

#ifndef FIRNKV_CLIENT_TRANSPORT_ACCEPTOR_H_
#define FIRNKV_CLIENT_TRANSPORT_ACCEPTOR_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "client/transport/callback_gate.h"
#include "client/transport/descriptor.h"
#include "client/transport/event_loop.h"
#include "proto/base/counter.h"
#include "proto/base/mutex.h"

namespace firnkv {

class Acceptor final : public EventWatcher,
                       public std::enable_shared_from_this<Acceptor> {
 public:
  // Gets non-blocking, close-on-exec sockets.
  using OnSocket = absl::AnyInvocable<void(Descriptor)>;

  // `listening` is non-blocking and listens. Shared with the loop (event_loop.h
  // says why); Stop ends it. `loop` outlives it.
  static absl::StatusOr<std::shared_ptr<Acceptor>> Start(EventLoop* loop,
                                                         Descriptor listening,
                                                         OnSocket on_socket);

  // Closes the listening socket. The callback does not run once this has
  // returned, unless Stop is called from inside it. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Connections closed at once for lack of descriptors.
  std::uint64_t turned_away() const { return turned_away_.value(); }

  void OnEvents(std::uint32_t events) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLoopStopped() override { Stop(); }

 private:
  Acceptor(EventLoop* loop, Descriptor listening, OnSocket on_socket);

  // False: the acceptor has stopped.
  bool Deliver(Descriptor socket) ABSL_LOCKS_EXCLUDED(mutex_);
  void TurnOneAway(int listening);
  void PauseAWhile() ABSL_LOCKS_EXCLUDED(mutex_);
  void Resume() ABSL_LOCKS_EXCLUDED(mutex_);

  EventLoop* const loop_;
  // Touched on the loop's thread only, and by the one who stops, after the last
  // call.
  OnSocket on_socket_;
  Descriptor spare_;
  Counter turned_away_;

  Mutex mutex_;
  CallbackGate gate_ ABSL_GUARDED_BY(mutex_);
  Descriptor listening_ ABSL_GUARDED_BY(mutex_);
  WatchId watch_ ABSL_GUARDED_BY(mutex_) = WatchId::kNone;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_ACCEPTOR_H_
