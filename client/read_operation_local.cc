// A read's half at the local node: ask, map what was granted, copy, verify.

#include <algorithm>
#include <utility>

#include "client/clear_epochs.h"
#include "client/counters.h"
#include "client/frame_calls.h"
#include "client/read_operation.h"
#include "client/router.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {

void ReadOperation::AskLocal(const Indexes& indexes) {
  const Session::Welcome welcome = parts_.session->welcome();
  if (welcome == nullptr || !welcome->mapping) {
    {
      MutexLock lock(&mutex_);
      if (over_) return;
      for (const std::size_t i : indexes) {
        if (welcome == nullptr) {
          AfterLocal(&blocks_[i], Outcome::kUnavailable);
        } else {
          UseLocalStream(&blocks_[i], *welcome);
        }
      }
    }
    return Advance();
  }
  NodeClient::OpenReadCall call;
  call.name_space = request_.name_space.id;
  call.keys.reserve(indexes.size());
  // With a catalog, what follows a gap may still be of use: somebody else may
  // fill it.
  call.leading_run = leading_ && parts_.catalog->address().empty();
  call.lease = parts_.options->read_lease;
  {
    MutexLock lock(&mutex_);
    // As in Locate: the blocks may be the caller's again.
    if (over_) return;
    for (const std::size_t i : indexes) {
      call.keys.push_back(request_.blocks[i].key);
    }
    call.clear_epoch = clear_epoch_;
  }
  parts_.node->StartOpenRead(
      Context(), call,
      [self = shared_from_this(), indexes,
       asked_at = parts_.seams->clock->Now()](
          absl::StatusOr<NodeClient::OpenReadAnswer> answer) {
        self->OnOpened(indexes, asked_at, std::move(answer));
      });
}

void ReadOperation::UseLocalStream(Block* block,
                                   const SessionWelcome& welcome) {
  block->asked = true;
  if (welcome.stream_address.empty()) {
    return AfterLocal(block, Outcome::kUnavailable);
  }
  const NodeAddress address{.node = welcome.node,
                            .epoch = welcome.epoch,
                            .stream_address = welcome.stream_address,
                            .control_address = {},
                            .labels = welcome.labels};
  parts_.router->Learn({address});
  block->lease.reset();
  block->locations = {
      KnownLocation{.node = welcome.node, .epoch = welcome.epoch}};
  block->tried.clear();
  block->step = Step::kLocated;
}

void ReadOperation::OnOpened(
    const Indexes& indexes, BootTime asked_at,
    absl::StatusOr<NodeClient::OpenReadAnswer> answer) {
  // Shared by the callbacks of its regions.
  auto opening = std::make_shared<Opening>();
  std::shared_ptr<Lease> lease;
  if (answer.ok()) {
    parts_.epochs->Learn(request_.name_space.id, answer->clear_epoch);
    if (answer->lease != 0) {
      // Believed for less than it was granted, from before it was (rule A7).
      lease =
          std::make_shared<Lease>(parts_.node, answer->session, answer->lease,
                                  asked_at + HolderTerm(answer->lease_time));
    }
    opening->answer = *std::move(answer);
  }
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    for (std::size_t n = 0; n < indexes.size(); ++n) {
      const std::size_t i = indexes[n];
      if (!answer.ok()) {
        OnRefused(&blocks_[i], answer.status());
        continue;
      }
      TakeGrant(i, opening->answer.grants[n], lease);
      if (!blocks_[i].regions.empty()) opening->indexes.push_back(i);
    }
    retry_after_ = std::max(retry_after_, opening->answer.retry_after);
    for (const std::size_t i : opening->indexes) {
      for (const std::uint64_t serial : blocks_[i].regions) {
        opening->regions.emplace(serial, nullptr);
      }
    }
    opening->left = opening->regions.size();
  }
  if (opening->left > 0) return MapRegions(std::move(opening));
  Advance();
}

void ReadOperation::OnRefused(Block* block, const absl::Status& why) {
  const Outcome outcome = OutcomeOf(why);
  if (outcome == Outcome::kDenied || outcome == Outcome::kTimedOut) {
    return EndBlock(block, outcome);
  }
  AfterLocal(block, Outcome::kUnavailable);
}

void ReadOperation::TakeGrant(std::size_t index, const NodeClient::Grant& grant,
                              const std::shared_ptr<Lease>& lease) {
  Block& block = blocks_[index];
  switch (grant.outcome) {
    case Outcome::kHit:
      break;
    case Outcome::kMiss:
    case Outcome::kStaleLocation:
      return AfterLocal(&block, Outcome::kMiss);
    case Outcome::kBeingWritten:
    case Outcome::kUnavailable:
      return AfterLocal(&block, grant.outcome);
    case Outcome::kExpired:
    case Outcome::kCorrupt:
    case Outcome::kDenied:
    case Outcome::kTimedOut:
    case Outcome::kCongested:
    case Outcome::kSkipped:
    case Outcome::kCancelled:
    case Outcome::kWrongSize:
    case Outcome::kUnset:
    case Outcome::kStored:
    case Outcome::kAlreadyThere:
    case Outcome::kOverQuota:
    case Outcome::kReservationOver:
    case Outcome::kCleared:
      return EndBlock(&block, grant.outcome);
  }
  if (!Fits(block, grant.length)) {
    return EndBlock(&block, Outcome::kWrongSize);
  }
  block.asked = true;
  block.lease = lease;
  if (block.torn) stale_.push_back(std::move(block.mapped));
  block.mapped.block = IdOf(index);
  block.mapped.digest = request_.name_space.digest;
  block.mapped.clear_epoch = clear_epoch_;
  block.mapped.generation = grant.generation;
  block.mapped.length = grant.length;
  block.mapped.extents.clear();
  block.regions.clear();
  for (const Extent& extent : grant.extents) {
    block.mapped.extents.push_back(
        {.region = nullptr, .offset = extent.offset, .length = extent.length});
    block.regions.push_back(extent.memory);
  }
}

