#include "client/write_operation.h"

#include <algorithm>
#include <utility>

#include "client/clear_epochs.h"
#include "client/counters.h"
#include "client/frame_calls.h"
#include "client/location_cache.h"
#include "client/session.h"
#include "client/write_batch.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {
void WriteOperation::Start(const ClientParts& parts,
                           const WriteRequest& request, WriteDone done) {
  // Shared: see the class.
  const auto operation =
      std::make_shared<WriteOperation>(parts, request, std::move(done));
  operation->Begin();
}

WriteOperation::WriteOperation(const ClientParts& parts,
                               const WriteRequest& request, WriteDone done)
    : parts_(parts),
      request_(request),
      started_(parts.seams->clock->Now()),
      deadline_(started_ + request.deadline),
      done_(std::move(done)) {}

void WriteOperation::Begin() {
  if (!BeginWrite(parts_, request_, shared_from_this(), [this] {
        MutexLock lock(&mutex_);
        return std::move(done_);
      })) {
    return;
  }
  {
    MutexLock lock(&mutex_);
    blocks_.resize(request_.blocks.size());
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      Block& block = blocks_[i];
      block.length = LengthOf(request_.blocks[i]);
      if (IsWrongSize(request_, block.length)) {
        EndBlock(i, Outcome::kWrongSize);
      }
    }
    timer_ = parts_.seams->executor->PostAt(
        deadline_, parts_.scope->Wrap([self = shared_from_this()] {
          self->End(Outcome::kTimedOut);
        }));
  }
  Reserve();
}

void WriteOperation::Reserve() {
  NodeClient::ReserveCall call;
  call.name_space = request_.name_space.id;
  call.clear_epoch = parts_.epochs->Highest(request_.name_space);
  call.reservation = parts_.options->reservation;
  call.wait_for = request_.wait_for;
  call.hint = request_.hint;
  std::vector<std::size_t> indexes;
  {
    MutexLock lock(&mutex_);
    std::uint64_t bytes = 0;
    for (; next_block_ < blocks_.size(); ++next_block_) {
      const std::size_t i = next_block_;
      if (blocks_[i].ended) continue;
      if (!indexes.empty() && bytes + blocks_[i].length > kWindowBytes) break;
      bytes += blocks_[i].length;
      blocks_[i].reserved = static_cast<std::uint32_t>(indexes.size());
      indexes.push_back(i);
      call.blocks.push_back({.key = request_.blocks[i].key,
                             .place = request_.blocks[i].place,
                             .length = blocks_[i].length});
    }
    reserving_ = true;
    reservation_ = 0;
    order_.clear();
    next_ = 0;
  }
  if (indexes.empty()) return End(Outcome::kUnavailable);
  // The node waits for room until the deadline that it is told. That it found
  // none, and when to come again, must be here before ours.
  const BootTime now = parts_.seams->clock->Now();
  parts_.node->StartReserve(
      Context(now + (deadline_ - now) * 7 / 8), call,
      [self = shared_from_this(),
       indexes](const absl::StatusOr<NodeClient::ReserveAnswer>& answer) {
        self->OnReserved(indexes, answer);
      });
}

void WriteOperation::OnReserved(
    const std::vector<std::size_t>& indexes,
    const absl::StatusOr<NodeClient::ReserveAnswer>& answer) {
  bool late = false;
  {
    MutexLock lock(&mutex_);
    reserving_ = false;
    late = over_;
    if (answer.ok()) {
      session_ = answer->session;
      reservation_ = answer->reservation;
      retry_after_ = std::max(retry_after_, answer->retry_after);
    } else if (absl::IsInvalidArgument(answer.status())) {
      status_ = answer.status();
    }
    for (std::size_t n = 0; n < indexes.size() && !late; ++n) {
      if (!answer.ok()) {
        EndBlock(indexes[n], OutcomeOf(answer.status()));
      } else if (answer->outcomes[n] == Outcome::kStored) {
        order_.push_back(indexes[n]);
      } else {
        EndBlock(indexes[n], answer->outcomes[n]);
      }
    }
  }
  if (answer.ok()) {
    parts_.epochs->Learn(request_.name_space.id, answer->clear_epoch);
  }
  // Nobody will use what was reserved.
  if (late) return Abort();
  Advance();
}

void WriteOperation::Advance() {
  for (;;) {
    ChunkRef chunk;
    bool ended = false;
    bool abort = false;
    {
      MutexLock lock(&mutex_);
      if (over_ || reserving_) return;
      chunk = NextChunk();
      ended = chunk == nullptr && chunks_.empty() && next_ == order_.size();
      // Only one thread goes on to the next window.
      reserving_ = ended;
      abort = ended && LeavesReserved();
    }
    if (ended) {
      if (abort) Abort();
      return Reserve();
    }
    if (chunk == nullptr) break;
    StartChunk(chunk);
  }
  // Whoever waits for this write stages too.
  while (WaitingThread::IsHere() && StageNext()) {
  }
}

WriteOperation::ChunkRef WriteOperation::NextChunk() {
  if (chunks_.size() >= kChunksInFlight || next_ == order_.size()) {
    return nullptr;
  }
  const std::uint64_t most =
      std::min(kChunkBytes, parts_.staging->largest() / kChunksInFlight);
  auto chunk = std::make_shared<Chunk>();  // Shared: see Chunk.
  chunk->number = next_chunk_++;
  std::uint64_t bytes = 0;
  while (next_ < order_.size()) {
    const std::size_t i = order_[next_];
    const std::uint64_t length =
        AlignUp(blocks_[i].length, StagingPool::kAlignment);
    if (!chunk->indexes.empty() && bytes + length > most) break;
    bytes += length;
    chunk->indexes.push_back(i);
    ++next_;
  }
  chunks_.emplace(chunk->number, chunk);
  return chunk;
}

