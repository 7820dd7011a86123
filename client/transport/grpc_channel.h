// Control calls over gRPC, as raw bytes: the control channel of production.
//
// Knows no service and no message: whatever the caller encoded goes out under
// the method's name, and answers come back as they are. Nothing is retried, no
// proxy of the environment is asked, and no connection is shared with other
// channels of the process.
//
// Threading. Any thread. A `done` runs on a thread of gRPC's, or inside
// StartCall where the call is refused there.
//
// Ownership. A channel may be destroyed from inside a `done` of its own, which
// is then the one that has not returned yet. What gRPC still has to do with it
// ends on a thread of the connector, which outlives its channels and is not
// destroyed from inside a `done`.

#ifndef FIRNKV_CLIENT_TRANSPORT_GRPC_CHANNEL_H_
#define FIRNKV_CLIENT_TRANSPORT_GRPC_CHANNEL_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "client/transport/control_channel.h"
#include "proto/base/limits.h"

namespace firnkv {

class GrpcConnector : public ControlConnector {
 public:
  struct Options {
    // Longer requests are refused here, longer answers on arrival, both as
    // RESOURCE_EXHAUSTED.
    std::size_t max_message_bytes = kMaxControlMessageBytes;
    // After a connection that failed; grows from the first to the second. A
    // connection being made is given up after the second.
    absl::Duration first_backoff = absl::Milliseconds(100);
    absl::Duration longest_backoff = absl::Seconds(1);
    // Silence after which a peer is asked whether it lives, and how long it has
    // to answer. The server permits pings from half of this on.
    absl::Duration keepalive = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(5);
  };

  GrpcConnector() : GrpcConnector(Options()) {}
  explicit GrpcConnector(const Options& options);
  ~GrpcConnector() override;

  std::unique_ptr<ControlChannel> Connect(std::string_view address) override;

 private:
  class Ender;

  const Options options_;
  const std::unique_ptr<Ender> ender_;
};

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_GRPC_CHANNEL_H_
