// The seams of production, made together and ended in the right order. One a
// process, or one a Client.
//
// It knows no gRPC: the control connector is made by whoever has it
// (grpc_channel.h) and handed in.
//
// Threading. seams() from any thread; what it points to is thread-safe. Made
// and destroyed by its owner, not from inside a task or callback of its own.

#ifndef FIRNKV_CLIENT_TRANSPORT_REAL_SEAMS_H_
#define FIRNKV_CLIENT_TRANSPORT_REAL_SEAMS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/transport/memfd.h"
#include "client/transport/seams.h"
#include "client/transport/tcp_network.h"
#include "client/transport/thread_executor.h"
#include "client/transport/unix_socket.h"
#include "proto/base/clock.h"
#include "proto/base/random.h"

namespace firnkv {

class RealSeams {
 public:
  struct Options {
    ThreadExecutor::Options executor;
    TcpNetwork::Options tcp;
    UnixSockets::Options sockets;
    MemfdMaker::Options memory;
  };

  // `control` may be null for those that make no control calls.
  static absl::StatusOr<std::unique_ptr<RealSeams>> Make(
      const Options& options, std::unique_ptr<ControlConnector> control);

  // Stops the executor first, so that no task finds a seam gone. Streams,
  // sockets, listeners and channels have ended by then. No thread is left.
  ~RealSeams();

  const Seams& seams() const { return seams_; }

 private:
  explicit RealSeams(const Options& options) : memory_(options.memory) {}

  SystemClock clock_;
  SystemRandom random_;
  MemfdMaker memory_;
  std::unique_ptr<TcpNetwork> network_;
  std::unique_ptr<UnixSockets> sockets_;
  std::unique_ptr<ControlConnector> control_;
  std::unique_ptr<ThreadExecutor> executor_;
  Seams seams_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_REAL_SEAMS_H_