void ReadOperation::MapRegions(std::shared_ptr<Opening> opening) {
  std::vector<std::uint64_t> serials;
  for (const auto& [serial, region] : opening->regions) {
    serials.push_back(serial);
  }
  for (const std::uint64_t serial : serials) {
    parts_.session->StartRegion(
        opening->answer.session, serial,
        [self = shared_from_this(), opening,
         serial](absl::StatusOr<std::shared_ptr<const MappedRegion>> region) {
          self->OnRegion(opening, serial, std::move(region));
        });
  }
}

void ReadOperation::OnRegion(
    const std::shared_ptr<Opening>& opening, std::uint64_t serial,
    absl::StatusOr<std::shared_ptr<const MappedRegion>> region) {
  {
    MutexLock lock(&mutex_);
    if (region.ok()) opening->regions[serial] = *std::move(region);
    --opening->left;
    if (opening->left > 0) return;
    if (!over_) PlaceExtents(*opening);
  }
  Advance();
}

void ReadOperation::PlaceExtents(const Opening& opening) {
  const Session::Welcome welcome = parts_.session->welcome();
  for (const std::size_t i : opening.indexes) {
    Block& block = blocks_[i];
    bool mapped = true;
    for (std::size_t n = 0; n < block.regions.size(); ++n) {
      const auto& region = opening.regions.at(block.regions[n]);
      mapped = mapped && region != nullptr;
      block.mapped.extents[n].region = region;
    }
    block.regions.clear();
    if (mapped) {
      block.step = Step::kGranted;
    } else if (welcome == nullptr) {
      AfterLocal(&block, Outcome::kUnavailable);
    } else {
      UseLocalStream(&block, *welcome);
    }
  }
}

// --- Copies.

void ReadOperation::Copy(const Indexes& indexes) {
  std::size_t tasks = 0;
  std::uint64_t all = 0;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    std::uint64_t slice = kSliceBytes;
    for (const std::size_t i : indexes) {
      const std::uint64_t bytes = RunBytes(blocks_[i].run);
      all += bytes;
      if (slice + bytes > kSliceBytes) {
        slices_.emplace_back();
        ++tasks;
        slice = 0;
      }
      slices_.back().push_back(i);
      slice += bytes;
    }
  }
  // Whoever waits for this read copies too.
  const bool here = all <= kInlineBytes || WaitingThread::IsHere();
  for (std::size_t n = here ? 1 : 0; n < tasks; ++n) {
    parts_.seams->executor->Post(
        parts_.scope->Wrap([self = shared_from_this()] { self->CopySlice(); }));
  }
  while (here && CopySlice()) {
  }
}

bool ReadOperation::CopySlice() {
  Indexes slice;
  {
    MutexLock lock(&mutex_);
    if (over_ || slices_.empty()) return false;
    slice = std::move(slices_.front());
    slices_.pop_front();
    ++copying_;
  }
  for (const std::size_t i : slice) {
    const Block* block = nullptr;
    BootTime believed_until;
    {
      MutexLock lock(&mutex_);
      if (over_) break;
      // Stays: blocks are cleared only when no slice is being copied, and a
      // block that is being copied is changed by nobody else.
      block = &blocks_[i];
      believed_until = block->lease->believed_until();
    }
    const bool leased = parts_.seams->clock->Now() < believed_until;
    const MappedCopy result =
        leased ? CopyMapped(block->mapped, block->offset, block->run)
               : MappedCopy::kTorn;
    MutexLock lock(&mutex_);
    if (!over_) OnCopied(i, result);
  }
  bool over = false;
  {
    MutexLock lock(&mutex_);
    --copying_;
    over = over_;
  }
  if (over) {
    FreeIfQuiet();
  } else {
    Advance();
  }
  return true;
}

void ReadOperation::OnCopied(std::size_t index, MappedCopy result) {
  Block& block = blocks_[index];
  switch (result) {
    case MappedCopy::kLanded:
      bytes_mapped_ += RunBytes(block.run);
      return EndBlock(&block, Outcome::kHit);
    case MappedCopy::kTorn:
      parts_.counters->torn_reads.Add();
      if (block.torn) return EndBlock(&block, Outcome::kUnavailable);
      block.torn = true;
      block.lease.reset();
      block.step = Step::kAsk;
      return;
    case MappedCopy::kCorrupt:
      parts_.counters->corrupt_blocks.Add();
      parts_.node->ReportCorrupt(block.lease->session(), request_.name_space.id,
                                 request_.blocks[index].key,
                                 block.mapped.generation);
      return EndBlock(&block, Outcome::kCorrupt);
    case MappedCopy::kOutOfBounds:
      return EndBlock(&block, Outcome::kUnavailable);
  }
}

}  // namespace firnkv
