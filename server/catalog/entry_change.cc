#include "server/catalog/entry_change.h"

#include <algorithm>

#include "proto/base/check.h"

namespace firnkv {
namespace {

bool SamePlace(const Location& a, const Location& b) {
  return a.run.node == b.run.node && a.run.epoch == b.run.epoch &&
         a.tier == b.tier;
}

}  // namespace

void DropStale(EntryBatch::Slot* slot, ClearEpoch current,
               absl::FunctionRef<bool(const Run&)> is_stale) {
  if (!slot->entry.has_value()) return;
  std::vector<Location>& locations = slot->entry->locations;
  const std::size_t before = locations.size();
  if (slot->entry->clear_epoch < current) {
    locations.clear();
  } else {
    locations.erase(std::remove_if(locations.begin(), locations.end(),
                                   [&](const Location& location) {
                                     return is_stale(location.run);
                                   }),
                    locations.end());
  }
  if (locations.size() != before) slot->changed = true;
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
    if (same->generation > location.generation) return;
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
