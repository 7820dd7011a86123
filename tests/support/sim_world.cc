#include "tests/support/sim_world.h"

namespace firnkv {

SimMachine::SimMachine(SimWorld* world, std::string_view name,
                       std::string_view host,
                       const PeerCredentials& credentials)
    : process_(world->executor()->NewProcess(name, host)),
      sockets_(&world->paths_.try_emplace(std::string(host), &world->packets_)
                    .first->second,
               process_, credentials),
      network_(world->fabric(), process_),
      control_(world->control(), process_) {
  seams_.clock = process_->clock();
  seams_.executor = process_;
  seams_.random = process_->random();
  seams_.network = &network_;
  seams_.sockets = &sockets_;
  seams_.memory = &memory_;
  seams_.control = &control_;
}

SimWorld::SimWorld(std::uint64_t seed)
    : executor_(seed),
      links_(&executor_),
      fabric_(&links_),
      control_(&links_) {}

SimMachine* SimWorld::NewMachine(std::string_view name, std::string_view host,
                                 const PeerCredentials& credentials) {
  machines_.push_back(std::unique_ptr<SimMachine>(
      new SimMachine(this, name, host, credentials)));
  if (drift_ > 0) {
    SimClock* const clock = machines_.back()->process()->sim_clock();
    clock->SetOffset(executor_.Between(absl::ZeroDuration(), absl::Hours(100)));
    clock->SetDrift(
        static_cast<std::int64_t>(executor_.random()->Below(2 * drift_)) -
        static_cast<std::int64_t>(drift_));
  }
  return machines_.back().get();
}

}  // namespace firnkv
