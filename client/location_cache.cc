#include "client/location_cache.h"

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
      Erase(it);
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
    entry.age = ages_.insert(ages_.end(), block);
  } else {
    ages_.splice(ages_.end(), ages_, entry.age);
  }
  entry.locations = locations;
  if (locations.size() > kCopiesKept) entry.locations.resize(kCopiesKept);
  entry.believed_until = asked_at + life_;
  if (entries_.size() > most_) Erase(entries_.find(ages_.front()));
}

void LocationCache::Forget(const BlockId& block) {
  MutexLock lock(&mutex_);
  if (const auto it = entries_.find(block); it != entries_.end()) Erase(it);
}

std::size_t LocationCache::size() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

void LocationCache::Erase(Entries::iterator it) {
  ages_.erase(it->second.age);
  entries_.erase(it);
}

}  // namespace firnkv
