#include "server/node/namespace_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace firnkv {

PoolNamespace ToPoolNamespace(const NamespaceFacts& facts) {
  return PoolNamespace{.id = facts.name_space,
                       .tenant = facts.tenant,
                       .digest = facts.digest,
                       .clear_epoch = facts.clear_epoch,
                       .block_bytes = facts.block_bytes,
                       .chained = facts.chained,
                       .retention = facts.retention,
                       .strict_clear = facts.strict_clear};
}

NamespaceCache::NamespaceCache(const Options& options,
                               NodeCatalogClient* catalog, const Clock* clock,
                               OnChanged on_changed)
    : options_(options),
      catalog_(catalog),
      clock_(clock),
      on_changed_(std::move(on_changed)),
      asking_({.in_all = options.max_asking,
               .a_key = options.max_asking_a_tenant}) {}

NamespaceCache::Answer NamespaceCache::Judge(const NamespaceCaller& caller,
                                             NamespaceId id,
                                             ClearEpoch seen) const {
  const BootTime now = clock_->Now();
  const auto it = known_.find(id);
  // Whatever it says it has seen: others' questions cost nothing, and are no
  // reason to believe that there is a later epoch.
  if (it != known_.end() && !caller.is_node &&
      it->second.tenant != caller.tenant) {
    return Outcome::kDenied;
  }
  if (it != known_.end() && it->second.clear_epoch >= seen) {
    const PoolNamespace& facts = it->second;
    if (facts.strict_clear && now >= believed_until_) {
      return Outcome::kUnavailable;
    }
    return facts;
  }
  const auto denial = denials_.find(id);
  if (denial != denials_.end() && now < denial->second.until &&
      (!denial->second.exists || seen <= denial->second.asked)) {
    return denial->second.exists ? Outcome::kUnavailable : Outcome::kDenied;
  }
  return Outcome::kUnset;
}

void NamespaceCache::Find(const NamespaceCaller& caller, NamespaceId id,
                          ClearEpoch seen, BootTime deadline, Done done) {
  Answer answer = Outcome::kUnavailable;
  CappedCounts<TenantId>::Receipt asking;
  std::uint64_t refresh = 0;
  {
    MutexLock lock(&mutex_);
    refresh = refresh_;
    answer = Judge(caller, id, seen);
    const Outcome* const outcome = std::get_if<Outcome>(&answer);
    if (outcome != nullptr && *outcome == Outcome::kUnset) {
      asking = asking_.Take(caller.is_node ? TenantId{} : caller.tenant);
      answer = Outcome::kUnavailable;
    }
  }
  if (!asking) return std::move(done)(answer);

  const absl::Duration left = deadline - clock_->Now();
  const bool callers_own = left < options_.ask_timeout;
  const absl::Duration timeout =
      std::max(absl::Milliseconds(1), std::min(left, options_.ask_timeout));
  catalog_->StartDescribeNamespaces(
      {id}, timeout,
      [this, caller, id, seen, refresh, callers_own, asking = std::move(asking),
       done = std::move(done)](
          absl::StatusOr<std::vector<NamespaceFacts>> facts) mutable {
        asking = CappedCounts<TenantId>::Receipt();
        const Outcome otherwise =
            callers_own && absl::IsDeadlineExceeded(facts.status())
                ? Outcome::kTimedOut
                : OnAnswer(id, seen, refresh, facts);
        Answer answer = otherwise;
        {
          MutexLock lock(&mutex_);
          Answer judged = Judge(caller, id, seen);
          const Outcome* const outcome = std::get_if<Outcome>(&judged);
          if (outcome == nullptr || *outcome != Outcome::kUnset) {
            answer = judged;
          }
        }
        std::move(done)(answer);
      });
}

Outcome NamespaceCache::OnAnswer(
    NamespaceId id, ClearEpoch seen, std::uint64_t refresh,
    const absl::StatusOr<std::vector<NamespaceFacts>>& answer) {
  if (!answer.ok()) return Outcome::kUnavailable;
  // The catalog answers what it was asked; anything else is not believed.
  std::vector<NamespaceFacts> asked_for;
  for (const NamespaceFacts& one : *answer) {
    if (one.name_space == id) asked_for.push_back(one);
  }
  if (!LearnOf(refresh, asked_for)) return Outcome::kUnavailable;
  if (asked_for.empty()) Forget(id);
  MutexLock lock(&mutex_);
  RememberDenial(id, seen);
  return asked_for.empty() ? Outcome::kDenied : Outcome::kUnavailable;
}

void NamespaceCache::RememberDenial(NamespaceId id, ClearEpoch asked) {
  const BootTime now = clock_->Now();
  const auto it = known_.find(id);
  const bool exists = it != known_.end();
  if (exists && it->second.clear_epoch >= asked) return;
  if (denials_.size() >= options_.max_denials && !denials_.contains(id)) {
    for (auto old = denials_.begin(); old != denials_.end();) {
      const auto next = std::next(old);
      if (old->second.until <= now) denials_.erase(old);
      old = next;
    }
    if (denials_.size() >= options_.max_denials) return;
  }
  denials_[id] = Denial{now + options_.denial_memory, asked, exists};
}

void NamespaceCache::Learn(const std::vector<NamespaceFacts>& facts) {
  LearnOf(std::nullopt, facts);
}

bool NamespaceCache::LearnOf(std::optional<std::uint64_t> refresh,
                             const std::vector<NamespaceFacts>& facts) {
  std::vector<const NamespaceFacts*> changed;
  {
    MutexLock lock(&mutex_);
    if (refresh && *refresh != refresh_) return false;
    for (const NamespaceFacts& one : facts) {
      const auto it = known_.find(one.name_space);
      if (it != known_.end() && it->second.clear_epoch > one.clear_epoch) {
        continue;
      }
      if (it == known_.end() && known_.size() >= options_.max_namespaces) {
        known_.erase(known_.begin());
      }
      known_[one.name_space] = ToPoolNamespace(one);
      denials_.erase(one.name_space);
      changed.push_back(&one);
    }
  }
  for (const NamespaceFacts* one : changed) on_changed_(*one);
  return true;
}

void NamespaceCache::Forget(NamespaceId id) {
  MutexLock lock(&mutex_);
  known_.erase(id);
}

std::vector<NamespaceId> NamespaceCache::BeginRefresh() {
  MutexLock lock(&mutex_);
  ++refresh_;
  std::vector<NamespaceId> ids;
  ids.reserve(known_.size());
  for (const auto& one : known_) ids.push_back(one.first);
  return ids;
}

absl::Duration NamespaceCache::LongestLease(const PoolNamespace& facts) const {
  if (!facts.strict_clear) return absl::InfiniteDuration();
  MutexLock lock(&mutex_);
  return believed_until_ - clock_->Now();
}

void NamespaceCache::SetMembership(BootTime believed_until) {
  MutexLock lock(&mutex_);
  believed_until_ = believed_until;
}

}  // namespace firnkv
