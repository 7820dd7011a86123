#include "server/node/drainer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/node/announcer.h"

namespace firnkv {
namespace {

// Keys are hashes and namespace ids random: their first bytes are as good. The
// same in every run, unlike what a hash table would use.
std::uint64_t HashOf(NamespaceId name_space, const BlockKey& key) {
  std::uint64_t of_space = 0;
  std::uint64_t of_key = 0;
  std::memcpy(&of_space, name_space.bytes.data(), sizeof(of_space));
  std::memcpy(&of_key, key.bytes.data(), sizeof(of_key));
  return of_space ^ of_key;
}

bool IsMoved(Outcome outcome) {
  return outcome == Outcome::kStored || outcome == Outcome::kAlreadyThere;
}

}  // namespace

std::string_view DrainStateName(DrainState state) {
  switch (state) {
    case DrainState::kServing:
      return "serving";
    case DrainState::kMoving:
      return "moving";
    case DrainState::kEnding:
      return "ending";
  }
  return "unknown";
}

Drainer::Drainer(const Options& options, const Parts& parts)
    : options_(options), parts_(parts) {}

Drainer::~Drainer() { Close(); }

void Drainer::Close() {
  End(Now());
  scope_.Close();
  std::vector<std::unique_ptr<Peer>> peers;
  {
    MutexLock lock(&mutex_);
    peers = std::move(peers_);
    peers_.clear();
  }
  // Their calls end here; what they answer is a task of a closed scope.
  peers.clear();
  AnswerWaiters(/*all=*/true);
}

void Drainer::After(absl::Duration delay, absl::AnyInvocable<void() &&> step) {
  parts_.executor->PostAt(Now() + delay, scope_.Wrap(std::move(step)));
}

bool Drainer::moving() const {
  MutexLock lock(&mutex_);
  return state_ == DrainState::kMoving;
}

absl::Status Drainer::StartMoving(std::uint64_t bytes, BootTime moves_end,
                                  BootTime deadline,
                                  absl::AnyInvocable<void() &&> done) {
  {
    MutexLock lock(&mutex_);
    if (state_ != DrainState::kServing) {
      return absl::FailedPreconditionError(
          StrCat("the node drains already: it is ", DrainStateName(state_)));
    }
    state_ = DrainState::kMoving;
    move_bytes_ = bytes;
    moves_end_ = moves_end;
    deadline_ = deadline;
    done_ = std::move(done);
  }
  parts_.executor->PostAt(moves_end, scope_.Wrap([this] {
    MutexLock lock(&mutex_);
    if (state_ != DrainState::kMoving) return;
    NoteTrouble("the time for moving was over");
    Finish(Outcome::kTimedOut);
  }));
  parts_.executor->Post(scope_.Wrap([this] { AskForPeers(1); }));
  return absl::OkStatus();
}

void Drainer::End(BootTime deadline) {
  MutexLock lock(&mutex_);
  deadline_ = deadline;
  // Who ends the node has no need to be told that it may.
  done_ = nullptr;
  if (state_ == DrainState::kMoving) {
    NoteTrouble("the node was told to end while it moved blocks");
    Finish(Outcome::kCancelled);
  }
  state_ = DrainState::kEnding;
}

// --- Who takes what.

void Drainer::AskForPeers(int tries) {
  absl::Duration timeout;
  {
    MutexLock lock(&mutex_);
    if (state_ != DrainState::kMoving) return;
    timeout = std::min(options_.list_timeout, moves_end_ - Now());
  }
  if (timeout <= absl::ZeroDuration()) return;
  parts_.catalog->StartListPeers(
      parts_.address->node, timeout,
      [this,
       tries](absl::StatusOr<std::vector<NodeCatalogClient::Peer>> answer) {
        parts_.executor->Post(
            scope_.Wrap([this, tries, answer = std::move(answer)] {
              OnPeers(tries, answer);
            }));
      });
}

void Drainer::OnPeers(
    int tries,
    const absl::StatusOr<std::vector<NodeCatalogClient::Peer>>& got) {
  if (!moving()) return;
  if (!got.ok()) {
    if (IsPassing(got.status()) && tries < options_.tries) {
      return After(options_.least_pause * tries,
                   [this, tries] { AskForPeers(tries + 1); });
    }
    return FinishWith(
        StrCat("the catalog did not say which other nodes there are: ",
               got.status().ToString()));
  }
  if (got->empty()) return FinishWith("no other node is alive");
  ScanMore(std::make_unique<Scan>(), *got);
}

// One step after the other, so that others come between; the order itself, of
// millions of blocks, keeps a thread for a second or two.
void Drainer::ScanMore(std::unique_ptr<Scan> scan,
                       std::vector<NodeCatalogClient::Peer> peers) {
  if (!moving()) return;
  const bool more = parts_.pool->EachWarm(
      &scan->cursor, options_.scan_blocks,
      [&scan](const SlotHeader& header, Warmth warmth) {
        DrainBlock block;
        block.id = HashOf(header.block.name_space, header.block.key);
        if (!header.place.parent.IsZero()) {
          block.parent = HashOf(header.block.name_space, header.place.parent);
        }
        block.warmth = warmth;
        block.bytes = static_cast<std::uint32_t>(header.length);
        block.position = header.place.position;
        scan->blocks.push_back(block);
        scan->places.push_back(scan->cursor);
      });
  if (!more) return PutInOrder(*scan, peers);
  parts_.executor->Post(scope_.Wrap(
      [this, scan = std::move(scan), peers = std::move(peers)]() mutable {
        ScanMore(std::move(scan), std::move(peers));
      }));
}

void Drainer::PutInOrder(const Scan& scan,
                         const std::vector<NodeCatalogClient::Peer>& peers) {
  std::vector<DrainPeer> loads;
  for (const NodeCatalogClient::Peer& peer : peers) {
    loads.push_back({.capacity_bytes = peer.dram_bytes,
                     .used_bytes = peer.dram_used_bytes,
                     .labels = peer.address.labels});
  }
  std::uint64_t budget = 0;
  {
    MutexLock lock(&mutex_);
    budget = move_bytes_;
  }
  const DrainOrder order =
      OrderDrain(scan.blocks, loads, parts_.address->labels, budget);
  std::vector<std::unique_ptr<Peer>> made(peers.size());
  for (const DrainStep& step : order.steps) {
    std::unique_ptr<Peer>& peer = made[step.peer];
    if (peer == nullptr) {
      peer = std::make_unique<Peer>();
      peer->control_address = peers[step.peer].address.control_address;
      peer->client = std::make_unique<NodePeerClient>(
          parts_.control->Connect(peer->control_address), parts_.credentials);
    }
    const DrainBlock& block = scan.blocks[step.block];
    peer->queue.push_back({.id = block.id,
                           .place = scan.places[step.block],
                           .bytes = block.bytes});
  }
  parts_.log->Write(Severity::kNotice, "moving",
                    {{"blocks", StrCat(order.steps.size())},
                     {"bytes", StrCat(order.bytes)},
                     {"peers", StrCat(peers.size())}});
  MutexLock lock(&mutex_);
  if (state_ != DrainState::kMoving) return;
  report_.planned_blocks = order.steps.size();
  report_.planned_bytes = order.bytes;
  for (std::unique_ptr<Peer>& peer : made) {
    if (peer != nullptr) peers_.push_back(std::move(peer));
  }
  if (peers_.empty()) {
    if (!scan.blocks.empty()) {
      NoteTrouble("no block fits, or no peer has memory");
    }
    return Finish(Outcome::kSkipped);
  }
  BeginPeers();
}

// --- One batch after the other, a peer.

void Drainer::BeginPeers() {
  for (; next_peer_ < peers_.size() && active_peers_ < options_.max_peers;
       ++next_peer_) {
    ++active_peers_;
    parts_.executor->Post(
        scope_.Wrap([this, peer = next_peer_] { SendNext(peer); }));
  }
  if (active_peers_ == 0) Finish(Outcome::kSkipped);
}

NodePeerClient::FetchCall Drainer::BuildCall(std::vector<Move>* items,
                                             std::vector<Move>* gone,
                                             std::vector<Move>* rest) const {
  NodePeerClient::FetchCall call;
  call.source = *parts_.address;
  std::vector<Move> taken;
  std::uint64_t bytes = 0;
  std::size_t at = 0;
  for (; at < items->size(); ++at) {
    const Move& item = (*items)[at];
    enum { kGone, kTaken, kFull } found = kGone;
    std::uint32_t cursor = item.place;
    parts_.pool->EachWarm(&cursor, 1, [&](const SlotHeader& header, Warmth) {
      const BlockId& block = header.block;
      if (HashOf(block.name_space, block.key) != item.id) return;
      const bool fits = block.name_space == call.name_space &&
                        bytes + header.length <= options_.batch_bytes;
      if (!call.copies.empty() && !fits) {
        found = kFull;
        return;
      }
      found = kTaken;
      call.name_space = block.name_space;
      bytes += header.length;
      call.copies.push_back({.key = block.key,
                             .place = header.place,
                             .length = header.length,
                             .clear_epoch = header.clear_epoch});
    });
    if (found == kFull) break;
    (found == kTaken ? &taken : gone)->push_back(item);
  }
  rest->assign(items->begin() + static_cast<std::ptrdiff_t>(at), items->end());
  *items = std::move(taken);
  return call;
}

void Drainer::SendNext(std::size_t number) {
  std::vector<Move> items;
  NodePeerClient* client = nullptr;
  absl::Duration timeout;
  {
    MutexLock lock(&mutex_);
    if (state_ != DrainState::kMoving) return;
    Peer& peer = *peers_[number];
    client = peer.client.get();
    const std::size_t count =
        std::min(peer.queue.size(), options_.batch_blocks);
    const auto end = peer.queue.begin() + static_cast<std::ptrdiff_t>(count);
    items.assign(peer.queue.begin(), end);
    peer.queue.erase(peer.queue.begin(), end);
    timeout = std::min(options_.call_timeout, moves_end_ - Now());
  }
  // Its own timer is about to say so.
  if (timeout <= absl::ZeroDuration()) return;
  std::vector<Move> gone;
  std::vector<Move> rest;
  const NodePeerClient::FetchCall call = BuildCall(&items, &gone, &rest);
  {
    MutexLock lock(&mutex_);
    if (state_ != DrainState::kMoving) return;
    Peer& peer = *peers_[number];
    peer.queue.insert(peer.queue.begin(), rest.begin(), rest.end());
    for (const Move& item : gone) Settle(item, Outcome::kMiss);
    if (items.empty()) return GoOn(number, absl::ZeroDuration());
  }
  counters_.calls.Add();
  client->StartFetchCopies(
      call, timeout,
      [this, number, items = std::move(items)](
          absl::StatusOr<NodePeerClient::Fetched> got) mutable {
        parts_.executor->Post(scope_.Wrap(
            [this, number, items = std::move(items), got = std::move(got)] {
              OnFetched(number, items, got);
            }));
      });
}

void Drainer::OnFetched(std::size_t number, const std::vector<Move>& items,
                        const absl::StatusOr<NodePeerClient::Fetched>& got) {
  MutexLock lock(&mutex_);
  if (state_ != DrainState::kMoving) return;
  Peer& peer = *peers_[number];
  GoOn(number, got.ok() ? TakeOutcomes(&peer, items, *got)
                        : TakeFailure(&peer, items, got.status()));
}

absl::Duration Drainer::TakeFailure(Peer* peer, const std::vector<Move>& items,
                                    const absl::Status& why) {
  counters_.failed_calls.Add();
  NoteTrouble(StrCat("node at ", peer->control_address, ": ", why.ToString()));
  peer->queue.insert(peer->queue.begin(), items.begin(), items.end());
  ++peer->failures;
  // One that did not answer in time will hardly do so the next time, and each
  // try costs all the time that there is.
  const bool once_more = IsPassing(why) && !absl::IsDeadlineExceeded(why) &&
                         peer->failures < options_.tries;
  if (once_more) return options_.least_pause * peer->failures;
  const Outcome outcome = absl::IsDeadlineExceeded(why) ? Outcome::kTimedOut
                                                        : Outcome::kUnavailable;
  for (const Move& item : peer->queue) Settle(item, outcome);
  peer->queue.clear();
  return absl::ZeroDuration();
}

absl::Duration Drainer::TakeOutcomes(Peer* peer, const std::vector<Move>& items,
                                     const NodePeerClient::Fetched& got) {
  peer->failures = 0;
  // It has room for one after the other.
  const bool some =
      std::any_of(got.outcomes.begin(), got.outcomes.end(), IsMoved);
  if (some) peer->congested = 0;
  const bool may_repeat = peer->congested + 1 < options_.tries;
  std::vector<Move> again;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (got.outcomes[i] == Outcome::kCongested && may_repeat) {
      again.push_back(items[i]);
    } else {
      Settle(items[i], got.outcomes[i]);
    }
  }
  if (again.empty()) {
    peer->congested = 0;
    return absl::ZeroDuration();
  }
  ++peer->congested;
  peer->queue.insert(peer->queue.begin(), again.begin(), again.end());
  return std::clamp(got.retry_after, options_.least_pause,
                    options_.longest_pause);
}

