#include "tests/support/sim_node.h"

#include <utility>

#include "proto/base/text.h"
#include "server/node/node.h"
#include "server/node/node_options.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kNodeUid = 1000;

}  // namespace

absl::Status SimNodeState::Save(const NodeMemory& memory) {
  const Incarnation& before = memory_.seen;
  const Incarnation& now = memory.seen;
  fell_back_ = fell_back_ || now.incarnation < before.incarnation ||
               (now.incarnation == before.incarnation &&
                now.random_id != before.random_id);
  memory_ = memory;
  return absl::OkStatus();
}

SimNode::SimNode(SimWorld* world, Options options)
    : world_(world),
      options_(std::move(options)),
      state_(NodeId::Make(world->executor()->random())) {}

SimNode::~SimNode() { Crash(); }

absl::Status SimNode::Start() {
  machine_ =
      world_->NewMachine(StrCat(options_.name, ".", ++life_), options_.name,
                         PeerCredentials{.uid = kNodeUid, .uid_trusted = true});
  NodeOptions options;
  options.socket = socket_path();
  options.stream = StrCat(options_.name, ":7411");
  options.control = StrCat(options_.name, ":7410");
  options.plaintext_network = true;
  options.catalog = options_.catalog_address;
  options.labels.host = options_.name;
  options.uid_map = options_.uid_map;
  options.dram_bytes = options_.pool_bytes;
  options.region_bytes = options_.region_bytes;
  options.own_uid = kNodeUid;
  if (options_.digest_interval > absl::ZeroDuration()) {
    options.digests.interval = options_.digest_interval;
  }
  if (options_.announcement_entries > 0) {
    options.announcements.max_entries = options_.announcement_entries;
    options.announcements.batch = options_.announcement_entries;
  }
  if (options_.reserved_bytes > 0) {
    options.reservations.max_bytes_a_session = options_.reserved_bytes;
    options.reservations.max_bytes_a_tenant = options_.reserved_bytes;
  }
  superseded_ = false;
  Node::Parts parts;
  parts.state = &state_;
  parts.secret = options_.secret;
  parts.on_superseded = [this] {
    world_->executor()->Note("superseded");
    superseded_ = true;
  };
  parts.on_drain = [this] { EndDrained(); };
  node_ = std::make_unique<Node>(options, machine_->seams(), std::move(parts));
  const absl::Status started = node_->Start(options.control);
  if (!started.ok()) {
    world_->executor()->Note(StrCat("node: ", started.ToString()));
    Crash();
    return started;
  }
  for (const std::string& address :
       {StrCat("unix:", options.socket, ".control"), options.control}) {
    servings_.push_back(world_->control()->Serve(address, machine_->process(),
                                                 node_->services()));
  }
  return absl::OkStatus();
}

void SimNode::Crash() {
  if (!running()) return;
  // First the world loses it, then it is taken apart: nothing that it does on
  // the way out reaches anybody.
  machine_->process()->Kill();
  servings_.clear();
  node_.reset();
  machine_ = nullptr;
}

bool SimNode::Drain(std::uint64_t move_bytes, absl::Duration deadline) {
  return node_
      ->AskDrain(DrainPlan{.deadline = deadline, .move_bytes = move_bytes})
      .ok();
}

bool SimNode::draining() const {
  return running() && node_->drain().state != DrainState::kServing;
}

// As a process: once the node is quiet, it is gone.
void SimNode::EndDrained() {
  const SimProcess* const process = machine_->process();
  node_->StartDrain(
      process->clock()->Now() + node_->drain().time_left, [this, life = life_] {
        world_->executor()->Note(StrCat(options_.name, " has drained"));
        world_->executor()->root()->Post([this, life] {
          if (life == life_) Crash();
        });
      });
}

PoolSnapshot SimNode::Snapshot() const { return node_->pool(); }

std::vector<SlotHeader> SimNode::Residents() const {
  return node_->Residents();
}

}  // namespace firnkv
