#include "server/catalog/locator.h"

#include <map>
#include <optional>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/status.h"

namespace firnkv {
namespace {

using Found = std::vector<std::optional<KeyIndex::Entry>>;

// Verdicts about all locations of all entries, in their order.
std::vector<Verdict> JudgeAll(const Membership& membership,
                              const Found& found) {
  std::vector<Run> runs;
  for (const auto& entry : found) {
    if (!entry.has_value()) continue;
    for (const Location& one : entry->locations) runs.push_back(one.run);
  }
  return membership.Judge(runs);
}

// The nodes of one answer, each once.
class NodesTold {
 public:
  NodesTold(const Membership* membership, std::vector<NodeAddress>* nodes)
      : membership_(membership), nodes_(nodes) {}

  // Null if the node is another run by now.
  std::optional<std::uint32_t> IndexOf(const Run& run) {
    const auto key = std::make_pair(run.node, run.epoch);
    const auto it = known_.find(key);
    if (it != known_.end()) return it->second;
    const std::optional<Membership::Row> row = membership_->Find(run.node);
    if (!row.has_value() || row->address.epoch != run.epoch) {
      return std::nullopt;
    }
    const auto index = static_cast<std::uint32_t>(nodes_->size());
    nodes_->push_back(row->address);
    known_.emplace(key, index);
    return index;
  }

 private:
  const Membership* const membership_;
  std::vector<NodeAddress>* const nodes_;
  std::map<std::pair<NodeId, NodeEpoch>, std::uint32_t> known_;
};

}  // namespace

absl::StatusOr<Locator::Answer> Locator::Locate(const NamespaceFacts& facts,
                                                absl::Span<const BlockKey> keys,
                                                Entries::Want want) {
  ASSIGN_OR_RETURN(const Found found,
                   parts_.entries->Find(facts.name_space, keys, want));
  const std::vector<Verdict> verdicts = JudgeAll(*parts_.membership, found);
  Answer answer;
  answer.outcomes.reserve(keys.size());
  NodesTold nodes(parts_.membership, &answer.nodes);
  std::size_t at = 0;
  bool run_over = false;
  for (const auto& entry : found) {
    if (run_over) {
      answer.outcomes.push_back(Outcome::kSkipped);
      counters_.skipped.Add();
      continue;
    }
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
                ? nodes.IndexOf(one.run)
                : std::nullopt;
        if (node.has_value()) {
          answer.copies.push_back(
              {*node, one.tier, one.generation, one.length});
          ++count;
        } else if (count == 0) {
          outcome = Outcome::kUnavailable;
        }
      }
    }
    if (count > 0) {
      outcome = Outcome::kHit;
      answer.counts.push_back(count);
    }
    (outcome == Outcome::kHit    ? counters_.hits
     : outcome == Outcome::kMiss ? counters_.misses
                                 : counters_.unavailable)
        .Add();
    answer.outcomes.push_back(outcome);
    run_over = want == Entries::Want::kLeadingRun && outcome != Outcome::kHit;
  }
  return answer;
}

absl::StatusOr<Locator::Removed> Locator::Remove(
    const NamespaceFacts& facts, absl::Span<const BlockKey> keys) {
  ASSIGN_OR_RETURN(
      const Found found,
      parts_.entries->Find(facts.name_space, keys, Entries::Want::kEveryKey));
  const std::vector<Verdict> verdicts = JudgeAll(*parts_.membership, found);
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
