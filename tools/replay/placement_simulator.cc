#include "tools/replay/placement_simulator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "proto/base/id.h"
#include "tools/replay/cache_simulator.h"

namespace firnkv {
namespace {

// The finaliser of splitmix64: a trace's ids are small numbers.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double MostOverMean(const std::vector<std::uint64_t>& values) {
  const std::uint64_t sum =
      std::accumulate(values.begin(), values.end(), std::uint64_t{0});
  if (sum == 0) return 0;
  const std::uint64_t most = *std::max_element(values.begin(), values.end());
  return static_cast<double>(most) * static_cast<double>(values.size()) /
         static_cast<double>(sum);
}

}  // namespace

PlacementSimulator::PlacementSimulator(const Options& options)
    : options_(options), placement_(options.placement), nodes_(options.nodes) {
  Report();
}

void PlacementSimulator::NumberBlocks(const TraceRequest& request) {
  ++requests_;
  run_.clear();
  for (const std::uint64_t id : request.ids) {
    const auto next = static_cast<BlockNumber>(blocks_.size());
    const auto [place, added] = numbers_.emplace(id, next);
    if (added) blocks_.emplace_back();
    run_.push_back(place->second);
    blocks_[static_cast<std::size_t>(place->second)].request = requests_;
  }
}

void PlacementSimulator::Report() {
  std::vector<Placement::Node> report;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    report.push_back({.id = Mix(i),
                      .capacity_bytes = options_.capacity_blocks,
                      .used_bytes = nodes_[i].resident});
  }
  placement_.SetNodes(report);
}

bool PlacementSimulator::MakeRoom(std::size_t node) {
  Node& full = nodes_[node];
  if (full.resident < options_.capacity_blocks) return true;
  victims_.clear();
  full.policy.TakeVictims(
      EvictionGroup{0}, 1,
      [this](BlockNumber block) {
        return blocks_[static_cast<std::size_t>(block)].request == requests_;
      },
      &victims_);
  for (const BlockNumber victim : victims_) {
    blocks_[static_cast<std::size_t>(victim)].node.reset();
    --full.resident;
  }
  return full.resident < options_.capacity_blocks;
}

void PlacementSimulator::StoreAt(std::size_t node, std::size_t position,
                                 BootTime at) {
  if (!MakeRoom(node)) return;
  Node& to = nodes_[node];
  to.policy.OnStored(
      {.at = at,
       .block = run_[position],
       .parent = position == 0 ? BlockNumber::kNone : run_[position - 1],
       .position = static_cast<std::uint32_t>(position),
       .bytes = 1});
  ++to.resident;
  ++to.stored;
  blocks_[static_cast<std::size_t>(run_[position])].node = node;
}

// Each node hears of its part of the run.
void PlacementSimulator::Touch(std::size_t blocks, BootTime at) {
  std::vector<std::vector<BlockNumber>> parts(nodes_.size());
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto& node = blocks_[static_cast<std::size_t>(run_[i])].node;
    if (node) parts[*node].push_back(run_[i]);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].empty()) nodes_[i].policy.OnTouched(at, parts[i]);
  }
}

std::size_t PlacementSimulator::Play(const TraceRequest& request) {
  NumberBlocks(request);
  if (requests_ % options_.report_every == 0) Report();
  const BootTime at = BootTime() + request.at;
  std::size_t hits = 0;
  std::vector<bool> read(nodes_.size(), false);
  while (hits < run_.size()) {
    const auto& node = blocks_[static_cast<std::size_t>(run_[hits])].node;
    if (!node) break;
    read[*node] = true;
    ++hits;
  }
  requests_hit_ += hits > 0 ? 1 : 0;
  nodes_read_ +=
      static_cast<std::uint64_t>(std::count(read.begin(), read.end(), true));
  for (std::size_t i = hits; i < run_.size(); ++i) {
    if (blocks_[static_cast<std::size_t>(run_[i])].node) continue;
    Placement::Block block;
    block.key = Mix(request.ids[i]);
    block.anchor =
        Mix(request.ids[AnchorPosition(static_cast<std::uint32_t>(i))]);
    block.bytes = 1;
    if (i > 0) {
      block.parent = Mix(request.ids[i - 1]);
      block.parent_node = blocks_[static_cast<std::size_t>(run_[i - 1])].node;
    }
    StoreAt(placement_.Place(block), i, at);
  }
  Touch(run_.size(), at);
  return hits;
}

std::vector<std::uint64_t> PlacementSimulator::stored() const {
  std::vector<std::uint64_t> out;
  for (const Node& node : nodes_) out.push_back(node.stored);
  return out;
}

std::vector<std::uint64_t> PlacementSimulator::resident() const {
  std::vector<std::uint64_t> out;
  for (const Node& node : nodes_) out.push_back(node.resident);
  return out;
}

double PlacementSimulator::nodes_a_request() const {
  return requests_hit_ == 0 ? 0
                            : static_cast<double>(nodes_read_) /
                                  static_cast<double>(requests_hit_);
}

PlacementFigures SimulatePlacement(const Trace& trace, std::size_t nodes,
                                   double share, std::uint32_t block_tokens) {
  const auto all =
      static_cast<std::size_t>(share * static_cast<double>(trace.distinct));
  const HitCounts one = SimulateCache(trace, all, block_tokens);
  PlacementSimulator many(
      {.nodes = nodes, .capacity_blocks = all / nodes, .placement = {}});
  HitCounts counts;
  for (const TraceRequest& request : trace.requests) {
    counts.Count(request, many.Play(request), block_tokens);
  }
  return {.loss_points = one.saved_rate() - counts.saved_rate(),
          .balance = MostOverMean(many.stored()),
          .resident_balance = MostOverMean(many.resident()),
          .saved_by_one = one.saved_rate(),
          .saved_by_all = counts.saved_rate(),
          .nodes_a_request = many.nodes_a_request()};
}

}  // namespace firnkv
