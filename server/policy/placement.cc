#include "server/policy/placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "proto/base/check.h"

namespace firnkv {
namespace {

// The finaliser of splitmix64.
std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// In (0, 1).
double Fraction(std::uint64_t hash) {
  return (static_cast<double>(hash >> 11) + 0.5) * 0x1p-53;
}

bool Contains(absl::Span<const std::size_t> indexes, std::size_t index) {
  return std::find(indexes.begin(), indexes.end(), index) != indexes.end();
}

// Least chances of a node in the hashing: some, so that it is not empty of an
// anchor's blocks once it is no fuller than the others any more.
constexpr double kLeastChances = 0.1;
// Above it the unit is made small again.
constexpr double kLargestUnit = 1e100;

}  // namespace

void Placement::SetNodes(absl::Span<const Node> nodes) {
  std::vector<NodeState> next;
  next.reserve(nodes.size());
  capacity_bytes_ = 0;
  for (const Node& node : nodes) {
    NodeState state{.node = node};
    const auto before = std::find_if(
        nodes_.begin(), nodes_.end(),
        [&](const NodeState& one) { return one.node.id == node.id; });
    if (before != nodes_.end()) state.recent = before->recent;
    capacity_bytes_ += node.capacity_bytes;
    next.push_back(state);
  }
  nodes_ = std::move(next);
}

double Placement::LoadOf(std::size_t node) const {
  const NodeState& state = nodes_[node];
  const auto capacity = static_cast<double>(
      std::max<std::uint64_t>(state.node.capacity_bytes, 1));
  const double used = static_cast<double>(state.node.used_bytes) / capacity;
  return std::min(used, 1.0) + state.recent / recent_unit_ / capacity;
}

double Placement::MeanLoad() const {
  double sum = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) sum += LoadOf(i);
  return sum / static_cast<double>(nodes_.size());
}

bool Placement::MayFollow(const Block& block) const {
  if (LoadOf(*block.parent_node) > MeanLoad() + options_.slack) return false;
  const auto it = parents_.find(block.parent);
  if (it == parents_.end()) return true;
  const Children& children = it->second;
  if (children.count < std::min(options_.max_children, Children::kMost)) {
    return true;
  }
  // One of them that comes again.
  const auto* const end = children.hashes.begin() + children.count;
  return std::find(children.hashes.begin(), end,
                   static_cast<std::uint32_t>(block.key)) != end;
}

// Weighted rendezvous: the largest of -weight / ln(hash), so that a node's
// chances are its weight's share (Schindelhauer and Schomaker, 2005).
std::size_t Placement::ChooseByAnchor(
    std::uint64_t anchor, absl::Span<const std::size_t> excluded) const {
  const double mean = MeanLoad();
  std::size_t best = 0;
  double best_score = -1;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const double above = LoadOf(i) - mean;
    const double chances =
        std::clamp(1 - options_.steepness * above, kLeastChances, 2.0);
    const auto capacity = static_cast<double>(
        std::max<std::uint64_t>(nodes_[i].node.capacity_bytes, 1));
    double score = -chances * capacity /
                   std::log(Fraction(Mix(anchor ^ Mix(nodes_[i].node.id))));
    // Only where there is nothing else.
    if (Contains(excluded, i)) score *= std::numeric_limits<double>::min();
    if (score > best_score) {
      best_score = score;
      best = i;
    }
  }
  return best;
}

std::size_t Placement::Place(const Block& block,
                             absl::Span<const std::size_t> excluded) {
  CHECK(!nodes_.empty());
  const bool follows =
      block.parent_node && *block.parent_node < nodes_.size() &&
      !Contains(excluded, *block.parent_node) && MayFollow(block);
  const std::size_t node =
      follows ? *block.parent_node : ChooseByAnchor(block.anchor, excluded);
  if (follows) NoteChild(block);
  NotePlaced(node, block.bytes);
  return node;
}

void Placement::NoteChild(const Block& block) {
  if (block.parent == 0) return;
  if (!parents_.contains(block.parent)) {
    if (oldest_parents_.size() >= options_.max_parents) {
      parents_.erase(oldest_parents_.front());
      oldest_parents_.pop_front();
    }
    oldest_parents_.push_back(block.parent);
  }
  Children& children = parents_[block.parent];
  const auto hash = static_cast<std::uint32_t>(block.key);
  auto* const end = children.hashes.begin() + children.count;
  if (children.count == Children::kMost ||
      std::find(children.hashes.begin(), end, hash) != end) {
    return;
  }
  children.hashes[children.count++] = hash;
}

void Placement::NotePlaced(std::size_t node, std::uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  nodes_[node].recent += size * recent_unit_;
  recent_unit_ *= std::exp(
      size / static_cast<double>(std::max<std::uint64_t>(capacity_bytes_, 1)));
  if (recent_unit_ < kLargestUnit) return;
  for (NodeState& state : nodes_) state.recent /= recent_unit_;
  recent_unit_ = 1;
}

}  // namespace firnkv
