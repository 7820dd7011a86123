#include "server/catalog/locator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/status.h"

namespace firnkv {
namespace {

// What is found of so many stays in a cache, and below the size from which
// memory is mapped for itself.
constexpr std::size_t kKeysATime = 1024;

}  // namespace

// The nodes of one answer, each once.
class Locator::NodesTold {
 public:
  NodesTold(const Membership* membership, std::vector<NodeAddress>* nodes)
      : membership_(membership), nodes_(nodes) {}

  // Null if the node is another run by now.
  std::optional<std::uint32_t> IndexOf(const Run& run) {
    // Neighbours in a chain mostly stand at the same node.
    const auto key = std::make_pair(run.node, run.epoch);
    if (last_ != known_.end() && last_->first == key) return last_->second;
    last_ = known_.find(key);
    if (last_ != known_.end()) return last_->second;
    const std::optional<Membership::Row> row = membership_->Find(run.node);
    if (!row.has_value() || row->address.epoch != run.epoch) {
      return std::nullopt;
    }
    const auto index = static_cast<std::uint32_t>(nodes_->size());
    nodes_->push_back(row->address);
    last_ = known_.emplace(key, index).first;
    return index;
  }

 private:
  const Membership* const membership_;
  std::vector<NodeAddress>* const nodes_;
  using Known = std::map<std::pair<NodeId, NodeEpoch>, std::uint32_t>;
  Known known_;
  Known::iterator last_ = known_.end();
};

std::vector<Verdict> Locator::JudgeAll(const Found& found) const {
  std::vector<Run> runs;
  runs.reserve(found.size());
  for (const auto& entry : found) {
    if (!entry.has_value()) continue;
    for (const Location& one : entry->locations) runs.push_back(one.run);
  }
  return parts_.membership->Judge(runs);
}

absl::StatusOr<Locator::Answer> Locator::Locate(const NamespaceFacts& facts,
                                                absl::Span<const BlockKey> keys,
                                                Entries::Want want) {
  Answer answer;
  answer.outcomes.reserve(keys.size());
  answer.copies.reserve(keys.size());
  answer.counts.reserve(keys.size());
  NodesTold nodes(parts_.membership, &answer.nodes);
  bool run_over = false;
  for (std::size_t at = 0; at < keys.size() && !run_over; at += kKeysATime) {
    const auto some = keys.subspan(at, std::min(kKeysATime, keys.size() - at));
    ASSIGN_OR_RETURN(const Found found,
                     parts_.entries->Find(facts.name_space, some, want));
    run_over = Tell(facts, found, want, &nodes, &answer);
  }
  const std::size_t told = answer.outcomes.size();
  const auto count = [&](Outcome outcome) {
    return static_cast<std::uint64_t>(
        std::count(answer.outcomes.begin(), answer.outcomes.end(), outcome));
  };
  const std::uint64_t hits = count(Outcome::kHit);
  const std::uint64_t misses = count(Outcome::kMiss);
  counters_.hits.Add(hits);
  counters_.misses.Add(misses);
  counters_.unavailable.Add(told - hits - misses);
  counters_.skipped.Add(keys.size() - told);
  answer.outcomes.resize(keys.size(), Outcome::kSkipped);
  return answer;
}

bool Locator::Tell(const NamespaceFacts& facts, const Found& found,
                   Entries::Want want, NodesTold* nodes, Answer* answer) const {
  const std::vector<Verdict> verdicts = JudgeAll(found);
  std::size_t at = 0;
  for (const auto& entry : found) {
    Outcome outcome = Outcome::kMiss;
    std::uint32_t count = 0;
    if (entry.has_value()) {
      // Rule C2: what is older than the last clear is nobody's any more.
      const bool cleared = entry->clear_epoch < facts.clear_epoch;
      for (const Location& one : entry->locations) {
        const Verdict verdict = verdicts[at++];
        if (cleared || verdict == Verdict::kStale) continue;
        const std::optional<std::uint32_t> node =
            verdict == Verdict::kServing && count < kMaxCopiesTold
                ? nodes->IndexOf(one.run)
                : std::nullopt;
        if (node.has_value()) {
          answer->copies.push_back(
              {*node, one.tier, one.generation, one.length});
          ++count;
        } else if (count == 0) {
          outcome = Outcome::kUnavailable;
        }
      }
    }
    if (count > 0) {
      outcome = Outcome::kHit;
      answer->counts.push_back(count);
    }
    answer->outcomes.push_back(outcome);
    if (want == Entries::Want::kLeadingRun && outcome != Outcome::kHit) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<Locator::Removed> Locator::Remove(
    const NamespaceFacts& facts, absl::Span<const BlockKey> keys) {
  ASSIGN_OR_RETURN(
      const Found found,
      parts_.entries->Find(facts.name_space, keys, Entries::Want::kEveryKey));
  const std::vector<Verdict> verdicts = JudgeAll(found);
  Removed removed;
  std::size_t at = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Outcome outcome = Outcome::kMiss;
    if (found[i].has_value()) {
      const bool cleared = found[i]->clear_epoch < facts.clear_epoch;
      for (const Location& one : found[i]->locations) {
        if (verdicts[at++] == Verdict::kStale || cleared) continue;
        const Removal removal{
            .block = {.name_space = facts.name_space, .key = keys[i]},
            .generation = one.generation};
        if (!parts_.removals->Add(one.run.node, one.run.epoch, removal)) {
          outcome = Outcome::kCongested;
          continue;
        }
        ++removed.pending;
        if (outcome == Outcome::kMiss) outcome = Outcome::kHit;
      }
    }
    removed.outcomes.push_back(outcome);
  }
  return removed;
}

}  // namespace firnkv
