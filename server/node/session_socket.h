// One local session: who the peer is, which memory it may map, which staging it
// lends, and whether it is alive.
//
//     accepted -> hello -> (asking for the tenant) -> live -> ended
//
// The first message is a hello, within hello_timeout. Who the peer is: its
// token if it shows one, else its credentials by the uid map (rule S2,
// tenant_directory.h). A peer of the node's own uid, or with capabilities by
// which it could write what it may read, gets no mapping unless
// `trust_same_uid` (rule P10): it reads by the stream.
//
// Descriptors (rule S4). One is in flight at a time, on request, and taken
// within descriptor_timeout, else the session is closed. Taken is one that the
// peer has received, as the socket sees it, and has said so. The kernel counts
// it as one of the node's until it is received, however long the session is
// over: so does its tenant's and the node's bound (`descriptors`). In the same
// way a connection counts by its uid until nothing is left in it (`place`).
//
// The socket's end is the session's: its id is nobody's from then on, its
// leases, reservations and staging end at once, holds do not (rule S3).
//
// A peer may be hostile. Every message is bounded before it is read; one that
// breaks the protocol ends the session. A session costs under 1 KiB, and 16
// bytes for each region that it maps.
//
// Calls that come as frames between the messages go to session_calls.h, for
// peers that said in their hello that they speak them.
//
// Does not know: blocks, calls. Who may connect at all: session_listener.h.
//
// Threading. Thread-safe. One mutex, never held over the socket, the pool or a
// callback.
//
// Ownership. Owned by SessionListener; everything in Parts outlives it.

#ifndef FIRNKV_SERVER_NODE_SESSION_SOCKET_H_
#define FIRNKV_SERVER_NODE_SESSION_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/local_socket.h"
#include "proto/base/executor.h"
#include "proto/base/id.h"
#include "proto/base/mutex.h"
#include "proto/base/node_address.h"
#include "proto/base/random.h"
#include "server/base/capped_counts.h"
#include "server/base/log.h"
#include "server/node/node_credentials.h"
#include "server/node/reservations.h"
#include "server/node/session_calls.h"
#include "server/node/session_registry.h"
#include "server/node/staging.h"
#include "server/node/tenant_directory.h"
#include "server/tier/dram_pool.h"

namespace firnkv {

namespace v1 {
class AddStaging;
class ClientMessage;
class DescriptorTaken;
class DescriptorWanted;
class NodeMessage;
class SessionHello;
class SessionWelcome;
}  // namespace v1

// Descriptors in flight by tenant; connections by uid.
using DescriptorCounts = CappedCounts<TenantId>;
using ConnectionCounts = CappedCounts<std::uint32_t>;

class SessionSocket {
 public:
  struct Options {
    absl::Duration hello_timeout = absl::Seconds(5);
    absl::Duration descriptor_timeout = absl::Seconds(1);
    // This process's.
    std::uint32_t own_uid = 0;
    bool trust_same_uid = false;
    // What a session is told in its welcome. Outlives the sessions.
    const NodeAddress* address = nullptr;
    std::string catalog_address;
    // "unix:PATH" of this node's gRPC for its sessions.
    std::string control_address;
    std::uint64_t region_bytes = 0;
    std::uint64_t max_staging_bytes = 0;
    std::uint32_t max_stagings = 0;
  };
  struct Parts {
    Executor* executor = nullptr;
    Random* random = nullptr;
    Logger* log = nullptr;
    NodeCredentials* credentials = nullptr;
    TenantDirectory* tenants = nullptr;
    SessionRegistry* registry = nullptr;
    DescriptorCounts* descriptors = nullptr;
    DramPool* pool = nullptr;
    Reservations* reservations = nullptr;
    Staging* staging = nullptr;
    SessionCalls::Parts calls;
  };

  // `place` is none where the connection is beyond its caps, and End follows.
  // `on_ended` runs once, under no lock; the socket may be destroyed from a
  // task then, not from inside.
  SessionSocket(const Options& options, const Parts& parts,
                std::unique_ptr<LocalSocket> socket,
                ConnectionCounts::Receipt place,
                absl::AnyInvocable<void() &&> on_ended);
  // Ends the session.
  ~SessionSocket();

