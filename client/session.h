// The local session: this process's connection to its node, for as long as the
// Client lives. One socket carries what control calls cannot: who we are,
// descriptors of mapped regions in, descriptors of staging out, and life; its
// end is the session's end, and another one is begun in the background.
//
// Calls that go as frames go over the same socket (frame_calls.h): this is
// their line.
//
// What a session gives: what was said at its begin (SessionWelcome), a token,
// mapped regions, accepted staging. Everything of an ended session is void:
// reads under way are told by generations, writes by the session that their
// calls name.
//
// Nothing is sent to a server whose uid is neither ours, root's nor configured
// (rule S6).
//
// Threading. All methods may be called from any thread. Callbacks run under no
// lock, also inside the call.
//
// Ownership. Belongs to the Client. Mapped regions are shared with copies.

#ifndef FIRNKV_CLIENT_SESSION_H_
#define FIRNKV_CLIENT_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/counters.h"
#include "client/frame_calls.h"
#include "client/mapped_region.h"
#include "client/node_client.h"
#include "client/replaceable.h"
#include "client/retry.h"
#include "client/session_messages.h"
#include "client/transport/local_socket.h"
#include "client/transport/seams.h"
#include "client/transport/shared_memory.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/session_frame.h"
#include "proto/base/slot_header.h"

namespace firnkv {

class Session : public CallLine {
 public:
  struct Options {
    std::string socket_path;
    std::string token;
    std::string client_name;
    // Of servers that may be spoken to, besides root.
    std::vector<std::uint32_t> server_uids;
    bool want_mapping = true;
    // Of versions up to it (proto/base/session_frame.h); 0: none.
    std::uint32_t call_frames = kCallFrames;
    // From the socket's connection to the node's welcome.
    absl::Duration hello_timeout = absl::Seconds(2);
  };
  // Shared by whoever looks at it while the session ends.
  using Welcome = std::shared_ptr<const SessionWelcome>;
  struct Parts {
    const Seams* seams;
    ClientCounters* counters;
    NodeClient* node;
    // A session has begun; before anything of it is used.
    std::function<void(const Welcome&)> on_begin;
    std::function<void(std::string_view)> log;
  };

  // All parts outlive the session.
  Session(const Parts& parts, Options options);
  ~Session() override;  // Close().

