#include "server/node/promoter.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace firnkv {
namespace {

// Sources of one promotion, one after the other. A chain lies at one or two.
constexpr int kMostFetches = 16;

constexpr absl::Duration kLocateTimeout = absl::Seconds(2);

Promoter::Refusal RefusalOf(Outcome outcome) {
  using Refusal = Promoter::Refusal;
  switch (outcome) {
    case Outcome::kCongested:
      return Refusal::kNoRoom;
    case Outcome::kMiss:
      return Refusal::kGone;
    case Outcome::kCleared:
      return Refusal::kCleared;
    case Outcome::kCorrupt:
      return Refusal::kCorrupt;
    case Outcome::kTimedOut:
      return Refusal::kTimedOut;
    case Outcome::kUnset:
    case Outcome::kHit:
    case Outcome::kExpired:
    case Outcome::kBeingWritten:
    case Outcome::kDenied:
    case Outcome::kUnavailable:
    case Outcome::kSkipped:
    case Outcome::kCancelled:
    case Outcome::kWrongSize:
    case Outcome::kStaleLocation:
    case Outcome::kStored:
    case Outcome::kAlreadyThere:
    case Outcome::kOverQuota:
    case Outcome::kReservationOver:
      break;
  }
  return Refusal::kUnreachable;
}

bool IsHere(Outcome outcome) {
  return outcome == Outcome::kStored || outcome == Outcome::kAlreadyThere;
}

}  // namespace

std::string_view Promoter::LabelOf(Refusal refusal) {
  switch (refusal) {
    case Refusal::kBusy:
      return "busy";
    case Refusal::kUnlocated:
      return "unlocated";
    case Refusal::kNoRoom:
      return "no_room";
    case Refusal::kGone:
      return "gone";
    case Refusal::kCleared:
      return "cleared";
    case Refusal::kCorrupt:
      return "corrupt";
    case Refusal::kUnreachable:
      return "unreachable";
    case Refusal::kTimedOut:
      return "timed_out";
  }
  return "unknown";
}

void Promoter::Start(Note note, Done done) {
  if (!options_.on || note.blocks.empty()) return std::move(done)({});
  counters_.noted.Add(note.blocks.size());
  const NamespaceCaller caller{.tenant = note.tenant, .is_node = false};
  const NamespaceId name_space = note.name_space;
  ClearEpoch seen = ClearEpoch::kUnknown;
  for (const CopyOrder::Block& block : note.blocks) {
    seen = std::max(seen, block.clear_epoch);
  }
  auto job = std::make_unique<Job>();
  job->note = std::move(note);
  job->done = std::move(done);
  job->deadline = parts_.clock->Now() + options_.longest;
  const BootTime deadline = job->deadline;
  parts_.namespaces->Find(
      caller, name_space, seen, deadline,
      [this, job = std::move(job)](NamespaceCache::Answer answer) mutable {
        OnNamespace(std::move(job), answer);
      });
}

void Promoter::OnNamespace(JobPtr job, const NamespaceCache::Answer& answer) {
  const auto* const facts = std::get_if<PoolNamespace>(&answer);
  // Not theirs, or nobody knows: not even noted.
  if (facts == nullptr) return std::move(job->done)({});
  std::vector<PromotionPolicy::Read> run;
  std::vector<std::size_t> indexes;
  for (std::size_t i = 0; i < job->note.blocks.size(); ++i) {
    const CopyOrder::Block& block = job->note.blocks[i];
    if (block.clear_epoch != facts->clear_epoch) continue;
    run.push_back({block.key, block.place.parent});
    indexes.push_back(i);
  }
  const Warmth warmth = parts_.pool->NextWarmth();
  bool admitted = false;
  {
    MutexLock lock(&mutex_);
    const PromotionPolicy::Choice choice =
        policy_.OnRemoteRead(parts_.clock->Now(), warmth, job->note.tenant,
                             job->note.name_space, run);
    for (const std::size_t i : choice.blocks) {
      job->wanted.push_back({.index = indexes[i], .sources = {}});
    }
    job->evict_below = choice.evict_below;
    admitted = !job->wanted.empty() && Admit(job->note.tenant);
  }
  if (!admitted) {
    Refuse(Refusal::kBusy, job->wanted.size());
    return std::move(job->done)({});
  }
  NodeCatalogClient::LocateCall call;
  call.name_space = job->note.name_space;
  call.clear_epoch = facts->clear_epoch;
  for (const Job::Wanted& wanted : job->wanted) {
    const CopyOrder::Block& block = job->note.blocks[wanted.index];
    call.keys.push_back(block.key);
    call.anchors.push_back(block.place.anchor);
  }
  parts_.catalog->StartLocate(
      call, kLocateTimeout,
      [this, job = std::move(job)](
          absl::StatusOr<NodeCatalogClient::Sources> located) mutable {
        OnLocated(std::move(job), located);
      });
}

