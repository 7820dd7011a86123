#include "server/catalog/reaper.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/base/status.h"
#include "server/catalog/entry_change.h"
#include "server/catalog/stale_runs.h"

namespace firnkv {
namespace {

// Clear epochs of namespaces, asked once each.
class ClearEpochs {
 public:
  explicit ClearEpochs(const Registry* registry) : registry_(registry) {}
  // Above all others for a namespace that there is not: nothing of it counts.
  ClearEpoch Of(NamespaceId name_space) {
    const auto [it, added] =
        known_.try_emplace(name_space, ClearEpoch{UINT64_MAX});
    if (added) {
      const auto facts = registry_->Describe(name_space);
      if (facts.has_value()) it->second = facts->clear_epoch;
    }
    return it->second;
  }

 private:
  const Registry* const registry_;
  absl::flat_hash_map<NamespaceId, ClearEpoch> known_;
};

}  // namespace

Reaper::Reaper(const Options& options, const Parts& parts)
    : options_(options), parts_(parts) {}

Reaper::~Reaper() { Stop(); }

void Reaper::Start() {
  TickLater();
  LoadLater();
}

void Reaper::Stop() { scope_.Close(); }

void Reaper::TickLater() {
  parts_.executor->PostAt(
      parts_.executor->clock()->Now() + parts_.membership->tick(),
      scope_.Wrap([this] { Tick(); }));
}

void Reaper::Tick() {
  for (const Membership::Overdue& overdue : parts_.membership->Tick()) {
    parts_.strand->Post([this, overdue](absl::Status turn) {
      if (!turn.ok()) return;
      const absl::StatusOr<bool> reaped = parts_.membership->Reap(overdue);
      if (reaped.ok() && *reaped) Wake();
    });
  }
  TickLater();
}

void Reaper::LoadLater() {
  parts_.executor->PostAt(parts_.executor->clock()->Now() + options_.load_pause,
                          scope_.Wrap([this] {
                            parts_.strand->Post([this](absl::Status turn) {
                              if (turn.ok()) LoadStep();
                            });
                          }));
}

void Reaper::LoadStep() {
  const absl::StatusOr<bool> more =
      parts_.entries->LoadStep(options_.step_entries);
  // A store that cannot be read is found by whoever asks it.
  if (!more.ok()) return;
  if (*more) {
    LoadLater();
  } else {
    // What was left of the last run's passes.
    Wake();
  }
}

void Reaper::Wake() {
  {
    MutexLock lock(&mutex_);
    again_ = true;
    if (passing_) return;
    passing_ = true;
  }
  PassLater();
}

void Reaper::WakeForClear() {
  ++clears_;
  Wake();
}

void Reaper::PassLater() {
  parts_.executor->PostAt(parts_.executor->clock()->Now() + options_.pause,
                          scope_.Wrap([this] {
                            parts_.strand->Post([this](absl::Status turn) {
                              if (turn.ok()) PassStep();
                            });
                          }));
}

void Reaper::PassStep() {
  if (cursor_.empty()) {
    pass_clears_ = clears_;
    parts_.digests->DropStale();
    MutexLock lock(&mutex_);
    again_ = false;
  }
  const absl::StatusOr<bool> more = Reap();
  if (!more.ok()) return;
  if (*more) {
    PassLater();
  } else {
    EndPass();
  }
}

void Reaper::EndPass() {
  cursor_.clear();
  reaped_clears_ = pass_clears_;
  {
    MutexLock lock(&mutex_);
    passing_ = again_;
    if (!passing_) return;
  }
  PassLater();
}

absl::StatusOr<bool> Reaper::Reap() {
  StaleRuns stale(parts_.membership);
  ClearEpochs epochs(parts_.registry);
  // Visited under a lock of the index, judged outside it.
  std::vector<std::pair<BlockId, KeyIndex::Entry>> visited;
  visited.reserve(options_.step_entries);
  ASSIGN_OR_RETURN(const bool more,
                   parts_.entries->Walk(
                       &cursor_, options_.step_entries,
                       [&](const BlockId& block, const KeyIndex::Entry& entry) {
                         visited.emplace_back(block, entry);
                       }));
  std::vector<BlockId> suspects;
  for (const auto& [block, entry] : visited) {
    bool suspect = entry.clear_epoch < epochs.Of(block.name_space);
    for (const Location& one : entry.locations) {
      suspect = suspect || stale(one.run);
    }
    if (suspect) suspects.push_back(block);
  }
  if (suspects.empty()) return more;
  ASSIGN_OR_RETURN(EntryBatch batch, parts_.entries->Load(suspects));
  for (EntryBatch::Slot& slot : batch.slots()) {
    const std::size_t before =
        slot.entry.has_value() ? slot.entry->locations.size() : 0;
    DropStale(&slot, epochs.Of(slot.block.name_space), stale);
    if (slot.entry.has_value()) {
      reaped_.Add(before - slot.entry->locations.size());
    }
  }
  RETURN_IF_ERROR(parts_.entries->Commit(std::move(batch), {}));
  return more;
}

}  // namespace firnkv
