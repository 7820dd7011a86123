#include "client/router.h"

#include <algorithm>
#include <utility>

namespace firnkv {

Router::Router(const Clock* clock, Random* random)
    : clock_(clock), random_(random) {}

void Router::SetOwnLabels(const Labels& labels) {
  MutexLock lock(&mutex_);
  own_ = labels;
}

void Router::Learn(absl::Span<const NodeAddress> nodes) {
  MutexLock lock(&mutex_);
  for (const NodeAddress& address : nodes) {
    const auto it = nodes_.find(address.node);
    if (it == nodes_.end()) {
      if (nodes_.size() >= kMaxNodes) {
        absl::erase_if(nodes_, [](const auto& entry) {
          return entry.second.in_flight == 0;
        });
      }
      nodes_.insert_or_assign(
          address.node,
          Node{.address = address, .in_flight = 0, .breaker = Breaker(kPace)});
      continue;
    }
    // Another run of it, or elsewhere: what went wrong before says nothing.
    if (it->second.address.epoch != address.epoch ||
        it->second.address.stream_address != address.stream_address) {
      it->second.breaker = Breaker(kPace);
    }
    it->second.address = address;
  }
}

std::vector<std::optional<NodeAddress>> Router::Pick(
    absl::Span<const Wanted> blocks) {
  std::vector<std::optional<NodeAddress>> picked(blocks.size());

  MutexLock lock(&mutex_);
  // Blocks given to a node by this call count as load too, or one call would
  // put all of a popular chain on one of its replicas.
  absl::flat_hash_map<NodeId, std::size_t> given;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Node* best = nullptr;
    std::pair<int, std::size_t> best_cost;
    for (const KnownLocation& location : blocks[i].locations) {
      const auto& excluded = blocks[i].excluded;
      if (std::find(excluded.begin(), excluded.end(), location.node) !=
          excluded.end()) {
        continue;
      }
      const auto it = nodes_.find(location.node);
      if (it == nodes_.end()) continue;
      const Node& node = it->second;
      if (node.address.epoch != location.epoch) continue;
      if (!node.breaker.closed()) continue;
      const std::pair<int, std::size_t> cost(
          Distance(node.address.labels), node.in_flight + given[location.node]);
      if (best == nullptr || cost < best_cost) {
        best = &node;
        best_cost = cost;
      }
    }
    if (best == nullptr) continue;
    ++given[best->address.node];
    picked[i] = best->address;
  }
  return picked;
}

std::vector<NodeAddress> Router::TakeProbes(absl::Span<const Wanted> blocks) {
  const BootTime now = clock_->Now();
  std::vector<NodeAddress> probes;
  MutexLock lock(&mutex_);
  for (const Wanted& wanted : blocks) {
    for (const KnownLocation& location : wanted.locations) {
      const auto it = nodes_.find(location.node);
      if (it == nodes_.end()) continue;
      Node& node = it->second;
      if (node.address.epoch != location.epoch) continue;
      if (node.breaker.TakeProbe(now)) probes.push_back(node.address);
    }
  }
  return probes;
}

bool Router::Begin(NodeId node, std::size_t blocks) {
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return false;
  if (!it->second.breaker.closed()) return false;
  it->second.in_flight += blocks;
  return true;
}

void Router::End(NodeId node, std::size_t blocks, Verdict verdict) {
  const BootTime now = clock_->Now();
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  it->second.in_flight -= std::min(it->second.in_flight, blocks);
  switch (verdict) {
    case Verdict::kServed:
      it->second.breaker.Succeeded();
      return;
    case Verdict::kFailed:
      it->second.breaker.Failed(now, random_);
      return;
    case Verdict::kAway:
      it->second.breaker.FailedForSure(now, random_);
      return;
    case Verdict::kUnknown:
      it->second.breaker.NoVerdict();
      return;
  }
}

int Router::Distance(const Labels& theirs) const {
  const auto same = [](const std::string& a, const std::string& b) {
    return !a.empty() && a == b;
  };
  if (same(own_.host, theirs.host)) return 0;
  if (same(own_.rack, theirs.rack)) return 1;
  if (same(own_.zone, theirs.zone)) return 2;
  return 3;
}

}  // namespace firnkv
