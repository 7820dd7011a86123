#include "server/node/catalog_link.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// The catalog's words for rule A6. ABORTED: a later run has taken this one's
// place. ALREADY_EXISTS: the lease of another run still runs, and it is not the
// one that was named as the predecessor.
bool IsSuperseded(const absl::Status& status) {
  return absl::IsAborted(status);
}
bool IsLiveElsewhere(const absl::Status& status) {
  return absl::IsAlreadyExists(status);
}

}  // namespace

std::string_view LinkStateName(CatalogLink::State state) {
  switch (state) {
    case CatalogLink::State::kConnecting:
      return "connecting";
    case CatalogLink::State::kRegistering:
    case CatalogLink::State::kRefreshing:
      return "registering";
    case CatalogLink::State::kRegistered:
      return "registered";
    case CatalogLink::State::kAway:
      return "away";
    case CatalogLink::State::kRefused:
      return "refused";
    case CatalogLink::State::kSuperseded:
      return "superseded";
    case CatalogLink::State::kLeft:
      return "left";
  }
  return "unknown";
}

CatalogLink::CatalogLink(const Options& options, const Parts& parts,
                         absl::AnyInvocable<void()> on_superseded)
    : options_(options),
      parts_(parts),
      attempted_before_(parts.state->memory().attempted_epoch),
      registered_before_(parts.state->memory().registered_epoch),
      on_superseded_(std::move(on_superseded)),
      backoff_(options.first_backoff, options.longest_backoff, parts.random),
      heartbeat_backoff_(options.first_backoff, options.longest_backoff,
                         parts.random),
      drain_(parts.pool),
      announcer_(options.announcer,
                 {.executor = parts.executor,
                  .random = parts.random,
                  .catalog = parts.catalog,
                  .log = parts.announcements,
                  .pool = parts.pool,
                  .logger = parts.log},
                 [this](absl::Status why) {
                   std::uint64_t term = 0;
                   {
                     MutexLock lock(&mutex_);
                     term = term_;
                   }
                   Fail(term, why);
                 }) {}

CatalogLink::~CatalogLink() { Stop(); }

void CatalogLink::Stop() {
  announcer_.Close();
  scope_.Close();
  MutexLock lock(&mutex_);
  ++term_;
}

void CatalogLink::Start() {
  std::uint64_t term = 0;
  {
    MutexLock lock(&mutex_);
    term = ++term_;
  }
  parts_.executor->Post(scope_.Wrap([this, term] { Connect(term); }));
}

void CatalogLink::After(absl::Duration delay,
                        absl::AnyInvocable<void() &&> step) {
  parts_.executor->PostAt(parts_.executor->clock()->Now() + delay,
                          scope_.Wrap(std::move(step)));
}

absl::Status CatalogLink::Remember(
    absl::AnyInvocable<void(NodeMemory*)> change) {
  NodeMemory memory = parts_.state->memory();
  change(&memory);
  if (memory == parts_.state->memory()) return absl::OkStatus();
  // Before it is saved: what was outdated stays so whatever the disk says.
  parts_.credentials->Outdate(memory.seen.credentials);
  return Annotate(parts_.state->Save(memory), "node state");
}

// A node that has never met its cluster asks which one it is.
void CatalogLink::Connect(std::uint64_t term) {
  if (!parts_.credentials->cluster().IsZero()) return Register(term);
  parts_.catalog->StartConnect(
      options_.call_timeout, [this, term](absl::StatusOr<ClusterId> cluster) {
        parts_.executor->Post(scope_.Wrap([this, term, cluster] {
          absl::Status status = cluster.status();
          if (status.ok()) {
            status = Remember(
                [&](NodeMemory* memory) { memory->cluster = *cluster; });
          }
          if (!status.ok()) return Fail(term, status);
          parts_.credentials->SetCluster(*cluster);
          Register(term);
        }));
      });
}

NodeEpoch CatalogLink::Predecessor() const {
  const bool other = refusals_ % 2 == 1;
  if (attempted_before_ == NodeEpoch::kNone || other) {
    return registered_before_;
  }
  return attempted_before_;
}

