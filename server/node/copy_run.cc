#include "server/node/copy_run.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "proto/base/check.h"
#include "server/node/scoped_answer.h"

namespace firnkv {
namespace {

// What the source said of a block that it did not send, as an outcome of a
// copy.
Outcome OfSource(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCorrupt:
    case Outcome::kTimedOut:
    case Outcome::kCongested:
      return outcome;
    case Outcome::kMiss:
    case Outcome::kExpired:
    case Outcome::kBeingWritten:
    case Outcome::kWrongSize:
    case Outcome::kStaleLocation:
      return Outcome::kMiss;
    case Outcome::kUnset:
    case Outcome::kHit:
    case Outcome::kDenied:
    case Outcome::kUnavailable:
    case Outcome::kSkipped:
    case Outcome::kCancelled:
    case Outcome::kStored:
    case Outcome::kAlreadyThere:
    case Outcome::kOverQuota:
    case Outcome::kReservationOver:
    case Outcome::kCleared:
      break;
  }
  return Outcome::kUnavailable;
}

// What the pool said at the end of a reservation or a commit.
Outcome OfPool(Outcome outcome) {
  // The reservation lasts longer than the run: it ended with that.
  if (outcome == Outcome::kReservationOver) return Outcome::kTimedOut;
  if (outcome == Outcome::kCancelled) return Outcome::kUnavailable;
  return outcome;
}

}  // namespace

CopyRun::CopyRun(const Options& options, const Parts& parts,
                 std::uint64_t serial, CopyOrder order, CopyDone done)
    : options_(options),
      parts_(parts),
      serial_(serial),
      order_(std::move(order)),
      done_(std::move(done)),
      outcomes_(order_.blocks.size(), Outcome::kUnset) {}

void CopyRun::Learn(const PoolNamespace& name_space) {
  MutexLock lock(&mutex_);
  name_space_ = name_space;
  for (std::size_t i = 0; i < order_.blocks.size(); ++i) {
    // Rule P13: the pool looks again, when the copy is to enter the index.
    if (order_.blocks[i].clear_epoch != name_space.clear_epoch) {
      Decide(i, Outcome::kCleared);
    }
  }
}

std::optional<std::uint64_t> CopyRun::PlanStep() {
  std::uint64_t bytes = 0;
  bool any = false;
  {
    MutexLock lock(&mutex_);
    CHECK(step_.empty() && !reading_);
    for (; next_ < order_.blocks.size(); ++next_) {
      if (outcomes_[next_] != Outcome::kUnset) continue;
      const Outcome fate = FateOfParent(next_);
      if (fate != Outcome::kUnset) {
        Decide(next_, fate);
        continue;
      }
      const std::uint64_t length = order_.blocks[next_].length;
      if (step_.size() == options_.step_blocks) break;
      if (!step_.empty() && bytes + length > options_.step_bytes) break;
      step_.push_back({.index = next_, .slot = {}});
      bytes += length;
    }
    any = !step_.empty();
  }
  if (any) return bytes;
  End(Outcome::kUnavailable);
  return std::nullopt;
}

void CopyRun::StartStep() {
  ReserveRequest request;
  const BootTime now = parts_.clock->Now();
  bool over = false;
  {
    MutexLock lock(&mutex_);
    over = over_;
    request.name_space = name_space_;
    request.source_epoch = name_space_.clear_epoch;
    for (const Wanted& wanted : step_) {
      const CopyOrder::Block& block = order_.blocks[wanted.index];
      request.blocks.push_back({block.key, block.place, block.length});
    }
  }
  if (over) return EndStep(StepEnd::kNothing);
  request.deadline = std::min(order_.deadline, now + order_.room_wait);
  // The run ends it.
  request.reserved_until = order_.deadline + 2 * options_.grace;
  request.evict_below = order_.evict_below;
  parts_.pool->StartReserve(
      std::move(request),
      ScopedAnswer<ReserveAnswer>(
          parts_.scope, [self = shared_from_this()](ReserveAnswer answer) {
            self->OnReserved(std::move(answer));
          }));
}

void CopyRun::OnReserved(ReserveAnswer answer) {
  std::vector<SlotCopy> unwanted;
  bool read = false;
  {
    MutexLock lock(&mutex_);
    std::vector<Wanted> wanted;
    bool full = false;
    for (std::size_t i = 0; i < step_.size(); ++i) {
      const std::size_t index = step_[i].index;
      // A place that the namespace cannot have, a block that is longer than any
      // here: not to be had at this node.
      const Outcome outcome = answer.status.ok()
                                  ? OfPool(answer.blocks[i].outcome)
                                  : Outcome::kUnavailable;
      if (outcome == Outcome::kStored) {
        wanted.push_back({.index = index, .slot = answer.blocks[i].copy});
        if (over_) unwanted.push_back(answer.blocks[i].copy);
      } else {
        Decide(index, outcome);
        full = full || outcome == Outcome::kCongested;
      }
    }
    step_ = std::move(wanted);
    // What comes behind would find no room either.
    for (std::size_t i = next_; full && i < outcomes_.size(); ++i) {
      Decide(i, Outcome::kCongested);
    }
    read = !over_ && !step_.empty();
  }
  if (read) return Read();
  parts_.pool->EndReservation(unwanted);
  EndStep(StepEnd::kNothing);
}