// --- The end.

void WriteOperation::Cancel() { End(Outcome::kCancelled); }

void WriteOperation::End(Outcome rest) {
  absl::AnyInvocable<void(const WriteReport&) &&> on_outcome;
  WriteReport report;
  TimerId timer = TimerId::kNone;
  bool abort = false;
  // Chunks that nobody reads or fills; they go back without the lock.
  std::vector<ChunkRef> idle;
  {
    MutexLock lock(&mutex_);
    if (over_) return;
    over_ = true;
    // Where the answer to a Reserve is still to come, it aborts.
    abort = !reserving_ && LeavesReserved();
    report = Settle(rest);
    for (auto it = chunks_.begin(); it != chunks_.end();) {
      if (it->second->state == Chunk::State::kStaging ||
          it->second->state == Chunk::State::kCommitting) {
        ++it;
        continue;
      }
      idle.push_back(std::move(it->second));
      it = chunks_.erase(it);
    }
    on_outcome = std::move(done_.on_outcome);
    timer = timer_;
  }
  parts_.seams->executor->Cancel(timer);
  for (const ChunkRef& chunk : idle) {
    parts_.staging->Forget(chunk->wish);
    GiveBack(chunk.get());
  }
  std::move(on_outcome)(report);
  {
    MutexLock lock(&mutex_);
    told_ = true;
  }
  if (abort) Abort();
  FreeIfQuiet();
}

WriteReport WriteOperation::Settle(Outcome rest) {
  // Where staging was what a chunk waited for, that is the reason.
  const bool congested =
      rest == Outcome::kTimedOut &&
      std::any_of(chunks_.begin(), chunks_.end(), [](const auto& entry) {
        return entry.second->state == Chunk::State::kWaiting;
      });
  WriteReport report;
  std::vector<bool> waiting(blocks_.size(), false);
  if (congested) {
    for (const auto& [number, chunk] : chunks_) {
      if (chunk->state != Chunk::State::kWaiting) continue;
      for (const std::size_t i : chunk->indexes) waiting[i] = true;
    }
    for (std::size_t n = next_; n < order_.size(); ++n) {
      waiting[order_[n]] = true;
    }
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i].ended) {
      EndBlock(i, waiting[i] ? Outcome::kCongested : rest);
    }
    TellOutcome(parts_, blocks_[i].outcome, blocks_[i].length,
                &request_.blocks[i], &report);
  }
  report.status = status_;
  report.bytes_copied = bytes_copied_;
  report.retry_after = retry_after_;
  report.took = parts_.seams->clock->Now() - started_;
  parts_.counters->bytes_stored.Add(report.bytes_stored);
  parts_.counters->write.Add(report.took);
  return report;
}

void WriteOperation::EndBlock(std::size_t index, Outcome outcome) {
  blocks_[index].ended = true;
  blocks_[index].outcome = outcome;
  if (IsThere(outcome)) {
    // It is here now: no need to go elsewhere for it.
    parts_.locations->Forget(
        BlockId{request_.name_space.id, request_.blocks[index].key});
  }
}

bool WriteOperation::LeavesReserved() const {
  return std::any_of(order_.begin(), order_.end(), [this](std::size_t i) {
    mutex_.AssertHeld();
    return !blocks_[i].ended || !IsThere(blocks_[i].outcome);
  });
}

void WriteOperation::Abort() {
  SessionId session;
  std::uint64_t reservation = 0;
  {
    MutexLock lock(&mutex_);
    session = session_;
    reservation = reservation_;
  }
  if (reservation == 0) return;
  parts_.node->StartAbort(
      Context(parts_.seams->clock->Now() + parts_.options->buffer_grace),
      session, reservation,
      [self = shared_from_this(), reservation](const absl::Status& status) {
        self->OnAborted(reservation, status);
      });
}

void WriteOperation::OnAborted(std::uint64_t reservation,
                               const absl::Status& status) {
  std::vector<ChunkRef> unread;
  SessionId session;
  {
    MutexLock lock(&mutex_);
    for (const auto& [number, chunk] : chunks_) {
      if (chunk->state != Chunk::State::kCommitting) continue;
      if (chunk->commit.reservation != reservation) continue;
      session = chunk->commit.session;
      unread.push_back(chunk);
    }
  }
  if (unread.empty()) return;
  // Without an answer only the session's end frees what the node may be
  // reading (rule S1).
  if (!status.ok() && !SessionIsOver()) {
    parts_.session->End(session, "a commit was not answered in time");
  }
  for (const ChunkRef& chunk : unread) Drop(chunk, Outcome::kUnavailable);
}

bool WriteOperation::SessionIsOver() const {
  SessionId session;
  {
    MutexLock lock(&mutex_);
    session = session_;
  }
  const Session::Welcome welcome = parts_.session->welcome();
  return welcome == nullptr || welcome->session != session;
}

void WriteOperation::FreeIfQuiet() {
  WriteDone done;
  {
    MutexLock lock(&mutex_);
    if (!told_ || freed_ || !chunks_.empty()) return;
    freed_ = true;
    done = std::move(done_);
  }
  std::move(done.on_buffers_free)();
  parts_.operations->Remove(this);
}

CallContext WriteOperation::Context(BootTime deadline) const {
  return CallContext{.deadline = deadline,
                     .traffic = request_.traffic,
                     .trace = request_.trace};
}

}  // namespace firnkv