  // Begins to connect.
  void Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the session; nothing of it runs after return. Idempotent.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  // `done` runs once there is a session, or was refused one for a reason that
  // will not go away by itself, or at Close.
  void WhenLive(absl::AnyInvocable<void(const absl::Status&) &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Null while there is no session.
  Welcome welcome() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether `session` is the one that lives.
  bool IsLive(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Why there is none: of the last attempt to connect.
  absl::Status refusal() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The newest token of the session; the configured one before any.
  std::string token() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends this session (if it is still that one) and begins another.
  void End(SessionId session, std::string_view why) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Calls as frames, for NodeClient.
  absl::Status SendPacket(std::uint64_t serial, std::string packet) override;
  bool ReceiveHere(std::uint64_t serial,
                   absl::FunctionRef<LocalSocket::Taken(std::string_view)> take,
                   absl::FunctionRef<bool()> waits) override;
  void StopReceiving(std::uint64_t serial) override;
  void LendSoon(std::uint64_t serial) override;
  void TakeBack(std::uint64_t serial) override;

  // --- Regions. Mapped at the first wish, kept until retired or session end.
  using RegionDone = absl::AnyInvocable<
      void(absl::StatusOr<std::shared_ptr<const MappedRegion>>) &&>;
  void StartRegion(SessionId session, std::uint64_t region, RegionDone done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Staging (rule S1). Handed to this session and to every later one.
  // Shared with messages on their way.
  std::uint64_t AddStaging(std::shared_ptr<SharedMemory> memory)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // OK once the node has taken it; UNAVAILABLE where the session ends first.
  void WhenAccepted(std::uint64_t staging,
                    absl::AnyInvocable<void(const absl::Status&) &&> done)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // One outstanding a session (rule S4).
  static constexpr absl::Duration kDescriptorTimeout = absl::Seconds(5);
  static constexpr Backoff::Options kReconnect = {
      .first = absl::Milliseconds(20), .most = absl::Seconds(2)};

  enum class State : std::uint8_t { kAway, kGreeting, kLive, kClosed };
  // Callbacks to run once the lock is free.
  using Afterwards = std::vector<absl::AnyInvocable<void() &&>>;

  struct Socket {
    std::uint64_t serial = 0;
    std::unique_ptr<LocalSocket> socket;
  };
  struct Region {
    // The region's own descriptor, mapped, while its table is awaited.
    std::unique_ptr<MemoryMapping> payload;
    // Shared: see MappedRegion.
    std::shared_ptr<const MappedRegion> mapped;
    std::vector<RegionDone> waiting;
    bool retired = false;
  };
  struct Staging {
    std::shared_ptr<SharedMemory> memory;  // Shared: see AddStaging.
    enum class Answer : std::uint8_t { kNone, kAccepted, kRefused };
    Answer answer = Answer::kNone;
    std::string reason;
    std::vector<absl::AnyInvocable<void(const absl::Status&) &&>> waiting;
  };
  struct Wanted {
    std::uint64_t region;
    DescriptorOf what;
  };

  // --- Connecting.
  void Connect() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::unique_ptr<LocalSocket>> OpenSocket();
  void ConnectLater() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnConnectDue(std::uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  void Greet(std::uint64_t serial) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `then(number)` after `delay`, unless the session is closed.
  void SetTimer(absl::Duration delay, std::uint64_t number,
                void (Session::*then)(std::uint64_t));
  void OnHelloTimeout(std::uint64_t serial) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- From the socket.
  void OnMessage(std::uint64_t serial, const std::string& message,
                 std::shared_ptr<SharedMemory> memory)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFrame(std::uint64_t serial, std::string_view packet)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWelcome(std::uint64_t serial, SessionWelcome welcome)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What the node says in a session that lives. `mapping` of a descriptor.
  absl::Status OnFromNode(
      const FromNode& message,
      absl::StatusOr<std::unique_ptr<MemoryMapping>> mapping,
      Afterwards* afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnDescriptor(
      const DescriptorIs& message,
      absl::StatusOr<std::unique_ptr<MemoryMapping>> mapping,
      Afterwards* afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTable(std::uint64_t region, std::unique_ptr<MemoryMapping> table,
               Afterwards* afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailRegion(std::uint64_t region, const absl::Status& why,
                  Afterwards* afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnRetired(std::uint64_t region, Afterwards* afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnStagingAnswer(std::uint64_t staging, Staging::Answer answer,
                       std::string reason, Afterwards* afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTokenDue(std::uint64_t serial) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Descriptors.
  void AskNextDescriptor() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnDescriptorTimeout(std::uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnUnmapped(std::uint64_t serial, std::uint64_t region)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Ends.
  // The session with this serial is over; another is begun unless closing.
  void Lose(std::uint64_t serial, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void VoidEverything(const absl::Status& why, Afterwards* afterwards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Queues a message of this session; Flush sends.
  void Queue(std::string message, std::shared_ptr<SharedMemory> memory)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;
  const Options options_;
  TaskScope scope_;
  Replaceable<Socket> socket_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kAway;
  // Of the current or last socket.
  std::uint64_t serial_ ABSL_GUARDED_BY(mutex_) = 0;
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
  // Why the last attempt failed.
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  Welcome welcome_ ABSL_GUARDED_BY(mutex_);
  // Kept over sessions: the cluster may not change beneath a Client.
  ClusterId cluster_ ABSL_GUARDED_BY(mutex_);
  std::string token_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::AnyInvocable<void(const absl::Status&) &&>> waiting_
      ABSL_GUARDED_BY(mutex_);

  std::map<std::uint64_t, Region> regions_ ABSL_GUARDED_BY(mutex_);
  std::deque<Wanted> wanted_ ABSL_GUARDED_BY(mutex_);
  std::optional<Wanted> asked_ ABSL_GUARDED_BY(mutex_);
  // Numbers the asked ones, for their timeouts.
  std::uint64_t asked_number_ ABSL_GUARDED_BY(mutex_) = 0;

  std::uint64_t next_staging_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::uint64_t, Staging> stagings_ ABSL_GUARDED_BY(mutex_);

  struct Outgoing {
    std::uint64_t serial;
    std::string message;
    std::shared_ptr<SharedMemory> memory;  // Shared: see AddStaging.
  };
  std::deque<Outgoing> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool flushing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_SESSION_H_