void CopyRun::Read() {
  StreamRead read;
  read.name_space = order_.name_space;
  read.deadline = order_.deadline;
  read.traffic = order_.traffic;
  read.trace = order_.trace;
  {
    MutexLock lock(&mutex_);
    read.clear_epoch = name_space_.clear_epoch;
    for (const Wanted& wanted : step_) {
      const CopyOrder::Block& block = order_.blocks[wanted.index];
      read.keys.push_back({.key = block.key, .room = block.length});
    }
    reading_ = true;
  }
  heard_ = false;
  const StreamTransport::Ticket ticket =
      parts_.transport->StartRead({.address = order_.source.stream_address,
                                   .node = order_.source.node,
                                   .epoch = order_.source.epoch},
                                  std::move(read), shared_from_this());
  bool over = false;
  {
    MutexLock lock(&mutex_);
    if (!reading_) return;  // It has ended already.
    ticket_ = ticket;
    over = over_;
  }
  if (over) parts_.transport->Cancel(ticket, options_.grace);
}

Outcome CopyRun::Judge(std::size_t index, const SlotHeader& header) const {
  const CopyOrder::Block& told = order_.blocks[index];
  const Outcome fate = FateOfParent(index);
  if (fate != Outcome::kUnset) return fate;
  // Another copy than the one that was told of: that one is there no more.
  const bool same =
      header.block == BlockId{order_.name_space, told.key} &&
      header.digest == name_space_.digest && header.place == told.place &&
      header.length == told.length && header.clear_epoch == told.clear_epoch;
  return same ? Outcome::kStored : Outcome::kMiss;
}

ByteRun CopyRun::OnHeader(std::size_t index, const SlotHeader& header) {
  heard_ = true;
  SlotCopy slot;
  {
    MutexLock lock(&mutex_);
    if (over_) return {};
    const Wanted& wanted = step_[index];
    const Outcome judged = Judge(wanted.index, header);
    if (judged != Outcome::kStored) {
      Decide(wanted.index, judged);
      return {};
    }
    slot = wanted.slot;
  }
  auto begun = parts_.pool->BeginCopy(slot);
  if (const auto* const result = std::get_if<CommitResult>(&begun)) {
    MutexLock lock(&mutex_);
    Decide(step_[index].index, OfPool(result->outcome));
    return {};
  }
  target_ = std::get<CopyTarget>(std::move(begun));
  pieces_ = header.pieces;
  source_nanos_ = header.commit_time_nanos;
  return {target_.bytes};
}

void CopyRun::OnBlock(std::size_t index, Outcome outcome, absl::Duration) {
  heard_ = true;
  CopyTarget target = std::exchange(target_, CopyTarget());
  Outcome became = OfSource(outcome);
  if (outcome == Outcome::kHit) {
    // The transport has compared what landed with the checksums (rule T1).
    CHECK(target.hold.held());
    became = OfPool(
        parts_.pool
            ->Commit(std::move(target), std::move(pieces_), source_nanos_)
            .outcome);
  }
  target.hold.End();
  MutexLock lock(&mutex_);
  Decide(step_[index].index, became);
}

void CopyRun::OnEnd(StreamEnd end, const absl::Status& /*why*/) {
  target_ = CopyTarget();
  {
    MutexLock lock(&mutex_);
    reading_ = false;
    ticket_ = {};
  }
  switch (end) {
    case StreamEnd::kServed:
      return EndStep(StepEnd::kServed);
    case StreamEnd::kOtherRun:
      // Its copies went with it.
      End(Outcome::kMiss);
      return EndStep(StepEnd::kServed);
    case StreamEnd::kRefused:
    case StreamEnd::kTooOld:
      End(Outcome::kUnavailable);
      return EndStep(StepEnd::kServed);
    case StreamEnd::kCancelled:
      End(Outcome::kUnavailable);
      // The run's time was over first: a peer that said nothing is silent.
      return EndStep(heard_ ? StepEnd::kServed : StepEnd::kFailed);
    case StreamEnd::kUnreachable:
    case StreamEnd::kBroken:
      End(Outcome::kUnavailable);
      return EndStep(StepEnd::kFailed);
  }
}

void CopyRun::EndStep(StepEnd end) {
  std::vector<SlotCopy> slots;
  {
    MutexLock lock(&mutex_);
    for (const Wanted& wanted : step_) {
      slots.push_back(wanted.slot);
      // The source has ended without a word of it.
      if (outcomes_[wanted.index] == Outcome::kUnset) {
        Decide(wanted.index, Outcome::kUnavailable);
      }
    }
    step_.clear();
  }
  // Of what is resident by now this changes nothing.
  parts_.pool->EndReservation(slots);
  parts_.on_step_end(this, end);
}

void CopyRun::End(Outcome rest) {
  CopyDone done;
  std::vector<Outcome> outcomes;
  std::vector<SlotCopy> slots;
  StreamTransport::Ticket ticket;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    for (Outcome& outcome : outcomes_) {
      if (outcome == Outcome::kUnset) outcome = rest;
    }
    outcomes = outcomes_;
    done = std::move(done_);
    for (const Wanted& wanted : step_) slots.push_back(wanted.slot);
    ticket = ticket_;
  }
  // Rule S7: what lands from now on is not taken.
  parts_.pool->EndReservation(slots);
  parts_.transport->Cancel(ticket, options_.grace);
  parts_.on_over(this, outcomes);
  std::move(done)(std::move(outcomes));
}

void CopyRun::Decide(std::size_t index, Outcome outcome) {
  if (over_ || outcomes_[index] != Outcome::kUnset) return;
  outcomes_[index] = outcome;
  if (outcome != Outcome::kStored && outcome != Outcome::kAlreadyThere) {
    lacking_.emplace(order_.blocks[index].key, outcome);
  }
}

Outcome CopyRun::FateOfParent(std::size_t index) const {
  const auto it = lacking_.find(order_.blocks[index].place.parent);
  return it == lacking_.end() ? Outcome::kUnset : it->second;
}

}  // namespace firnkv