void Drainer::GoOn(std::size_t number, absl::Duration pause) {
  if (!peers_[number]->queue.empty()) {
    return After(pause, [this, number] { SendNext(number); });
  }
  --active_peers_;
  BeginPeers();
}

// --- What came of it.

void Drainer::Settle(const Move& item, Outcome outcome) {
  ++report_.outcomes[static_cast<std::size_t>(outcome)];
  if (!IsMoved(outcome)) {
    ++report_.left_blocks;
    counters_.left_blocks.Add();
    return;
  }
  ++report_.moved_blocks;
  report_.moved_bytes += item.bytes;
  counters_.moved_blocks.Add();
  counters_.moved_bytes.Add(item.bytes);
}

// The first one is the cause of those that follow.
void Drainer::NoteTrouble(const std::string& trouble) {
  if (report_.trouble.empty()) report_.trouble = trouble;
}

void Drainer::FinishWith(const std::string& trouble) {
  MutexLock lock(&mutex_);
  if (state_ != DrainState::kMoving) return;
  NoteTrouble(trouble);
  Finish(Outcome::kSkipped);
}

void Drainer::Finish(Outcome outcome) {
  const std::uint64_t rest =
      report_.planned_blocks - report_.moved_blocks - report_.left_blocks;
  report_.left_blocks += rest;
  report_.outcomes[static_cast<std::size_t>(outcome)] += rest;
  counters_.left_blocks.Add(rest);
  state_ = DrainState::kEnding;
  parts_.log->Write(Severity::kNotice, "moved",
                    {{"blocks", StrCat(report_.moved_blocks)},
                     {"bytes", StrCat(report_.moved_bytes)},
                     {"left_blocks", StrCat(report_.left_blocks)},
                     {"trouble", report_.trouble}});
  parts_.executor->Post(scope_.Wrap([this] { AnswerWaiters(/*all=*/true); }));
  if (done_ == nullptr) return;
  parts_.executor->Post(scope_.Wrap(std::move(done_)));
  done_ = nullptr;
}

