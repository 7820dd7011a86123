#include "server/policy/drain_order.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/base/check.h"

namespace firnkv {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
// As in placement.h: how much fuller than the least full one a peer may be and
// still get the rest of a chain.
constexpr double kSlack = 0.05;

// How much of what brings this node down brings the peer down too.
int SharedFate(const Labels& own, const Labels& peer) {
  if (!own.host.empty() && own.host == peer.host) return 2;
  // Racks may be numbered anew in every zone.
  if (!own.rack.empty() && own.rack == peer.rack && own.zone == peer.zone) {
    return 1;
  }
  return 0;
}

// Peers that may be chosen, by how full they are with what they are to get.
class PeerLoads {
 public:
  PeerLoads(absl::Span<const DrainPeer> peers, const Labels& own)
      : peers_(peers), assigned_(peers.size(), 0) {
    int least = 3;
    for (const DrainPeer& peer : peers) {
      if (peer.capacity_bytes == 0) continue;
      least = std::min(least, SharedFate(own, peer.labels));
    }
    for (std::uint32_t i = 0; i < peers.size(); ++i) {
      if (peers[i].capacity_bytes == 0 ||
          SharedFate(own, peers[i].labels) != least) {
        continue;
      }
      by_load_.insert({LoadOf(i), i});
    }
  }

  bool empty() const { return by_load_.empty(); }

  // `wished`: where the parent is; kNone.
  std::uint32_t Choose(std::uint32_t wished) const {
    const auto& [least_load, least] = *by_load_.begin();
    if (wished != kNone && LoadOf(wished) <= least_load + kSlack) return wished;
    return least;
  }

  void Add(std::uint32_t peer, std::uint64_t bytes) {
    by_load_.erase({LoadOf(peer), peer});
    assigned_[peer] += bytes;
    by_load_.insert({LoadOf(peer), peer});
  }

 private:
  double LoadOf(std::uint32_t peer) const {
    return static_cast<double>(peers_[peer].used_bytes + assigned_[peer]) /
           static_cast<double>(peers_[peer].capacity_bytes);
  }

  const absl::Span<const DrainPeer> peers_;
  std::vector<std::uint64_t> assigned_;
  std::set<std::pair<double, std::uint32_t>> by_load_;
};

// Index of each block's parent, kNone where it is not here.
std::vector<std::uint32_t> ParentsOf(absl::Span<const DrainBlock> blocks) {
  absl::flat_hash_map<std::uint64_t, std::uint32_t> by_id;
  by_id.reserve(blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) by_id[blocks[i].id] = i;
  std::vector<std::uint32_t> parents(blocks.size(), kNone);
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].parent == 0) continue;
    const auto found = by_id.find(blocks[i].parent);
    if (found != by_id.end() &&
        blocks[found->second].position < blocks[i].position) {
      parents[i] = found->second;
    }
  }
  return parents;
}

// All blocks in the order in which they are worth moving.
std::vector<std::uint32_t> ByHeat(absl::Span<const DrainBlock> blocks,
                                  const std::vector<std::uint32_t>& parents) {
  std::vector<std::uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return blocks[a].position > blocks[b].position;
  });
  std::vector<Warmth> heat(blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i) heat[i] = blocks[i].warmth;
  // Children first, so that each has what comes after it.
  for (const std::uint32_t i : order) {
    if (parents[i] == kNone) continue;
    heat[parents[i]] = std::max(heat[parents[i]], heat[i]);
  }
  // A parent is at least as hot as its child; of equals, it comes first by its
  // position.
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (heat[a] != heat[b]) return heat[a] > heat[b];
    if (blocks[a].position != blocks[b].position) {
      return blocks[a].position < blocks[b].position;
    }
    return a < b;
  });
  return order;
}

}  // namespace

DrainOrder OrderDrain(absl::Span<const DrainBlock> blocks,
                      absl::Span<const DrainPeer> peers, const Labels& own,
                      std::uint64_t budget_bytes) {
  CHECK(blocks.size() < kNone && peers.size() < kNone);
  DrainOrder result;
  PeerLoads loads(peers, own);
  if (loads.empty()) return result;
  const std::vector<std::uint32_t> parents = ParentsOf(blocks);
  // Of each block that is taken.
  std::vector<std::uint32_t> chosen(blocks.size(), kNone);
  for (const std::uint32_t i : ByHeat(blocks, parents)) {
    const std::uint32_t parent = parents[i];
    if (parent != kNone && chosen[parent] == kNone) continue;
    if (blocks[i].bytes > budget_bytes - result.bytes) continue;
    chosen[i] = loads.Choose(parent == kNone ? kNone : chosen[parent]);
    loads.Add(chosen[i], blocks[i].bytes);
    result.bytes += blocks[i].bytes;
    result.steps.push_back({.block = i, .peer = chosen[i]});
  }
  return result;
}

}  // namespace firnkv
