// A read's half at other nodes: locate, choose, fetch over the stream.

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "client/clear_epochs.h"
#include "client/counters.h"
#include "client/peer_probes.h"
#include "client/read_operation.h"
#include "client/retry.h"
#include "client/router.h"
#include "proto/base/bytes.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {

// --- Locate.

void ReadOperation::Locate(const Indexes& indexes) {
  CatalogClient::LocateCall call;
  call.name_space = request_.name_space.id;
  call.leading_run = leading_;
  {
    MutexLock lock(&mutex_);
    // What Advance started before may have ended the read: the request's
    // blocks are the caller's again then.
    if (over_) return;
    for (const std::size_t i : indexes) {
      call.keys.push_back(request_.blocks[i].key);
      call.anchors.push_back(request_.blocks[i].anchor);
      --blocks_[i].locates_left;
    }
    call.clear_epoch = clear_epoch_;
  }
  parts_.catalog->StartLocate(
      Context(), call,
      [self = shared_from_this(), indexes,
       asked_at = parts_.seams->clock->Now()](
          const absl::StatusOr<CatalogClient::LocateAnswer>& answer) {
        self->OnLocated(indexes, asked_at, answer);
      });
}

void ReadOperation::OnLocated(
    const Indexes& indexes, BootTime asked_at,
    const absl::StatusOr<CatalogClient::LocateAnswer>& answer) {
  const absl::Duration took = parts_.seams->clock->Now() - asked_at;
  parts_.counters->locate.Add(took);
  if (answer.ok()) {
    parts_.router->Learn(answer->nodes);
    parts_.epochs->Learn(request_.name_space.id, answer->clear_epoch);
  } else {
    parts_.counters->locate_failures.Add();
  }
  const Session::Welcome welcome = parts_.session->welcome();
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    locate_ += took;
    for (std::size_t n = 0; n < indexes.size(); ++n) {
      Block& block = blocks_[indexes[n]];
      if (answer.ok()) {
        TakeLocations(indexes[n], asked_at, answer->found[n], welcome);
      } else if (OutcomeOf(answer.status()) == Outcome::kDenied) {
        EndBlock(&block, Outcome::kDenied);
      } else {
        // The catalog is away: what the local node said stands.
        EndBlock(&block, block.outcome);
      }
    }
  }
  Advance();
}

void ReadOperation::TakeLocations(
    std::size_t index, BootTime asked_at,
    const CatalogClient::LocateAnswer::Found& found,
    const Session::Welcome& welcome) {
  Block& block = blocks_[index];
  if (found.outcome == Outcome::kMiss) {
    // Being written here is more than nobody's.
    const bool written = block.outcome == Outcome::kBeingWritten;
    return EndBlock(&block, written ? block.outcome : Outcome::kMiss);
  }
  if (found.outcome != Outcome::kHit) return EndBlock(&block, found.outcome);
  Locations elsewhere;
  bool here = false;
  for (const KnownLocation& location : found.locations) {
    const bool local = welcome != nullptr && location.node == welcome->node &&
                       location.epoch == welcome->epoch;
    here = here || local;
    if (!local) elsewhere.push_back(location);
  }
  parts_.locations->Learn(IdOf(index), elsewhere, asked_at);
  if (here && !block.asked) {
    block.step = Step::kAsk;
  } else if (elsewhere.empty()) {
    // Only the local node is said to have it, and that says no.
    EndBlock(&block, block.outcome);
  } else {
    block.locations = std::move(elsewhere);
    block.tried.clear();
    block.step = Step::kLocated;
  }
}

// --- Choose.