void CatalogLink::Register(std::uint64_t term) {
  // Written down before it is sent: the next run must know whom to name even if
  // this one dies before the answer.
  const absl::Status status = Remember([this](NodeMemory* memory) {
    memory->attempted_epoch = options_.address->epoch;
  });
  if (!status.ok()) return Fail(term, status);

  NodeCatalogClient::RegisterCall call;
  call.address = *options_.address;
  call.dram_bytes = parts_.pool->Snapshot().target_bytes;
  call.seen = parts_.state->memory().seen;
  call.version = options_.version;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    if (!registered_once_) state_ = State::kRegistering;
    call.predecessor = Predecessor();
  }
  const BootTime asked_at = parts_.executor->clock()->Now();
  parts_.catalog->StartRegister(
      call, options_.call_timeout,
      [this, term,
       asked_at](absl::StatusOr<NodeCatalogClient::Registered> answer) {
        parts_.executor->Post(
            scope_.Wrap([this, term, asked_at, answer = std::move(answer)] {
              OnRegistered(term, asked_at, answer);
            }));
      });
}

absl::Status CatalogLink::Accept(const NodeCatalogClient::Registered& answer) {
  if (answer.cluster != parts_.credentials->cluster()) {
    return absl::FailedPreconditionError(
        StrCat("the catalog is of cluster ", ToHex(answer.cluster),
               ", this node of ", ToHex(parts_.credentials->cluster())));
  }
  RETURN_IF_ERROR(
      CheckIncarnation(parts_.state->memory().seen, answer.incarnation));
  return Remember([&](NodeMemory* memory) {
    memory->registered_epoch = options_.address->epoch;
    memory->seen = answer.incarnation;
  });
}

void CatalogLink::OnRegistered(
    std::uint64_t term, BootTime asked_at,
    absl::StatusOr<NodeCatalogClient::Registered> answer) {
  // What an abandoned attempt was told is not remembered: it may be of another
  // copy of the catalog than the one that this node is a member of now.
  if (!IsCurrent(term)) return;
  absl::Status status = answer.status();
  if (status.ok()) status = Accept(*answer);
  if (!status.ok()) return Fail(term, status);

  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    state_ = State::kRefreshing;
    registered_once_ = true;
    registration_ = answer->registration;
    lease_ = answer->lease;
    lease_until_ = asked_at + HolderTerm(answer->lease);
    kept_ = answer->kept;
    namespace_cursor_ = answer->namespace_cursor;
    removals_done_ = 0;
    drained_cursor_ = 0;
    heartbeat_backoff_.Reset();
    drain_.Restart();
  }
  counters_.registrations.Add();
  Refresh(term, parts_.namespaces->BeginRefresh());
}

void CatalogLink::Refresh(std::uint64_t term, std::vector<NamespaceId> left) {
  if (left.empty()) return OnRefreshed(term);
  std::vector<NamespaceId> asked;
  while (!left.empty() && asked.size() < 1024) {
    asked.push_back(left.back());
    left.pop_back();
  }
  parts_.catalog->StartDescribeNamespaces(
      asked, options_.call_timeout,
      [this, term, asked, left = std::move(left)](
          absl::StatusOr<std::vector<NamespaceFacts>> facts) mutable {
        if (!facts.ok()) return Fail(term, facts.status());
        absl::flat_hash_set<NamespaceId> gone(asked.begin(), asked.end());
        for (const NamespaceFacts& one : *facts) gone.erase(one.name_space);
        for (const NamespaceId& one : gone) parts_.namespaces->Forget(one);
        parts_.namespaces->Learn(*facts);
        drain_.Note(*facts);
        parts_.executor->Post(
            scope_.Wrap([this, term, left = std::move(left)]() mutable {
              Refresh(term, std::move(left));
            }));
      });
}

