// Client::Connect: the seams of the real machine. In a library of its own,
// since it brings gRPC.

#include <memory>
#include <utility>

#include "client/client.h"
#include "client/client_core.h"
#include "client/transport/grpc_channel.h"
#include "client/transport/real_seams.h"
#include "proto/base/status.h"

namespace firnkv {

class Client::RealMachine : public Client::Machine {
 public:
  explicit RealMachine(std::unique_ptr<RealSeams> seams)
      : seams_(std::move(seams)) {}

 private:
  const std::unique_ptr<RealSeams> seams_;
};

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  if (absl::Status status = Validate(options); !status.ok()) return status;
  RealSeams::Options real;
  real.executor.threads = options.threads;
  ASSIGN_OR_RETURN(std::unique_ptr<RealSeams> seams,
                   RealSeams::Make(real, std::make_unique<GrpcConnector>()));
  ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                   Create(std::move(options), seams->seams()));
  client->machine_ = std::make_unique<RealMachine>(std::move(seams));
  return client;
}

}  // namespace firnkv