void ReadOperation::StartFetches(const Indexes& indexes) {
  std::vector<Router::Wanted> wanted;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    for (const std::size_t i : indexes) {
      wanted.push_back(
          {.locations = blocks_[i].locations, .excluded = blocks_[i].tried});
    }
  }
  const std::vector<std::optional<NodeAddress>> picked =
      parts_.router->Pick(wanted);
  // Not at the price of this read's time.
  for (const NodeAddress& failed : parts_.router->TakeProbes(wanted)) {
    parts_.probes->Start(failed, IdOf(indexes.front()));
  }
  std::map<NodeId, std::pair<NodeAddress, Indexes>> nodes;
  Indexes nowhere;
  for (std::size_t n = 0; n < indexes.size(); ++n) {
    if (!picked[n]) {
      nowhere.push_back(indexes[n]);
      continue;
    }
    auto& [address, blocks] = nodes[picked[n]->node];
    address = *picked[n];
    blocks.push_back(indexes[n]);
  }
  const auto streams =
      static_cast<std::size_t>(parts_.options->streams_per_node);
  for (auto& [node, entry] : nodes) {
    auto& [address, blocks] = entry;
    // For all parts together. It may have failed since it was picked.
    if (!parts_.router->Begin(node, blocks.size())) {
      nowhere.insert(nowhere.end(), blocks.begin(), blocks.end());
      continue;
    }
    const std::size_t part =
        std::max(kLeastBlocksAFetch, DivideUp(blocks.size(), streams));
    for (std::size_t at = 0; at < blocks.size(); at += part) {
      const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(at);
      const auto size = std::min(part, blocks.size() - at);
      StartFetch(address,
                 Indexes(begin, begin + static_cast<std::ptrdiff_t>(size)));
    }
  }
  if (nowhere.empty()) return;
  parts_.counters->breaker_skips.Add(nowhere.size());
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    for (const std::size_t i : nowhere) {
      Block& block = blocks_[i];
      parts_.locations->Forget(IdOf(i));
      if (block.asked) {
        EndBlock(&block, Outcome::kUnavailable);
      } else {
        block.step = Step::kAsk;
      }
    }
  }
  Advance();
}

void ReadOperation::StartFetch(const NodeAddress& node,
                               const Indexes& indexes) {
  const Session::Welcome welcome = parts_.session->welcome();
  const bool local = welcome != nullptr && welcome->node == node.node;
  StreamRead read;
  read.name_space = request_.name_space.id;
  read.deadline = deadline_;
  read.traffic = request_.traffic;
  read.trace = request_.trace;
  std::shared_ptr<Fetch> fetch;
  bool over = false;
  {
    MutexLock lock(&mutex_);
    over = over_;
    if (!over) {
      read.clear_epoch = clear_epoch_;
      for (const std::size_t i : indexes) {
        Block& block = blocks_[i];
        block.fetch = next_fetch_;
        read.keys.push_back(
            {.key = request_.blocks[i].key,
             .room = block.whole ? RunBytes(block.run) : kLargestBlockBytes});
      }
      // Shared: its connection keeps it until its end.
      fetch = std::make_shared<Fetch>(shared_from_this(), next_fetch_++, node,
                                      local, indexes);
      fetches_.emplace(fetch->number(), StreamTransport::Ticket());
    }
  }
  if (over) {
    return parts_.router->End(node.node, indexes.size(),
                              Router::Verdict::kUnknown);
  }
  parts_.retries->Earn(1);
  const StreamTransport::Ticket ticket = parts_.streams->StartRead(
      {.address = node.stream_address, .node = node.node, .epoch = node.epoch},
      std::move(read), fetch);
  {
    MutexLock lock(&mutex_);
    const auto it = fetches_.find(fetch->number());
    if (it == fetches_.end()) return;  // It has ended already.
    it->second = ticket;
    over = over_;
  }
  if (over) parts_.streams->Cancel(ticket, parts_.options->buffer_grace);
}

// --- Fetch.

ByteRun ReadOperation::Fetch::OnHeader(std::size_t index,
                                       const SlotHeader& header) {
  answered_ = true;
  return read_->PlaceFor(*this, indexes_[index], header);
}

void ReadOperation::Fetch::OnBlock(std::size_t index, Outcome outcome,
                                   absl::Duration retry_after) {
  answered_ = true;
  read_->OnFetched(*this, indexes_[index], outcome, retry_after);
}

