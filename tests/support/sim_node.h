// A cache node as a simulated process on a host of its own: the real Node over
// fakes, with what of it survives a crash (its node state).
//
// Threading. One thread only.
//
// Ownership. Owns the Node of its present life; the world outlives it.

#ifndef FIRNKV_TESTS_SUPPORT_SIM_NODE_H_
#define FIRNKV_TESTS_SUPPORT_SIM_NODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/slot_header.h"
#include "proto/base/token.h"
#include "server/node/node_state.h"
#include "server/tier/pool_types.h"
#include "tests/support/sim_world.h"

namespace firnkv {

class Node;

// The data directory's node state; a crash keeps what was saved.
class SimNodeState : public NodeState {
 public:
  explicit SimNodeState(NodeId node) { memory_.node = node; }
  const NodeMemory& memory() const override { return memory_; }
  absl::Status Save(const NodeMemory& memory) override;
  // Rule A9: a lower incarnation was written over a higher one, or another
  // random id over that of the same.
  bool fell_back() const { return fell_back_; }

 private:
  NodeMemory memory_;
  bool fell_back_ = false;
};

class SimNode {
 public:
  struct Options {
    // "node1"; its host has the same name.
    std::string name;
    ClusterSecret secret;
    std::string catalog_address;
    std::uint64_t pool_bytes = 0;
    std::uint64_t region_bytes = 0;
    // "1001=alice".
    std::vector<std::string> uid_map;
    // Of NodeOptions; zero is their default.
    absl::Duration digest_interval;
    std::size_t announcement_entries = 0;
    std::uint64_t reserved_bytes = 0;
  };

  SimNode(SimWorld* world, Options options);
  ~SimNode();

  absl::Status Start();
  void Crash();
  void Pause() {
    ++pauses_;
    machine_->process()->Pause();
  }
  // In the middle of something (SimProcess::PauseAfter).
  void PauseAfter(std::uint64_t tasks) {
    ++pauses_;
    machine_->process()->PauseAfter(tasks);
  }
  void Resume() {
    // Also for what began before a pause that had been planned before it.
    ++pauses_;
    machine_->process()->Resume();
  }

  // As `firnkv node drain`: the run ends by itself, within `deadline` if it is
  // not paused. False: it drains already.
  bool Drain(std::uint64_t move_bytes, absl::Duration deadline);
  // Of the present run.
  bool draining() const;

  // Count its runs and its pauses.
  int life() const { return life_; }
  std::uint64_t pauses() const { return pauses_; }

  bool running() const { return machine_ != nullptr; }
  bool paused() const { return running() && machine_->process()->paused(); }
  Node* node() const { return node_.get(); }
  SimMachine* machine() const { return machine_; }
  const std::string& host() const { return options_.name; }
  // What workers on its host connect to.
  std::string socket_path() const { return "/" + options_.name + "/node.sock"; }
  // While it runs: what its pool says of itself, and the copies it serves.
  PoolSnapshot Snapshot() const;
  std::vector<SlotHeader> Residents() const;
  // Its present run found that another one had taken over.
  bool superseded() const { return superseded_; }
  bool fell_back() const { return state_.fell_back(); }
  NodeId id() const { return state_.memory().node; }
  // What it remembers beyond its crashes.
  const NodeMemory& memory() const { return state_.memory(); }

 private:
  void EndDrained();

  SimWorld* const world_;
  const Options options_;
  SimNodeState state_;
  int life_ = 0;
  std::uint64_t pauses_ = 0;
  bool superseded_ = false;
  SimMachine* machine_ = nullptr;
  std::unique_ptr<Node> node_;
  std::vector<std::unique_ptr<SimControl::Serving>> servings_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SUPPORT_SIM_NODE_H_
