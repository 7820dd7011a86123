#include "client/read_operation.h"

#include <algorithm>
#include <utility>

#include "client/clear_epochs.h"
#include "client/counters.h"
#include "client/remote_reads.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {
void ReadOperation::Start(const ClientParts& parts, const ReadRequest& request,
                          ReadDone done) {
  // Shared: see the class.
  const auto operation =
      std::make_shared<ReadOperation>(parts, request, std::move(done));
  operation->Begin();
}

ReadOperation::ReadOperation(const ClientParts& parts,
                             const ReadRequest& request, ReadDone done)
    : parts_(parts),
      request_(request),
      started_(parts.seams->clock->Now()),
      deadline_(started_ + request.deadline),
      leading_(request.want == ReadWant::kLeadingRun),
      done_(std::move(done)) {}

absl::Status ReadOperation::Validate() const {
  std::vector<BlockKey> keys;
  keys.reserve(request_.blocks.size());
  for (const ReadTarget& target : request_.blocks) {
    keys.push_back(target.key);
    if (target.destination.size() > kMaxBuffersABlock) {
      return absl::InvalidArgumentError(
          StrCat("a destination of ", target.destination.size(), " buffers"));
    }
    if (target.length == kWholeBlock && target.offset != 0) {
      return absl::InvalidArgumentError("an offset without a length");
    }
    for (const Buffer& buffer : target.destination) {
      if (buffer.kind == MemoryKind::kDevice) {
        return absl::InvalidArgumentError("this build has no devices");
      }
    }
  }
  return CheckBatch(parts_, "a read", request_.deadline, keys);
}

void ReadOperation::Begin() {
  for (ReadTarget& target : request_.blocks) target.outcome = Outcome::kSkipped;
  absl::Status status = Validate();
  if (status.ok() && !parts_.operations->Add(shared_from_this())) {
    for (ReadTarget& target : request_.blocks) {
      target.outcome = Outcome::kCancelled;
    }
    status = absl::CancelledError("the Client was closed");
  }
  if (!status.ok()) {
    ReadDone done;
    {
      MutexLock lock(&mutex_);
      done = std::move(done_);
    }
    ReadReport report;
    report.status = std::move(status);
    std::move(done.on_outcome)(report);
    std::move(done.on_buffers_free)();
    return;
  }
  {
    MutexLock lock(&mutex_);
    clear_epoch_ = parts_.epochs->Highest(request_.name_space);
    blocks_.resize(request_.blocks.size());
    open_ = blocks_.size();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const ReadTarget& target = request_.blocks[i];
      Block& block = blocks_[i];
      block.run = RunOf(target.destination);
      block.offset = target.offset;
      block.whole = target.length == kWholeBlock;
      const std::uint64_t room = RunBytes(block.run);
      if (room == 0 || room > kLargestBlockBytes ||
          (!block.whole && room != target.length)) {
        EndBlock(&block, Outcome::kWrongSize);
      }
    }
    UseCachedLocations();
    timer_ = parts_.seams->executor->PostAt(
        deadline_, parts_.scope->Wrap([self = shared_from_this()] {
          self->End(Outcome::kTimedOut);
        }));
  }
  Advance();
}

void ReadOperation::UseCachedLocations() {
  std::vector<BlockKey> keys;
  keys.reserve(blocks_.size());
  for (const ReadTarget& target : request_.blocks) keys.push_back(target.key);
  std::vector<Locations> found =
      parts_.locations->Find(request_.name_space.id, keys);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    if (found[i].empty() || block.step == Step::kEnded) continue;
    block.locations = std::move(found[i]);
    block.step = Step::kLocated;
    --block.locates_left;
    parts_.counters->location_hits.Add();
  }
}

// Looks at all blocks and starts what can be started. Whatever was started
// calls it again when it is done.
void ReadOperation::Advance() {
  Agenda agenda;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    agenda = Plan();
  }
  if (agenda.end) return End(Outcome::kSkipped);
  if (!agenda.copy.empty()) Copy(agenda.copy);
  if (!agenda.fetch.empty()) StartFetches(agenda.fetch);
  if (!agenda.ask.empty()) AskLocal(agenda.ask);
  if (!agenda.locate.empty()) Locate(agenda.locate);
}

