#include "client/location_cache.h"

#include <utility>

namespace firnkv {
namespace {

// Blocks of a batch whose entries are fetched from memory beforehand.
constexpr std::size_t kAhead = 8;

}  // namespace

LocationCache::LocationCache(std::size_t most, absl::Duration life,
                             const Clock* clock)
    : most_(most), life_(life), clock_(clock) {}

std::vector<Locations> LocationCache::Find(NamespaceId name_space,
                                           absl::Span<const BlockKey> keys) {
  std::vector<Locations> found(keys.size());
  const BootTime now = clock_->Now();

  MutexLock lock(&mutex_);
  if (entries_.empty()) return found;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto it = entries_.find(BlockId{name_space, keys[i]});
    if (it == entries_.end()) continue;
    if (it->second.believed_until <= now) {
      entries_.erase(it);
    } else {
      found[i] = it->second.locations;
    }
  }
  return found;
}

void LocationCache::Learn(const BlockId& block, const Locations& locations,
                          BootTime asked_at) {
  MutexLock lock(&mutex_);
  Store(block, locations, asked_at);
}

void LocationCache::LearnAll(NamespaceId name_space,
                             absl::Span<const BlockKey> blocks,
                             absl::Span<const Locations> locations,
                             BootTime asked_at) {
  MutexLock lock(&mutex_);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    // What the next ones need is on its way while this one is stored.
    if (i + kAhead < blocks.size()) {
      entries_.prefetch(BlockId{name_space, blocks[i + kAhead]});
      if (entries_.size() >= most_ && order_.size() > kAhead) {
        entries_.prefetch(order_[kAhead].block);
      }
    }
    Store(BlockId{name_space, blocks[i]}, locations[i], asked_at);
  }
}

void LocationCache::Store(const BlockId& block, const Locations& locations,
                          BootTime asked_at) {
  if (most_ == 0 || life_ == absl::ZeroDuration() || locations.empty()) return;
  const auto [it, is_new] = entries_.try_emplace(block);
  Entry& entry = it->second;
  if (is_new) {
    entry.place = ++last_place_;
    order_.push_back({block, entry.place});
  } else {
    entry.told_again = true;
  }
  entry.locations = locations;
  if (locations.size() > kCopiesKept) entry.locations.resize(kCopiesKept);
  entry.believed_until = asked_at + life_;
  MakeRoom();
}

void LocationCache::MakeRoom() {
  // Ends: going round once takes all marks away.
  while (entries_.size() > most_) {
    const Place front = order_.front();
    order_.pop_front();
    const auto it = EntryAt(front);
    if (it == entries_.end()) continue;
    if (std::exchange(it->second.told_again, false)) {
      order_.push_back(front);
    } else {
      entries_.erase(it);
    }
  }
  // Each time over as many as were forgotten since the last time, at least.
  if (order_.size() <= 2 * most_) return;
  std::erase_if(order_, [this](const Place& place) {
    mutex_.AssertHeld();
    return EntryAt(place) == entries_.end();
  });
}

LocationCache::Entries::iterator LocationCache::EntryAt(const Place& place) {
  const auto it = entries_.find(place.block);
  return it != entries_.end() && it->second.place == place.number
             ? it
             : entries_.end();
}

void LocationCache::Forget(const BlockId& block) {
  MutexLock lock(&mutex_);
  entries_.erase(block);
}

std::size_t LocationCache::size() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

}  // namespace firnkv
