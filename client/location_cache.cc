#include "client/location_cache.h"

namespace firnkv {

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
  if (most_ == 0 || life_ == absl::ZeroDuration() || locations.empty()) return;
  Locations kept = locations;
  if (kept.size() > kCopiesKept) kept.resize(kCopiesKept);

  MutexLock lock(&mutex_);
  if (const auto it = entries_.find(block); it != entries_.end()) Erase(it);
  if (entries_.size() >= most_) Erase(entries_.find(ages_.front()));
  ages_.push_back(block);
  entries_.emplace(block, Entry{.locations = std::move(kept),
                                .believed_until = asked_at + life_,
                                .age = std::prev(ages_.end())});
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
