// Calls of the local session as frames over its socket
// (proto/base/session_frame.h): which are in flight, and whose answer comes.
//
// A call is answered, fails with its session, or is given up at its time;
// `done` runs exactly once. Where a call cannot go as a frame, Start says so
// and the caller goes another way: no session that takes frames, too many in
// flight, too long for a packet.
//
// A thread that waits for its own calls (WaitingThread below) receives their
// answers itself and runs their `done`: no other thread wakes. All others'
// run where the socket's messages are received. So it is with what it asked
// other nodes for (lent_streams.h), unless calls of its own are in flight.
//
// Does not know: what bodies mean; the socket (CallLine).
//
// Threading. All methods may be called from any thread. One mutex, never held
// over a send or a `done`; a waiting thread's mutex is taken under it.
//
// Ownership. Belongs to NodeClient. The line outlives its Open.

#ifndef FIRNKV_CLIENT_FRAME_CALLS_H_
#define FIRNKV_CLIENT_FRAME_CALLS_H_

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/lent_streams.h"
#include "client/transport/local_socket.h"
#include "proto/base/clock.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/session_frame.h"

namespace firnkv {

class WaitingThread;

// The session's socket, as far as calls need it. `serial` names one of several
// that come after one another: what is said to an ended one goes nowhere.
class CallLine {
 public:
  virtual ~CallLine() = default;
  virtual absl::Status SendPacket(std::uint64_t serial, std::string packet) = 0;
  // As LocalSocket's.
  virtual bool ReceiveHere(
      std::uint64_t serial,
      absl::FunctionRef<LocalSocket::Taken(std::string_view message)> take,
      absl::FunctionRef<bool()> waits) = 0;
  virtual void StopReceiving(std::uint64_t serial) = 0;
  virtual void LendSoon(std::uint64_t serial) { (void)serial; }
  virtual void TakeBack(std::uint64_t serial) { (void)serial; }
};

class FrameCalls {
 public:
  // Which way an answer came says what its bytes are.
  enum class Way : std::uint8_t { kFrame, kGrpc };
  // The answer's body, by kFrame; a status where there is none: the node's,
  // UNAVAILABLE where the session ended, DEADLINE_EXCEEDED. Whoever calls by
  // gRPC instead gives it that answer.
  using Done =
      absl::AnyInvocable<void(absl::StatusOr<std::string> bytes, Way way) &&>;

  explicit FrameCalls(Executor* executor) : executor_(executor) {}
  ~FrameCalls();  // Close().

  // Calls of `session` may go over `line` from now on.
  void Open(SessionId session, CallLine* line, std::uint64_t serial)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // No more of them; those in flight end with `why`.
  void End(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // End, for good. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether a call may go as a frame just now.
  bool MayStart(SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);
  // False: not as a frame; then `done` is untouched and nothing was sent.
  bool Start(SessionId session, FrameType type, const std::string& body,
             BootTime until, Done* done) ABSL_LOCKS_EXCLUDED(mutex_);
  // A frame that is not answered. False: not sent.
  bool Send(SessionId session, FrameType type, const std::string& body)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // A frame that came over the line. A status: no node sends that.
  absl::Status OnFrame(std::string_view packet) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class WaitingThread;

  struct Call {
    FrameType answer = FrameType::kCallFailed;
    BootTime until;
    Done done;
    // Who waits for it; null: nobody.
    WaitingThread* waiter = nullptr;
  };
  struct Line {
    CallLine* line = nullptr;
    std::uint64_t serial = 0;
  };

  bool IsFree(SessionId session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return line_.line != nullptr && session == session_ &&
           calls_.size() < kMaxCallsInFlight;
  }
  // A packet that came. nullopt: it is for nobody that waits, and OnFrame's
  // business. Else whether it was for `mine`.
  std::optional<bool> GiveToWaiter(std::string_view packet, WaitingThread* mine)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Arm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTimer() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Of WaitingThread.
  void Enter(WaitingThread* waiter) ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave(WaitingThread* waiter) ABSL_LOCKS_EXCLUDED(mutex_);
  // Receives on this thread; false: it may not.
  bool ReceiveHere(WaitingThread* waiter) ABSL_LOCKS_EXCLUDED(mutex_);
  void StopReceiving() ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeBack() ABSL_LOCKS_EXCLUDED(mutex_);

  Executor* const executor_;
  TaskScope scope_;

  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  SessionId session_ ABSL_GUARDED_BY(mutex_);
  Line line_ ABSL_GUARDED_BY(mutex_);
  // Of all sessions, so that a late answer is never another call's.
  std::uint64_t last_request_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Call> calls_ ABSL_GUARDED_BY(mutex_);
  // When the next call is given up, as far as a timer is set.
  BootTime armed_for_ ABSL_GUARDED_BY(mutex_) = BootTime::Infinite();
  TimerId timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  std::vector<std::pair<pthread_t, WaitingThread*>> waiters_
      ABSL_GUARDED_BY(mutex_);
};

// A thread in a blocking call of the Client, from before the call is started to
// its end. Calls that this thread starts meanwhile are its own.
//
// Threading. Constructed, waited for and destroyed by one thread; Finish from
// any.
class WaitingThread {
 public:
  // `calls` outlive it; null: it has none, and only waits.
  explicit WaitingThread(FrameCalls* calls);
  ~WaitingThread();
  WaitingThread(const WaitingThread&) = delete;
  WaitingThread& operator=(const WaitingThread&) = delete;

  // Whether the calling thread is in a blocking call: it has nothing else to do
  // than what it waits for, so that work of that call is done at once here
  // rather than by a thread that has to be woken.
  static bool IsHere();

  // What is waited for has come. Once; the last thing that its thread does with
  // it.
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns after Finish.
  void Wait() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class FrameCalls;

  struct Answer {
    FrameCalls::Done done;
    absl::StatusOr<std::string> body;
  };

  // By FrameCalls, under its mutex.
  void Began() ABSL_LOCKS_EXCLUDED(mutex_);
  // True: it receives, and has to be told to stop.
  bool Give(FrameCalls::Done done, absl::StatusOr<std::string> body)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A call of its own ended elsewhere. As Give.
  bool Ended() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the socket stands lent to it, while it will not receive.
  bool TakesBack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !receiving_ && std::exchange(lent_, false);
  }
  // Whether something is still to come that it may receive.
  bool Waits() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return finished_ || !answers_.empty();
  }
  // Something has changed; under the lock, so that it is not destroyed.
  void Rouse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Receives once from what it was lent. False: it waits for something else.
  bool ReceiveLent() ABSL_LOCKS_EXCLUDED(mutex_);

  FrameCalls* const calls_;
  const pthread_t thread_ = pthread_self();
  // This thread's only, but for Wake.
  LentStreams streams_;
  Mutex mutex_;
  CondVar changed_;
  // In ReceiveLent, or about to be.
  bool receiving_lent_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // It receives, or is about to.
  bool receiving_ ABSL_GUARDED_BY(mutex_) = false;
  // A call of its own was sent since it received last.
  bool lent_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_FRAME_CALLS_H_