void CatalogLink::OnRefreshed(std::uint64_t term) {
  Announcer::Registration registration;
  std::optional<NodeCatalogClient::Registered::Kept> kept;
  absl::Duration beat;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    drain_.Close(namespace_cursor_);
    kept = kept_;
    beat = lease_until_ - HolderTerm(lease_) + lease_ / 4 -
           parts_.executor->clock()->Now();
    state_ = State::kRegistered;
    last_failure_ = absl::OkStatus();
    backoff_.Reset();
    registration = {options_.address->node, options_.address->epoch,
                    registration_};
    Believe();
  }
  announcer_.Begin(registration, kept);
  // Not earlier: a heartbeat confirms that the changes up to its cursor are
  // known here. A refresh that takes longer than the lease ends with it.
  After(beat, [this, term] { KeepAlive(term); });
  parts_.log->Write(Severity::kNotice, "registered",
                    {{"registration", ToHex(registration.id)},
                     {"kept", kept.has_value() ? "yes" : "no"}});
}

void CatalogLink::Believe() {
  if (state_ == State::kRegistered) {
    parts_.namespaces->SetMembership(lease_until_);
  }
}

void CatalogLink::KeepAlive(std::uint64_t term) {
  const PoolSnapshot pool = parts_.pool->Snapshot();
  const std::uint64_t drained = drain_.Drained();
  NodeCatalogClient::KeepAliveCall call;
  call.seen = parts_.state->memory().seen;
  absl::Duration timeout;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    call.drained_cursor = drained_cursor_ = drained;
    call.node = options_.address->node;
    call.epoch = options_.address->epoch;
    call.registration = registration_;
    call.namespace_cursor = namespace_cursor_;
    call.removals_done = removals_done_;
    // An answer that comes after our lease has ended is of no use.
    timeout = std::min({options_.call_timeout, lease_ / 4,
                        lease_until_ - parts_.executor->clock()->Now()});
    timeout = std::max(timeout, absl::Milliseconds(1));
  }
  call.applied = announcer_.applied(call.registration);
  call.dram_used_bytes = pool.resident_bytes;
  call.dram_bytes = pool.target_bytes;
  call.blocks = pool.blocks;
  const BootTime asked_at = parts_.executor->clock()->Now();
  parts_.catalog->StartKeepAlive(
      call, timeout,
      [this, term,
       asked_at](absl::StatusOr<NodeCatalogClient::KeptAlive> answer) {
        parts_.executor->Post(
            scope_.Wrap([this, term, asked_at, answer = std::move(answer)] {
              OnKeptAlive(term, asked_at, answer);
            }));
      });
}

void CatalogLink::OnKeptAlive(
    std::uint64_t term, BootTime asked_at,
    absl::StatusOr<NodeCatalogClient::KeptAlive> answer) {
  if (!IsCurrent(term)) return;  // As in OnRegistered.
  if (!answer.ok()) {
    if (!IsPassing(answer.status())) return Fail(term, answer.status());
    return BeatAgain(term, answer.status());
  }

  const absl::Status status =
      CheckIncarnation(parts_.state->memory().seen, answer->incarnation);
  if (!status.ok()) return Fail(term, status);
  const absl::Status saved =
      Remember([&](NodeMemory* memory) { memory->seen = answer->incarnation; });
  if (!saved.ok()) {
    // Rule A9: who may forget what it has seen, should it die now, goes on no
    // longer than its lease.
    parts_.log->Write(Severity::kWarning, "node_state_not_saved",
                      {{"why", saved.ToString()}});
    return BeatAgain(term, saved);
  }
  // Clears first: membership is believed only by who has heard of them.
  parts_.namespaces->Learn(answer->changed);
  ExecuteRemovals(answer->removals);
  BootTime next;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    drain_.Note(answer->changed);
    drain_.Close(answer->namespace_cursor);
    lease_ = answer->lease;
    lease_until_ = asked_at + HolderTerm(answer->lease);
    removals_done_ = answer->removals_number;
    namespace_cursor_ = answer->namespace_cursor;
    heartbeat_backoff_.Reset();
    Believe();
    next = parts_.executor->clock()->Now();
    // What is done is said at once: somebody may be waiting for it.
    const bool news = !answer->removals.empty() || !answer->changed.empty();
    if (!news) next = next + lease_ / 4;
  }
  AwaitBeat(term, next);
}

