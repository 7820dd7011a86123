// Everything that simulated processes share, and what one process gets of it:
// the whole of Seams (client/transport/seams.h) over fakes.
//
// Threading. One thread only.
//
// Ownership. The world owns everything and outlives all code that runs in it.
// What a process was given stays until the world ends, also after its death:
// its objects may be destroyed late.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_WORLD_H_
#define FIRNKV_TESTS_SUPPORT_SIM_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/transport/seams.h"
#include "tests/support/sim_control.h"
#include "tests/support/sim_executor.h"
#include "tests/support/sim_links.h"
#include "tests/support/sim_memory.h"
#include "tests/support/sim_network.h"
#include "tests/support/sim_sockets.h"

namespace firnkv {

class SimWorld;

// One process: its life, its clock, and its view of the world.
class SimMachine {
 public:
  // Every pointer in it outlives what is given it.
  const Seams& seams() const { return seams_; }
  SimProcess* process() const { return process_; }
  SimMemory* memory() { return &memory_; }
  SimSockets* sockets() { return &sockets_; }

 private:
  friend class SimWorld;
  SimMachine(SimWorld* world, std::string_view name, std::string_view host,
             const PeerCredentials& credentials);

  SimProcess* const process_;
  SimSockets sockets_;
  SimNetwork network_;
  SimMemory memory_;
  SimConnector control_;
  Seams seams_;
};

class SimWorld {
 public:
  explicit SimWorld(std::uint64_t seed);

  // A new process on `host`; hosts come into being by being named.
  SimMachine* NewMachine(std::string_view name, std::string_view host,
                         const PeerCredentials& credentials = {
                             .uid = 1000, .uid_trusted = true});

  // Processes made from now on have clocks that run apart from true time by up
  // to this much, and started at another moment.
  void set_drift(std::uint64_t parts_per_million) {
    drift_ = parts_per_million;
  }

  SimExecutor* executor() { return &executor_; }
  SimLinks* links() { return &links_; }
  SimFabric* fabric() { return &fabric_; }
  SimControl* control() { return &control_; }
  SimPackets* packets() { return &packets_; }

 private:
  friend class SimMachine;
  SimExecutor executor_;
  SimLinks links_;
  SimFabric fabric_;
  SimControl control_;
  SimPackets packets_;
  // By host: its socket files.
  std::map<std::string, SimSocketPaths, std::less<>> paths_;
  std::vector<std::unique_ptr<SimMachine>> machines_;
  std::uint64_t drift_ = 0;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_WORLD_H_
