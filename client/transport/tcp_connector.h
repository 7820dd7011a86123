// One attempt of TcpNetwork to connect: addresses in turn until one answers or
// the time is over.
//
// Threading. Everything after Make runs on the loop's thread, so there is no
// lock.

#ifndef FIRNKV_CLIENT_TRANSPORT_TCP_CONNECTOR_H_
#define FIRNKV_CLIENT_TRANSPORT_TCP_CONNECTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/descriptor.h"
#include "client/transport/event_loop.h"
#include "client/transport/socket_address.h"

namespace firnkv {

class TcpConnector final : public EventWatcher,
                           public std::enable_shared_from_this<TcpConnector> {
 public:
  // A connected, non-blocking socket.
  using Done = absl::AnyInvocable<void(absl::StatusOr<Descriptor>) &&>;

  // `loop` outlives the connector, which is shared by the loop's timer, its
  // watch, and whoever looks up the addresses. `address` is for messages.
  TcpConnector(EventLoop* loop, std::string address, Done done);

  // The time begins to run; what Begin has not brought about by its end is
  // DEADLINE_EXCEEDED.
  void Arm(absl::Duration timeout);

  // Tries the addresses, or ends with their status.
  void Begin(absl::StatusOr<std::vector<SocketAddress>> addresses);

  void Finish(absl::StatusOr<Descriptor> result);

  void OnEvents(std::uint32_t events) override;
  void OnLoopStopped() override;

 private:
  void TryNext();
  void Connected();
  // The address being tried failed.
  void Failed(int error);
  void DropSocket();

  EventLoop* const loop_;
  const std::string address_;
  Done done_;
  TimerId timer_ = TimerId::kNone;
  std::vector<SocketAddress> addresses_;
  std::size_t next_ = 0;
  absl::Status last_failure_;
  Descriptor socket_;
  WatchId watch_ = WatchId::kNone;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_TCP_CONNECTOR_H_