void ReadOperation::Fetch::OnEnd(StreamEnd end, const absl::Status&) {
  read_->OnFetchEnd(*this, end);
}

// A block that this fetch could not give may be in another one before this one
// has ended.
bool ReadOperation::IsIn(const Block& block, const Fetch& fetch) {
  return block.step == Step::kFetching && block.fetch == fetch.number();
}

ByteRun ReadOperation::PlaceFor(const Fetch& fetch, std::size_t index,
                                const SlotHeader& header) {
  MutexLock lock(&mutex_);
  if (over_) return {};
  Block& block = blocks_[index];
  if (!IsIn(block, fetch)) return {};
  const IdentityDigest& digest = request_.name_space.digest;
  if (!digest.IsZero() && header.digest != digest) {
    // Of another contract: not what was asked for, whatever its key says.
    AfterFetch(fetch, index, Outcome::kMiss);
    return {};
  }
  if (!Fits(block, header.length)) {
    EndBlock(&block, Outcome::kWrongSize);
    return {};
  }
  if (!fetch.local() && parts_.session->welcome() != nullptr) {
    block.elsewhere = std::make_unique<RemoteBlock>(
        RemoteBlock{.key = header.block.key,
                    .place = header.place,
                    .length = header.length,
                    .clear_epoch = header.clear_epoch,
                    .source = fetch.node(),
                    .source_epoch = fetch.epoch()});
  }
  if (block.whole) return block.run;
  block.bounce = parts_.bounce->Take(header.length);
  if (!block.bounce) {
    EndBlock(&block, Outcome::kCongested);
    return {};
  }
  return {block.bounce.bytes()};
}

void ReadOperation::OnFetched(const Fetch& fetch, std::size_t index,
                              Outcome outcome, absl::Duration retry_after) {
  Block* block = nullptr;
  {
    MutexLock lock(&mutex_);
    if (over_ || !IsIn(blocks_[index], fetch)) return;
    retry_after_ = std::max(retry_after_, retry_after);
    block = &blocks_[index];
  }
  // The buffers are ours until this fetch ends, and the block too.
  if (outcome == Outcome::kHit && !block->whole) {
    const std::byte* from = block->bounce.bytes().data() + block->offset;
    for (const absl::Span<std::byte>& part : block->run) {
      std::memcpy(part.data(), from, part.size());
      from += part.size();
    }
  }
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    block->bounce = BounceMemory::Piece();
    AfterFetch(fetch, index, outcome);
    // Advance would find nothing new: it is not called for each of a batch.
    if (outcome == Outcome::kHit && open_ > 0 && !run_ends_) return;
  }
  Advance();
}

std::vector<RemoteBlock> ReadOperation::TakeRemoteHits() {
  std::vector<RemoteBlock> hits;
  for (Block& block : blocks_) {
    if (block.elsewhere == nullptr || block.outcome != Outcome::kHit) continue;
    hits.push_back(*block.elsewhere);
    block.elsewhere.reset();
  }
  return hits;
}

void ReadOperation::AfterFetch(const Fetch& fetch, std::size_t index,
                               Outcome outcome) {
  Block& block = blocks_[index];
  switch (outcome) {
    case Outcome::kHit:
      bytes_remote_ += RunBytes(block.run);
      return EndBlock(&block, Outcome::kHit);
    case Outcome::kMiss:
    case Outcome::kStaleLocation:
      if (fetch.local()) return AfterLocal(&block, Outcome::kMiss);
      return OnStale(fetch, index);
    case Outcome::kBeingWritten:
      if (fetch.local()) return AfterLocal(&block, outcome);
      return EndBlock(&block, outcome);
    case Outcome::kCorrupt:
      parts_.counters->corrupt_blocks.Add();
      parts_.locations->Forget(IdOf(index));
      // The connection has told the node (rule P12).
      return EndBlock(&block, outcome);
    case Outcome::kUnavailable:
    case Outcome::kSkipped:
    case Outcome::kCancelled:
    case Outcome::kUnset:
      return TryElsewhere(fetch, index, parts_.retries->Spend());
    case Outcome::kExpired:
    case Outcome::kDenied:
    case Outcome::kTimedOut:
    case Outcome::kCongested:
    case Outcome::kWrongSize:
    case Outcome::kStored:
    case Outcome::kAlreadyThere:
    case Outcome::kOverQuota:
    case Outcome::kReservationOver:
    case Outcome::kCleared:
      return EndBlock(&block, outcome);
  }
}

