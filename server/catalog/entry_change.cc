#include "server/catalog/entry_change.h"

#include <algorithm>

#include "proto/base/check.h"

namespace firnkv {
namespace {

bool SamePlace(const Location& a, const Location& b) {
  return a.run.node == b.run.node && a.run.epoch == b.run.epoch &&
         a.tier == b.tier;
}

void DropIf(EntryBatch::Slot* slot,
            absl::FunctionRef<bool(const Location&)> drop) {
  std::vector<Location>& locations = slot->entry->locations;
  const auto kept = std::remove_if(locations.begin(), locations.end(), drop);
  if (kept == locations.end()) return;
  locations.erase(kept, locations.end());
  slot->changed = true;
}

}  // namespace

void DropStale(EntryBatch::Slot* slot, ClearEpoch current,
               absl::FunctionRef<bool(const Run&)> is_stale) {
  if (!slot->entry.has_value()) return;
  const bool cleared = slot->entry->clear_epoch < current;
  DropIf(slot, [&](const Location& location) {
    return cleared || is_stale(location.run);
  });
}

void DropCopies(EntryBatch::Slot* slot, const Run& run,
                absl::FunctionRef<bool(const Location&)> drop) {
  if (!slot->entry.has_value()) return;
  DropIf(slot, [&](const Location& location) {
    return location.run == run && drop(location);
  });
}

void Publish(EntryBatch::Slot* slot, const Location& location,
             ClearEpoch clear_epoch, const ChainPlace& place) {
  if (!slot->entry.has_value() || slot->entry->locations.empty()) {
    slot->entry.emplace();
    slot->is_new = true;
    slot->entry->clear_epoch = clear_epoch;
  }
  EntryRecord& entry = *slot->entry;
  CHECK(entry.clear_epoch == clear_epoch);
  const auto same = std::find_if(
      entry.locations.begin(), entry.locations.end(),
      [&](const Location& one) { return SamePlace(one, location); });
  if (same == entry.locations.end()) {
    if (entry.locations.size() >= kMaxCopiesABlock) return;
    entry.locations.push_back(location);
  } else {
    // Rule A2.
    if (same->generation > location.generation || *same == location) return;
    *same = location;
  }
  entry.place = place;
  slot->place_known = true;
  slot->changed = true;
}

void Withdraw(EntryBatch::Slot* slot, const Location& location) {
  if (!slot->entry.has_value()) return;
  std::vector<Location>& locations = slot->entry->locations;
  const auto same = std::find_if(locations.begin(), locations.end(),
                                 [&](const Location& one) {
                                   return SamePlace(one, location) &&
                                          one.generation == location.generation;
                                 });
  if (same == locations.end()) return;
  locations.erase(same);
  slot->changed = true;
}

}  // namespace firnkv
