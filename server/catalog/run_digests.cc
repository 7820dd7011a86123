#include "server/catalog/run_digests.h"

#include <algorithm>

namespace firnkv {

RunDigests::Sums* RunDigests::SumsOf(const Run& run) {
  if (run == last_run_) return last_;
  const auto it = runs_.find(run);
  Sums* sums = it == runs_.end() ? nullptr : it->second.get();
  if (sums == nullptr && membership_->Judge({run})[0] != Verdict::kStale) {
    sums = (runs_[run] = std::make_unique<Sums>()).get();
  }
  last_run_ = run;
  last_ = sums;
  return sums;
}

void RunDigests::Add(const BlockId& block, const Location& location) {
  Sums* const sums = SumsOf(location.run);
  if (sums == nullptr) return;
  sums->sums.Add(block, location.tier, location.generation);
  ++sums->copies[block.name_space];
}

void RunDigests::Subtract(const BlockId& block, const Location& location) {
  Sums* const sums = SumsOf(location.run);
  if (sums == nullptr) return;
  // Never added: a run that was stale, was forgotten as a node and came back
  // without its inventory. The next inventory begins from nothing.
  const auto copies = sums->copies.find(block.name_space);
  if (copies == sums->copies.end()) return;
  sums->sums.Subtract(block, location.tier, location.generation);
  if (--copies->second == 0) sums->copies.erase(copies);
}

void RunDigests::Change(const BlockId& block, absl::Span<const Location> before,
                        absl::Span<const Location> after) {
  // Mostly one copy of many comes or goes.
  while (!before.empty() && !after.empty() && before.front() == after.front()) {
    before.remove_prefix(1);
    after.remove_prefix(1);
  }
  while (!before.empty() && !after.empty() && before.back() == after.back()) {
    before.remove_suffix(1);
    after.remove_suffix(1);
  }
  for (const Location& one : before) Subtract(block, one);
  for (const Location& one : after) Add(block, one);
}

const BucketSums* RunDigests::Find(const Run& run) const {
  const auto it = runs_.find(run);
  return it == runs_.end() ? nullptr : &it->second->sums;
}

std::vector<NamespaceId> RunDigests::NamespacesOf(const Run& run) const {
  std::vector<NamespaceId> namespaces;
  const auto it = runs_.find(run);
  if (it == runs_.end()) return namespaces;
  for (const auto& [name_space, copies] : it->second->copies) {
    namespaces.push_back(name_space);
  }
  std::sort(namespaces.begin(), namespaces.end());
  return namespaces;
}

void RunDigests::DropStale() {
  last_run_ = Run{};
  last_ = nullptr;
  for (auto it = runs_.begin(); it != runs_.end();) {
    const bool stale = membership_->Judge({it->first})[0] == Verdict::kStale;
    // The iterator behind it stays valid (flat_hash_map).
    if (stale) {
      runs_.erase(it++);
    } else {
      ++it;
    }
  }
}

}  // namespace firnkv