bool Promoter::Admit(TenantId tenant) {
  std::size_t& own = by_tenant_[tenant];
  if (under_way_ >= options_.max_under_way ||
      own >= options_.max_under_way_a_tenant) {
    if (own == 0) by_tenant_.erase(tenant);
    return false;
  }
  ++under_way_;
  ++own;
  return true;
}

void Promoter::OnLocated(
    JobPtr job, const absl::StatusOr<NodeCatalogClient::Sources>& located) {
  std::vector<Job::Wanted> found;
  for (std::size_t i = 0; located.ok() && i < job->wanted.size(); ++i) {
    std::vector<NodeAddress> sources = (*located)[i];
    std::erase_if(sources, [this](const NodeAddress& one) {
      return one.node == parts_.self;
    });
    if (sources.empty()) continue;
    found.push_back(
        {.index = job->wanted[i].index, .sources = std::move(sources)});
  }
  Refuse(Refusal::kUnlocated, job->wanted.size() - found.size());
  job->wanted = std::move(found);
  FetchNext(std::move(job));
}

void Promoter::FetchNext(JobPtr job) {
  const std::size_t begin = job->next;
  if (begin == job->wanted.size() || job->fetches == kMostFetches) {
    return Finish(std::move(job));
  }
  ++job->fetches;
  // Any of them: a hot block's copies share what is asked of it.
  const std::vector<NodeAddress>& sources = job->wanted[begin].sources;
  CopyOrder order;
  order.source = sources[parts_.random->Below(sources.size())];
  order.caller = {.tenant = job->note.tenant, .is_node = false};
  order.name_space = job->note.name_space;
  order.deadline = job->deadline;
  order.traffic = TrafficClass::kWarmUp;
  order.room_wait = options_.room_wait;
  order.evict_below = job->evict_below;
  const auto has_it = [&order](const NodeAddress& one) {
    return one.node == order.source.node && one.epoch == order.source.epoch;
  };
  for (; job->next < job->wanted.size(); ++job->next) {
    const Job::Wanted& wanted = job->wanted[job->next];
    if (std::none_of(wanted.sources.begin(), wanted.sources.end(), has_it)) {
      break;
    }
    order.blocks.push_back(job->note.blocks[wanted.index]);
  }
  parts_.copies->Start(std::move(order),
                       [this, begin, job = std::move(job)](
                           std::vector<Outcome> outcomes) mutable {
                         OnFetched(std::move(job), begin, outcomes);
                       });
}

void Promoter::OnFetched(JobPtr job, std::size_t begin,
                         const std::vector<Outcome>& outcomes) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const std::size_t index = job->wanted[begin + i].index;
    if (outcomes[i] == Outcome::kStored) {
      counters_.promoted.Add();
      counters_.promoted_bytes.Add(job->note.blocks[index].length);
    }
    if (IsHere(outcomes[i])) {
      job->here.push_back(index);
    } else {
      Refuse(RefusalOf(outcomes[i]), 1);
    }
  }
  // What comes behind a block that is not here would be worth nothing.
  if (!IsHere(outcomes.back())) return Finish(std::move(job));
  FetchNext(std::move(job));
}

void Promoter::Finish(JobPtr job) {
  {
    MutexLock lock(&mutex_);
    --under_way_;
    const auto own = by_tenant_.find(job->note.tenant);
    if (--own->second == 0) by_tenant_.erase(own);
  }
  std::move(job->done)(std::move(job->here));
}

}  // namespace firnkv
