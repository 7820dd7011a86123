#include "server/catalog/placer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "proto/base/status.h"

namespace firnkv {
namespace {

// Keys, anchors and ids are hashes or random already.
template <typename Id>
std::uint64_t HashOf(const Id& id) {
  std::uint64_t hash = 0;
  std::memcpy(&hash, id.bytes.data(), sizeof(hash));
  return hash;
}

// Equal keys of two namespaces are two blocks (rule C1). Never 0, which stands
// for none.
std::uint64_t HashOf(const NamespaceFacts& facts, const BlockKey& key) {
  return (HashOf(facts.name_space) ^ HashOf(key)) | 1;
}

}  // namespace

// A leading run of a long chain is asked for at most once a key; parents are
// mostly keys of the same batch.
absl::StatusOr<Placer::Homes> Placer::FindHomes(
    const NamespaceFacts& facts, absl::Span<const Block> blocks) const {
  std::vector<BlockKey> keys;
  absl::flat_hash_map<BlockKey, bool> asked;
  for (const Block& block : blocks) {
    for (const BlockKey& key : {block.parent, block.key}) {
      if (key.IsZero() || !asked.emplace(key, true).second) continue;
      keys.push_back(key);
    }
  }
  ASSIGN_OR_RETURN(
      const auto found,
      parts_.entries->Find(facts.name_space, keys, Entries::Want::kEveryKey));
  std::vector<Run> runs;
  for (const auto& entry : found) {
    if (!entry) continue;
    for (const Location& one : entry->locations) runs.push_back(one.run);
  }
  const std::vector<Verdict> verdicts = parts_.membership->Judge(runs);
  Homes homes;
  std::size_t at = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!found[i]) continue;
    for (const Location& one : found[i]->locations) {
      const Verdict verdict = verdicts[at++];
      // Rule C2: older than the last clear is nobody's.
      if (found[i]->clear_epoch < facts.clear_epoch) continue;
      if (verdict == Verdict::kServing) homes.emplace(keys[i], one.run);
    }
  }
  return homes;
}

void Placer::Refresh() {
  const BootTime now = parts_.clock->Now();
  if (now < refresh_at_ && !addresses_.empty()) return;
  refresh_at_ = now + options_.refresh;
  std::vector<Placement::Node> nodes;
  addresses_.clear();
  indexes_.clear();
  for (Membership::Row& row : parts_.membership->List()) {
    if (row.life != NodeLife::kAlive) continue;
    nodes.push_back({.id = HashOf(row.address.node),
                     .capacity_bytes = row.dram_bytes,
                     .used_bytes = row.dram_used_bytes});
    indexes_.emplace(row.address.node, addresses_.size());
    addresses_.push_back(std::move(row.address));
  }
  placement_.SetNodes(nodes);
}

absl::StatusOr<Placer::Answer> Placer::Place(
    const NamespaceFacts& facts, absl::Span<const Block> blocks,
    absl::Span<const NodeId> excluded) {
  Batch batch{.facts = &facts};
  ASSIGN_OR_RETURN(batch.homes, FindHomes(facts, blocks));
  Answer answer;
  MutexLock lock(&mutex_);
  Refresh();
  if (addresses_.empty()) {
    return absl::UnavailableError("no node is alive to take blocks");
  }
  for (const NodeId& node : excluded) {
    const auto it = indexes_.find(node);
    if (it != indexes_.end()) batch.avoided.push_back(it->second);
  }
  absl::flat_hash_map<std::size_t, std::uint32_t> told;
  for (const Block& block : blocks) {
    const std::size_t node = Decide(block, &batch);
    batch.placed.emplace(block.key, node);
    const auto [it, added] =
        told.emplace(node, static_cast<std::uint32_t>(answer.nodes.size()));
    if (added) answer.nodes.push_back(addresses_[node]);
    answer.places.push_back(it->second);
  }
  counters_.blocks.Add(blocks.size());
  return answer;
}

std::size_t Placer::Decide(const Block& block, Batch* batch) {
  const std::optional<std::size_t> home = HomeOf(block.key, *batch);
  if (home && std::find(batch->avoided.begin(), batch->avoided.end(), *home) ==
                  batch->avoided.end()) {
    counters_.known.Add();
    return *home;
  }
  const std::optional<std::size_t> parent_node = HomeOf(block.parent, *batch);
  const NamespaceFacts& facts = *batch->facts;
  const std::size_t node = placement_.Place(
      {.key = HashOf(facts, block.key),
       .anchor = HashOf(facts, block.anchor),
       .parent = block.parent.IsZero() ? 0 : HashOf(facts, block.parent),
       .bytes = block.length,
       .parent_node = parent_node},
      batch->avoided);
  if (node == parent_node) counters_.followed.Add();
  return node;
}

std::optional<std::size_t> Placer::HomeOf(const BlockKey& key,
                                          const Batch& batch) const {
  const auto placed = batch.placed.find(key);
  if (placed != batch.placed.end()) return placed->second;
  const auto home = batch.homes.find(key);
  if (home == batch.homes.end()) return std::nullopt;
  const auto it = indexes_.find(home->second.node);
  if (it == indexes_.end() ||
      addresses_[it->second].epoch != home->second.epoch) {
    return std::nullopt;
  }
  return it->second;
}

}  // namespace firnkv
