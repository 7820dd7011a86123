#include "server/node/copy_fetcher.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "proto/base/check.h"
#include "proto/base/token.h"
#include "server/node/scoped_answer.h"

namespace firnkv {
namespace {

// Two, so that a promotion's bytes do not stand before a drain's.
constexpr int kConnectionsAPeer = 2;
constexpr std::size_t kMaxConnections = 256;
// Peers of which something is remembered; those that are well are forgotten.
constexpr std::size_t kPeersKept = 1024;

std::vector<Outcome> AllOf(const CopyOrder& order, Outcome outcome) {
  return std::vector<Outcome>(order.blocks.size(), outcome);
}

ClearEpoch HighestOf(const CopyOrder& order) {
  ClearEpoch highest = ClearEpoch::kUnknown;
  for (const CopyOrder::Block& block : order.blocks) {
    highest = std::max(highest, block.clear_epoch);
  }
  return highest;
}

}  // namespace

CopyFetcher::CopyFetcher(const Options& options, const Parts& parts)
    : options_(options),
      parts_(parts),
      transport_(parts.seams,
                 {.connections_per_node = kConnectionsAPeer,
                  .connect_timeout = options.connect_timeout,
                  .max_connections = kMaxConnections},
                 [this] { return Credentials(); }) {}

CopyFetcher::~CopyFetcher() { Close(); }

// --- Who comes in.

void CopyFetcher::Start(CopyOrder order, CopyDone done) {
  const NamespaceCaller caller = order.caller;
  const NamespaceId name_space = order.name_space;
  const ClearEpoch seen = HighestOf(order);
  const BootTime deadline = order.deadline;
  std::uint64_t serial = 0;
  Outcome refused = Outcome::kStored;
  {
    MutexLock lock(&mutex_);
    refused = order.blocks.empty() ? Outcome::kUnavailable : Admit(order);
    if (refused == Outcome::kStored) {
      serial = next_serial_++;
      blocks_ += order.blocks.size();
      Entry& entry = runs_[serial];
      // Shared: see CopyRun.
      entry.run = std::make_shared<CopyRun>(
          options_.run,
          CopyRun::Parts{
              .pool = parts_.pool,
              .transport = &transport_,
              .scope = &scope_,
              .clock = parts_.seams->clock,
              .on_over =
                  [this](CopyRun* run, const std::vector<Outcome>& outcomes) {
                    OnOver(run, outcomes);
                  },
              .on_step_end =
                  [this](CopyRun* run, CopyRun::StepEnd end) {
                    OnStepEnd(run, end);
                  }},
          serial, std::move(order), std::move(done));
      entry.timer = parts_.seams->executor->PostAt(
          // Weak: it may be over long before.
          deadline, scope_.Wrap([weak = std::weak_ptr<CopyRun>(entry.run)] {
            if (const auto run = weak.lock()) run->End(Outcome::kTimedOut);
          }));
    }
  }
  if (refused != Outcome::kStored) {
    std::vector<Outcome> outcomes = AllOf(order, refused);
    Count(order, outcomes);
    return std::move(done)(std::move(outcomes));
  }
  parts_.namespaces->Find(
      caller, name_space, seen, deadline,
      ScopedAnswer<NamespaceCache::Answer>(
          &scope_, [this, serial](const NamespaceCache::Answer& answer) {
            OnNamespace(serial, answer);
          }));
}

Outcome CopyFetcher::Admit(const CopyOrder& order) {
  if (stopped_) return Outcome::kUnavailable;
  if (IsPaused(order)) {
    counters_.paused.Add();
    return Outcome::kUnavailable;
  }
  const bool full = runs_.size() >= options_.max_runs ||
                    blocks_ + order.blocks.size() > options_.max_blocks;
  return full ? Outcome::kCongested : Outcome::kStored;
}

void CopyFetcher::OnNamespace(std::uint64_t serial,
                              const NamespaceCache::Answer& answer) {
  std::shared_ptr<CopyRun> run;
  {
    MutexLock lock(&mutex_);
    const auto it = runs_.find(serial);
    if (it == runs_.end()) return;
    run = it->second.run;
  }
  if (const auto* const outcome = std::get_if<Outcome>(&answer)) {
    // Whose it is not does not learn that it is there.
    return run->End(*outcome == Outcome::kTimedOut ? Outcome::kTimedOut
                                                   : Outcome::kUnavailable);
  }
  run->Learn(std::get<PoolNamespace>(answer));
  Queue(run.get());
  Pump();
}

// --- Whose turn it is.

void CopyFetcher::Queue(CopyRun* run) {
  const std::optional<std::uint64_t> bytes = run->PlanStep();
  if (!bytes) return;
  MutexLock lock(&mutex_);
  const auto it = runs_.find(run->serial());
  if (it == runs_.end() || it->second.over) return;
  it->second.step_bytes = *bytes;
  const bool drain = run->order().traffic == TrafficClass::kRebuild;
  (drain ? first_ : second_).push_back(run->serial());
}

void CopyFetcher::Pump() {
  for (;;) {
    std::shared_ptr<CopyRun> run;
    bool paused = false;
    {
      MutexLock lock(&mutex_);
      run = TakeNext(&paused);
    }
    if (run == nullptr) return;
    if (paused) {
      run->End(Outcome::kUnavailable);
    } else {
      run->StartStep();
    }
  }
}

std::shared_ptr<CopyRun> CopyFetcher::TakeNext(bool* paused) {
  for (std::deque<std::uint64_t>* const queue : {&first_, &second_}) {
    for (auto it = queue->begin(); it != queue->end(); ++it) {
      Entry& entry = runs_.at(*it);
      if (IsPaused(entry.run->order())) {
        *paused = true;
        counters_.paused.Add();
        queue->erase(it);
        return entry.run;
      }
      Peer& peer = PeerOf(entry.run->order());
      const std::uint64_t bytes = entry.step_bytes;
      // One that is larger than a bound goes alone.
      const bool fits =
          (bytes_ == 0 || bytes_ + bytes <= options_.max_bytes) &&
          (peer.bytes == 0 || peer.bytes + bytes <= options_.max_bytes_a_peer);
      if (!fits) continue;
      bytes_ += bytes;
      peer.bytes += bytes;
      entry.stepping = true;
      queue->erase(it);
      return entry.run;
    }
  }
  return nullptr;
}

void CopyFetcher::PumpLater() {
  // A task: a run that ends inside its start would start the next one on top
  // of it.
  parts_.seams->executor->Post(scope_.Wrap([this] { Pump(); }));
}

// --- How it went.

void CopyFetcher::OnOver(CopyRun* run, const std::vector<Outcome>& outcomes) {
  Count(run->order(), outcomes);
  std::shared_ptr<CopyRun> gone;
  {
    MutexLock lock(&mutex_);
    const auto it = runs_.find(run->serial());
    if (it == runs_.end()) return;
    it->second.over = true;
    parts_.seams->executor->Cancel(it->second.timer);
    std::erase(first_, run->serial());
    std::erase(second_, run->serial());
    gone = ForgetIfDone(run->serial());
  }
}

void CopyFetcher::OnStepEnd(CopyRun* run, CopyRun::StepEnd end) {
  const BootTime now = parts_.seams->clock->Now();
  std::shared_ptr<CopyRun> kept;
  {
    MutexLock lock(&mutex_);
    Entry& entry = runs_.at(run->serial());
    Peer& peer = PeerOf(run->order());
    CHECK(entry.stepping && bytes_ >= entry.step_bytes);
    entry.stepping = false;
    bytes_ -= entry.step_bytes;
    peer.bytes -= entry.step_bytes;
    if (end == CopyRun::StepEnd::kServed) {
      peer.pause.Reset();
    } else if (end == CopyRun::StepEnd::kFailed) {
      peer.paused_until = now + peer.pause.Next();
    }
    ForgetPeers(now);
    kept = ForgetIfDone(run->serial());
    if (kept == nullptr) kept = entry.run;
  }
  Queue(kept.get());
  PumpLater();
}

std::shared_ptr<CopyRun> CopyFetcher::ForgetIfDone(std::uint64_t serial) {
  const auto it = runs_.find(serial);
  if (!it->second.over || it->second.stepping) return nullptr;
  std::shared_ptr<CopyRun> run = std::move(it->second.run);
  blocks_ -= run->order().blocks.size();
  runs_.erase(it);
  return run;
}

// --- Peers.

CopyFetcher::Peer& CopyFetcher::PeerOf(const CopyOrder& order) {
  const PeerId id(order.source.node, order.source.epoch);
  const auto it = peers_.find(id);
  if (it != peers_.end()) return it->second;
  return peers_
      .emplace(id, Peer(RetryDelay(options_.first_pause, options_.longest_pause,
                                   parts_.seams->random)))
      .first->second;
}

bool CopyFetcher::IsPaused(const CopyOrder& order) const {
  const auto it = peers_.find({order.source.node, order.source.epoch});
  return it != peers_.end() &&
         parts_.seams->clock->Now() < it->second.paused_until;
}

void CopyFetcher::ForgetPeers(BootTime now) {
  if (peers_.size() <= kPeersKept) return;
  std::erase_if(peers_, [now](const auto& one) {
    return one.second.bytes == 0 && one.second.paused_until <= now;
  });
}

StreamCredentials CopyFetcher::Credentials() {
  const BootTime now = parts_.seams->clock->Now();
  MutexLock lock(&mutex_);
  if (credentials_.token.empty() || now >= renew_at_) {
    credentials_.cluster = parts_.credentials->cluster();
    credentials_.token = parts_.credentials->NodeToken();
    renew_at_ = now + kTokenLife / 2;
  }
  return credentials_;
}

// --- The end.

void CopyFetcher::StopTaking() {
  MutexLock lock(&mutex_);
  stopped_ = true;
}

void CopyFetcher::Close() {
  StopTaking();
  scope_.Close();
  // Runs that are under way end with what they wait for, the others here.
  transport_.Close();
  std::vector<std::shared_ptr<CopyRun>> runs;
  {
    MutexLock lock(&mutex_);
    for (const auto& [serial, entry] : runs_) runs.push_back(entry.run);
  }
  for (const auto& run : runs) run->End(Outcome::kUnavailable);
}

std::uint64_t CopyFetcher::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

std::size_t CopyFetcher::runs() const {
  MutexLock lock(&mutex_);
  return runs_.size();
}

void CopyFetcher::Count(const CopyOrder& order,
                        const std::vector<Outcome>& outcomes) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    counters_.blocks[static_cast<std::size_t>(outcomes[i])].Add();
    if (outcomes[i] == Outcome::kStored) {
      counters_.bytes.Add(order.blocks[i].length);
    }
  }
}

}  // namespace firnkv
