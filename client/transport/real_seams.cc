#include "client/transport/real_seams.h"

#include <utility>

#include "proto/base/status.h"

namespace firnkv {

absl::StatusOr<std::unique_ptr<RealSeams>> RealSeams::Make(
    const Options& options, std::unique_ptr<ControlConnector> control) {
  // The constructor is private. NOLINTNEXTLINE
  std::unique_ptr<RealSeams> real(new RealSeams(options));
  real->control_ = std::move(control);
  ASSIGN_OR_RETURN(real->network_,
                   TcpNetwork::Make(options.tcp, &real->clock_));
  ASSIGN_OR_RETURN(real->sockets_,
                   UnixSockets::Make(options.sockets, &real->clock_));
  ASSIGN_OR_RETURN(real->executor_,
                   ThreadExecutor::Make(options.executor, &real->clock_));
  real->seams_ = Seams{.clock = &real->clock_,
                       .executor = real->executor_.get(),
                       .random = &real->random_,
                       .network = real->network_.get(),
                       .sockets = real->sockets_.get(),
                       .memory = &real->memory_,
                       .control = real->control_.get()};
  return real;
}

RealSeams::~RealSeams() {
  if (executor_ != nullptr) executor_->Stop();
}

}  // namespace firnkv