// --- Reports.

DrainReport Drainer::ReportNow() const {
  DrainReport report = report_;
  report.state = state_;
  if (state_ != DrainState::kServing) {
    report.time_left = std::max(absl::ZeroDuration(), deadline_ - Now());
  }
  return report;
}

DrainReport Drainer::report() const {
  MutexLock lock(&mutex_);
  return ReportNow();
}

void Drainer::AwaitReport(BootTime until,
                          absl::AnyInvocable<void(DrainReport) &&> done) {
  DrainReport report;
  {
    MutexLock lock(&mutex_);
    report = ReportNow();
    if (state_ == DrainState::kMoving && until > Now() &&
        waiters_.size() < options_.max_reports) {
      waiters_.push_back({until, std::move(done)});
      parts_.executor->PostAt(
          until, scope_.Wrap([this] { AnswerWaiters(/*all=*/false); }));
      return;
    }
  }
  std::move(done)(std::move(report));
}

void Drainer::AnswerWaiters(bool all) {
  std::vector<Waiter> due;
  DrainReport report;
  {
    MutexLock lock(&mutex_);
    const BootTime now = Now();
    std::vector<Waiter> left;
    for (Waiter& one : waiters_) {
      (all || one.until <= now ? due : left).push_back(std::move(one));
    }
    waiters_ = std::move(left);
    report = ReportNow();
  }
  for (Waiter& one : due) std::move(one.done)(report);
}

}  // namespace firnkv