ReadOperation::Agenda ReadOperation::Plan() {
  Agenda agenda;
  std::size_t end = blocks_.size();
  if (leading_) {
    const auto over =
        std::find_if(blocks_.begin(), blocks_.end(), [](const Block& block) {
          return block.step == Step::kEnded && block.outcome != Outcome::kHit;
        });
    end = static_cast<std::size_t>(over - blocks_.begin());
  }
  // The catalog is asked once for all that the local node lacks.
  bool asking = false;
  for (std::size_t i = 0; i < end; ++i) {
    const Step step = blocks_[i].step;
    asking = asking || step == Step::kAsk || step == Step::kAsking;
  }
  agenda.end = true;
  bool blocked = false;
  for (std::size_t i = 0; i < end; ++i) {
    Block& block = blocks_[i];
    if (block.step != Step::kEnded) agenda.end = false;
    switch (block.step) {
      case Step::kAsk:
        block.step = Step::kAsking;
        agenda.ask.push_back(i);
        blocked = leading_;
        break;
      case Step::kLocate:
        blocked = leading_;
        if (asking) break;
        block.step = Step::kLocating;
        agenda.locate.push_back(i);
        break;
      case Step::kAsking:
      case Step::kLocating:
        blocked = leading_;
        break;
      case Step::kGranted:
        if (blocked) break;
        block.step = Step::kCopying;
        agenda.copy.push_back(i);
        break;
      case Step::kLocated:
        if (blocked) break;
        block.step = Step::kFetching;
        agenda.fetch.push_back(i);
        break;
      case Step::kCopying:
      case Step::kFetching:
      case Step::kEnded:
        break;
    }
  }
  return agenda;
}

void ReadOperation::Cancel() { End(Outcome::kCancelled); }

void ReadOperation::End(Outcome rest) {
  ReadDone done;
  ReadReport report;
  std::vector<RemoteBlock> remote;
  std::vector<StreamTransport::Ticket> fetches;
  TimerId timer = TimerId::kNone;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    timed_out_ = rest == Outcome::kTimedOut;
    report = Settle(rest);
    remote = TakeRemoteHits();
    slices_.clear();
    for (const auto& [number, ticket] : fetches_) fetches.push_back(ticket);
    done.on_outcome = std::move(done_.on_outcome);
    timer = timer_;
  }
  parts_.seams->executor->Cancel(timer);
  std::move(done.on_outcome)(report);
  parts_.remote_reads->Add(request_.name_space.id, std::move(remote));
  {
    MutexLock lock(&mutex_);
    told_ = true;
  }
  // Not before the outcome was told: their end may give back the buffers.
  for (const StreamTransport::Ticket& fetch : fetches) {
    parts_.streams->Cancel(fetch, parts_.options->buffer_grace);
  }
  FreeIfQuiet();
}

ReadReport ReadOperation::Settle(Outcome rest) {
  ReadReport report;
  bool run = true;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    Outcome outcome = block.step == Step::kEnded ? block.outcome : rest;
    // Of a leading run nothing counts behind its end.
    if (leading_ && !run && rest != Outcome::kCancelled) {
      outcome = Outcome::kSkipped;
    }
    run = run && outcome == Outcome::kHit;
    if (run) ++report.leading_hits;
    if (outcome == Outcome::kHit) ++report.hits;
    request_.blocks[i].outcome = outcome;
    parts_.counters->read_outcomes[static_cast<std::size_t>(outcome)].Add();
    EndBlock(&block, outcome);
  }
  report.bytes_mapped = bytes_mapped_;
  report.bytes_remote = bytes_remote_;
  report.retry_after = retry_after_;
  report.locate = locate_;
  report.took = parts_.seams->clock->Now() - started_;
  parts_.counters->bytes_mapped.Add(bytes_mapped_);
  parts_.counters->bytes_remote.Add(bytes_remote_);
  parts_.counters->read.Add(report.took);
  return report;
}

void ReadOperation::FreeIfQuiet() {
  ReadDone done;
  // Destroyed without the lock: a region may be unmapped with its last block.
  std::vector<Block> blocks;
  std::vector<MappedBlock> stale;
  {
    MutexLock lock(&mutex_);
    if (!told_ || freed_ || copying_ > 0 || !fetches_.empty()) return;
    freed_ = true;
    blocks.swap(blocks_);
    stale.swap(stale_);
    done = std::move(done_);
  }
  std::move(done.on_buffers_free)();
  parts_.operations->Remove(this);
}

void ReadOperation::EndBlock(Block* block, Outcome outcome) {
  if (block->step != Step::kEnded) --open_;
  run_ends_ = run_ends_ || (leading_ && outcome != Outcome::kHit);
  block->step = Step::kEnded;
  block->outcome = outcome;
  block->lease.reset();
}

void ReadOperation::AfterLocal(Block* block, Outcome outcome) {
  block->asked = true;
  block->outcome = outcome;
  block->lease.reset();
  const bool may_locate =
      block->locates_left > 0 && !parts_.catalog->address().empty();
  if (may_locate) {
    block->step = Step::kLocate;
  } else {
    EndBlock(block, outcome);
  }
}

bool ReadOperation::Fits(const Block& block, std::uint64_t length) const {
  const std::uint64_t room = RunBytes(block.run);
  if (block.whole) return room == length;
  return block.offset <= length && room <= length - block.offset;
}

CallContext ReadOperation::Context() const {
  return CallContext{.deadline = deadline_,
                     .traffic = request_.traffic,
                     .trace = request_.trace};
}

BlockId ReadOperation::IdOf(std::size_t index) const {
  return BlockId{request_.name_space.id, request_.blocks[index].key};
}

}  // namespace firnkv