  void Start();

  // Says why, and ends the session. Idempotent; the first reason counts.
  void End(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  // The region's memory is wanted back: tells the peer if it maps it.
  void OnRegionRetiring(std::uint64_t region) ABSL_LOCKS_EXCLUDED(mutex_);

  // Zero until it is live.
  SessionId id() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State : std::uint8_t { kHello, kAsking, kLive, kEnded };

  // What a hello says besides who its peer is.
  struct Wishes {
    std::uint32_t protocol = 0;  // Agreed.
    bool knows_layout = false;
    std::uint32_t call_frames = 0;  // Agreed.
  };
  struct Wanted {
    std::uint64_t region = 0;
    std::uint32_t what = 0;
    friend bool operator==(const Wanted&, const Wanted&) = default;
  };
  // A descriptor on its way.
  struct Flight {
    Wanted wanted;
    bool received = false;
    bool said = false;
  };
  struct Ready {
    RegionFiles files;
    std::uint64_t flight = 0;
    DescriptorCounts::Receipt receipt;
  };

  // In the order in which they run. Descriptors are shared with the socket that
  // received them, and with whoever keeps them.
  void OnMessage(const std::string& message,
                 std::shared_ptr<SharedMemory> memory);
  // Shared: see above.
  absl::Status Decode(State state, const std::string& message,
                      std::shared_ptr<SharedMemory> memory);
  absl::Status OnFrame(std::string_view packet) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnHello(const v1::SessionHello& hello);
  void OnTenant(const Wishes& wishes,
                absl::StatusOr<TenantDirectory::Tenant> tenant)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Welcome(const LiveSession& session, const std::string& tenant_name,
               const Wishes& wishes);
  // Shared: see OnMessage.
  absl::Status OnLiveMessage(const v1::ClientMessage& message,
                             std::shared_ptr<SharedMemory> memory);
  absl::Status OnDescriptorWanted(const v1::DescriptorWanted& request)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SendDescriptor(const Wanted& wanted) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Ready> TakeDescriptor(const Wanted& wanted)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnDescriptorTaken(const v1::DescriptorTaken& taken)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDescriptorReceived(std::uint64_t flight) ABSL_LOCKS_EXCLUDED(mutex_);
  // The next one, once the one in flight is taken.
  std::optional<Wanted> Landed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnDescriptorTimeout(std::uint64_t flight) ABSL_LOCKS_EXCLUDED(mutex_);
  // Shared: see OnMessage.
  absl::Status OnAddStaging(const v1::AddStaging& request,
                            std::shared_ptr<SharedMemory> memory);
  void OnRegionUnmapped(std::uint64_t region) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRenewToken();

  // Ends the session where the peer does not read.
  void Send(const v1::NodeMessage& message);
  bool IsOwn() const;

  const Options options_;
  const Parts parts_;
  ConnectionCounts::Receipt place_;
  absl::AnyInvocable<void() &&> on_ended_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kHello;
  LiveSession session_ ABSL_GUARDED_BY(mutex_);
  TimerId hello_timer_ ABSL_GUARDED_BY(mutex_) = TimerId::kNone;
  // The descriptor in flight, what is wanted after it, and how many there were.
  std::optional<Flight> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::optional<Wanted> wanted_next_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t flights_ ABSL_GUARDED_BY(mutex_) = 0;
  // Set as it becomes live, where its peer speaks frames; never reset.
  std::unique_ptr<SessionCalls> calls_ ABSL_GUARDED_BY(mutex_);
  // Regions of which the peer got a descriptor and said nothing since.
  absl::flat_hash_set<std::uint64_t> mapped_ ABSL_GUARDED_BY(mutex_);

  TaskScope scope_;
  // Last: its callbacks use all of the above until its destructor returns.
  const std::unique_ptr<LocalSocket> socket_;
};

}  // namespace firnkv

#endif  // FIRNKV_SERVER_NODE_SESSION_SOCKET_H_
