#include "server/policy/promotion.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace firnkv {

PromotionPolicy::Choice PromotionPolicy::OnRemoteRead(
    BootTime at, Warmth warmth, TenantId tenant, NamespaceId name_space,
    absl::Span<const Read> run) {
  std::vector<Warmth> first(run.size());
  for (std::size_t i = 0; i < run.size(); ++i) {
    first[i] = LookAt(at, warmth, tenant, {name_space, run[i].key});
  }
  Choice choice;
  // From the end: whoever is chosen takes its ancestors along.
  absl::flat_hash_set<BlockKey> needed;
  for (std::size_t i = run.size(); i-- > 0;) {
    const bool again = first[i] != Warmth::kNone;
    if (!again && !needed.contains(run[i].key)) continue;
    choice.blocks.push_back(i);
    if (!run[i].parent.IsZero()) needed.insert(run[i].parent);
    if (again && (choice.evict_below == Warmth::kNone ||
                  first[i] < choice.evict_below)) {
      choice.evict_below = first[i];
    }
    if (const auto it = notes_.find({name_space, run[i].key});
        it != notes_.end()) {
      Forget(it);
    }
  }
  std::reverse(choice.blocks.begin(), choice.blocks.end());
  return choice;
}

Warmth PromotionPolicy::LookAt(BootTime at, Warmth warmth, TenantId tenant,
                               const BlockId& block) {
  const auto it = notes_.find(block);
  if (it != notes_.end()) {
    const Note& note = it->second;
    if (note.tenant == tenant && at - note.at <= options_.window) {
      return note.warmth;
    }
    Forget(it);
  }
  MakeRoom(tenant);
  Ages& ages = ages_[tenant];
  const auto age = ages.insert(ages.end(), block);
  notes_.emplace(
      block, Note{.at = at, .warmth = warmth, .tenant = tenant, .age = age});
  return Warmth::kNone;
}

void PromotionPolicy::MakeRoom(TenantId tenant) {
  const auto own = ages_.find(tenant);
  if (own != ages_.end() && own->second.size() >= options_.max_notes_a_tenant) {
    return Forget(notes_.find(own->second.front()));
  }
  if (notes_.size() < options_.max_notes) return;
  const auto most = std::max_element(
      ages_.begin(), ages_.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.size(), a.first) <
               std::pair(b.second.size(), b.first);
      });
  Forget(notes_.find(most->second.front()));
}

void PromotionPolicy::Forget(Notes::iterator it) {
  const auto ages = ages_.find(it->second.tenant);
  ages->second.erase(it->second.age);
  if (ages->second.empty()) ages_.erase(ages);
  notes_.erase(it);
}

}  // namespace firnkv