// The location was wrong: relocate once.
void ReadOperation::OnStale(const Fetch& fetch, std::size_t index) {
  Block& block = blocks_[index];
  parts_.counters->stale_locations.Add();
  parts_.locations->Forget(IdOf(index));
  block.elsewhere.reset();
  block.outcome = Outcome::kMiss;
  // Another copy that was located with it needs no second look: the catalog
  // may name the stale one again, until it has heard.
  block.tried.push_back(fetch.node());
  if (block.locations.size() > block.tried.size()) {
    block.step = Step::kLocated;
    return;
  }
  if (block.locates_left == 0) return EndBlock(&block, Outcome::kMiss);
  block.step = block.asked ? Step::kLocate : Step::kAsk;
}

void ReadOperation::TryElsewhere(const Fetch& fetch, std::size_t index,
                                 bool paid) {
  Block& block = blocks_[index];
  if (fetch.local()) return AfterLocal(&block, Outcome::kUnavailable);
  parts_.locations->Forget(IdOf(index));
  block.elsewhere.reset();
  block.tried.push_back(fetch.node());
  block.outcome = Outcome::kUnavailable;
  const bool others = block.locations.size() > block.tried.size();
  if (!paid || (!others && block.asked)) {
    return EndBlock(&block, Outcome::kUnavailable);
  }
  block.step = others ? Step::kLocated : Step::kAsk;
}

void ReadOperation::OnFetchEnd(const Fetch& fetch, StreamEnd end) {
  Router::Verdict verdict = Router::Verdict::kFailed;
  bool over = false;
  std::optional<bool> paid;
  {
    MutexLock lock(&mutex_);
    fetches_.erase(fetch.number());
    over = over_;
    if (end == StreamEnd::kServed || end == StreamEnd::kRefused ||
        end == StreamEnd::kOtherRun) {
      verdict = Router::Verdict::kServed;
    } else if (end == StreamEnd::kCancelled &&
               (!timed_out_ || fetch.answered())) {
      // Given up for other reasons than that node's silence.
      verdict = Router::Verdict::kUnknown;
    } else if (end == StreamEnd::kUnreachable ||
               (end == StreamEnd::kCancelled &&
                request_.deadline >= Router::kSilence)) {
      verdict = Router::Verdict::kAway;
    }
    for (const std::size_t i : fetch.indexes()) {
      if (over || !IsIn(blocks_[i], fetch)) continue;
      switch (end) {
        case StreamEnd::kRefused:
          EndBlock(&blocks_[i], Outcome::kDenied);
          break;
        case StreamEnd::kOtherRun:
          AfterFetch(fetch, i, Outcome::kStaleLocation);
          break;
        case StreamEnd::kServed:
        case StreamEnd::kUnreachable:
        case StreamEnd::kBroken:
        case StreamEnd::kTooOld:
        case StreamEnd::kCancelled:
          // One retry for all blocks of a request: it is one request again.
          if (!paid) paid = parts_.retries->Spend();
          TryElsewhere(fetch, i, *paid);
          break;
      }
    }
  }
  parts_.router->End(fetch.node(), fetch.indexes().size(), verdict);
  if (verdict == Router::Verdict::kAway ||
      verdict == Router::Verdict::kFailed) {
    parts_.probes->StartLater(fetch.node(), fetch.epoch(),
                              IdOf(fetch.indexes().front()));
  }
  if (over) return FreeIfQuiet();
  Advance();
}

}  // namespace firnkv