void CatalogLink::BeatAgain(std::uint64_t term, const absl::Status& why) {
  counters_.failed_heartbeats.Add();
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    const absl::Duration pause = heartbeat_backoff_.Next();
    if (parts_.executor->clock()->Now() + pause < lease_until_) {
      return After(pause, [this, term] { KeepAlive(term); });
    }
  }
  counters_.lost_leases.Add();
  Fail(term, Annotate(why, "membership lease lost"));
}

void CatalogLink::AwaitBeat(std::uint64_t term, BootTime at) {
  const std::uint64_t drained = drain_.Drained();
  const BootTime now = parts_.executor->clock()->Now();
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    if (drained != drained_cursor_) at = now;
  }
  if (!drain_.pending() || at - now <= options_.clear_look) {
    return After(at - now, [this, term] { KeepAlive(term); });
  }
  After(options_.clear_look, [this, term, at] { AwaitBeat(term, at); });
}

void CatalogLink::ExecuteRemovals(
    const std::vector<NodeCatalogClient::Removal>& removals) {
  for (const NodeCatalogClient::Removal& one : removals) {
    counters_.removals.Add();
    if (one.generation == Generation::kNone) {
      parts_.pool->Remove(one.block.name_space, {&one.block.key, 1});
    } else {
      parts_.pool->Drop(one.block, one.generation);
    }
  }
}

void CatalogLink::Fail(std::uint64_t term, const absl::Status& why) {
  std::uint64_t next = 0;
  absl::Duration pause;
  bool superseded = false;
  bool say = false;
  {
    MutexLock lock(&mutex_);
    // A run that has left stays so, whatever was on its way.
    if (term != term_ || state_ == State::kLeft) return;
    next = ++term_;
    // An outage is said once, and again while it lasts, not with every try.
    const BootTime now = parts_.executor->clock()->Now();
    say = why.code() != last_failure_.code() ||
          now - said_failure_at_ >= options_.say_again;
    if (say) said_failure_at_ = now;
    last_failure_ = why;
    superseded = IsSuperseded(why);
    if (superseded) {
      state_ = State::kSuperseded;
    } else if (!IsPassing(why) && !absl::IsNotFound(why) &&
               !(registered_once_ && state_ == State::kRegistered)) {
      state_ = State::kRefused;
    } else if (registered_once_) {
      state_ = State::kAway;
    }
    if (IsLiveElsewhere(why)) ++refusals_;
    pause = backoff_.Next();
    if (state_ == State::kRefused && !IsLiveElsewhere(why)) {
      pause = options_.refused_pause;
    }
    parts_.namespaces->SetMembership(BootTime());
  }
  announcer_.End();
  if (superseded) {
    parts_.log->Write(Severity::kError, "superseded",
                      {{"why", why.ToString()}});
    parts_.executor->Post(scope_.Wrap([this] { on_superseded_(); }));
    return;
  }
  if (say) {
    parts_.log->Write(Severity::kWarning, "catalog_link_lost",
                      {{"why", why.ToString()}});
  }
  After(pause, [this, next] { Connect(next); });
}

bool CatalogLink::IsCurrent(std::uint64_t term) const {
  MutexLock lock(&mutex_);
  return term == term_;
}

CatalogLink::State CatalogLink::state() const {
  MutexLock lock(&mutex_);
  return state_;
}

BootTime CatalogLink::believed_until() const {
  MutexLock lock(&mutex_);
  return state_ == State::kRegistered ? lease_until_ : BootTime();
}

absl::Status CatalogLink::last_failure() const {
  MutexLock lock(&mutex_);
  return last_failure_;
}

bool CatalogLink::settled() const { return announcer_.complete(); }

}  // namespace firnkv
