// One chunk of a write: from the caller's buffers to the answer of its Commit.

#include <algorithm>
#include <set>
#include <utility>

#include "client/counters.h"
#include "client/session.h"
#include "client/write_batch.h"
#include "client/write_operation.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

void AppendExtent(const Extent& extent, Extents* extents) {
  if (extent.length == 0) return;
  if (!extents->empty()) {
    Extent& last = extents->back();
    if (last.memory == extent.memory &&
        last.offset + last.length == extent.offset) {
      last.length += extent.length;
      return;
    }
  }
  extents->push_back(extent);
}

// Whether the node has surely ended what the call made it do.
bool IsAnswer(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return false;
    default:
      return true;
  }
}

}  // namespace

void WriteOperation::StartChunk(const ChunkRef& chunk) {
  chunk->pins.clear();
  for (const std::size_t i : chunk->indexes) {
    chunk->pins.push_back(chunk->copy_all ? std::vector<StagingPool::Pin>()
                                          : PinBlock(i));
  }
  TakeStaging(chunk);
}

std::vector<StagingPool::Pin> WriteOperation::PinBlock(
    std::size_t index) const {
  std::vector<StagingPool::Pin> pins;
  Extents extents;
  for (const ConstBuffer& buffer : request_.blocks[index].source) {
    if (buffer.length == 0) continue;
    auto pin = parts_.staging->PinShared({buffer.address, buffer.length});
    if (!pin) return {};
    AppendExtent({.memory = pin->staging(),
                  .offset = pin->offset(),
                  .length = buffer.length},
                 &extents);
    pins.push_back(*std::move(pin));
  }
  if (extents.size() > kMaxExtents) pins.clear();
  return pins;
}

void WriteOperation::TakeStaging(const ChunkRef& chunk) {
  std::uint64_t bytes = 0;
  {
    MutexLock lock(&mutex_);
    for (std::size_t n = 0; n < chunk->indexes.size(); ++n) {
      if (!chunk->pins[n].empty()) continue;
      bytes +=
          AlignUp(blocks_[chunk->indexes[n]].length, StagingPool::kAlignment);
    }
  }
  if (bytes == 0) return OnStaging(chunk, StagingPool::Range());
  if (bytes > parts_.staging->largest()) {
    return Drop(chunk, Outcome::kWrongSize);
  }
  if (!Enter(chunk, Chunk::State::kWaiting)) return;
  const std::uint64_t wish = parts_.staging->StartTake(
      bytes, [self = shared_from_this(), chunk](StagingPool::Range range) {
        if (!range) return self->Drop(chunk, Outcome::kCongested);
        self->OnStaging(chunk, std::move(range));
      });
  bool forget = false;
  {
    MutexLock lock(&mutex_);
    forget = over_;
    if (chunk->state == Chunk::State::kWaiting) chunk->wish = wish;
  }
  if (forget) parts_.staging->Forget(wish);
}

void WriteOperation::OnStaging(const ChunkRef& chunk,
                               StagingPool::Range range) {
  std::uint64_t bytes = 0;
  if (!Enter(chunk, Chunk::State::kStaging)) return;
  chunk->range = std::move(range);
  {
    MutexLock lock(&mutex_);
    for (const std::size_t i : chunk->indexes) bytes += blocks_[i].length;
  }
  if (bytes <= kInlineBytes) return Stage(chunk);
  {
    MutexLock lock(&mutex_);
    to_stage_.push_back(chunk);
  }
  parts_.seams->executor->Post(
      parts_.scope->Wrap([self = shared_from_this()] { self->StageNext(); }));
}

bool WriteOperation::StageNext() {
  ChunkRef chunk;
  {
    MutexLock lock(&mutex_);
    if (to_stage_.empty()) return false;
    chunk = std::move(to_stage_.front());
    to_stage_.pop_front();
  }
  Stage(chunk);
  return true;
}

void WriteOperation::Stage(const ChunkRef& chunk) {
  std::uint64_t offset = 0;
  chunk->commit.blocks.clear();
  for (std::size_t n = 0; n < chunk->indexes.size(); ++n) {
    StageBlock(chunk.get(), n, &offset);
  }
  {
    MutexLock lock(&mutex_);
    bytes_copied_ += offset;
    for (std::size_t n = 0; n < chunk->indexes.size(); ++n) {
      chunk->commit.blocks[n].index = blocks_[chunk->indexes[n]].reserved;
    }
  }
  parts_.counters->bytes_staged.Add(offset);
  if (!Enter(chunk, Chunk::State::kAccepting)) return;
  AwaitAccepted(chunk);
}

void WriteOperation::StageBlock(Chunk* chunk, std::size_t n,
                                std::uint64_t* offset) const {
  const absl::Span<const ConstBuffer> source =
      request_.blocks[chunk->indexes[n]].source;
  std::uint64_t length = 0;
  NodeClient::CommitCall::Block block;
  std::size_t pin = 0;
  for (const ConstBuffer& buffer : source) {
    length += buffer.length;
    if (chunk->pins[n].empty() || buffer.length == 0) continue;
    AppendExtent({.memory = chunk->pins[n][pin].staging(),
                  .offset = chunk->pins[n][pin].offset(),
                  .length = buffer.length},
                 &block.extents);
    ++pin;
  }
  std::byte* to = nullptr;
  if (chunk->pins[n].empty()) {
    to = chunk->range.bytes().data() + *offset;
    block.extents.push_back({.memory = chunk->range.staging(),
                             .offset = chunk->range.offset() + *offset,
                             .length = length});
    *offset += AlignUp(length, StagingPool::kAlignment);
  }
  block.pieces = StagePieces(source, length, to);
  chunk->commit.blocks.push_back(std::move(block));
}

void WriteOperation::AwaitAccepted(const ChunkRef& chunk) {
  std::set<std::uint64_t> stagings;
  for (const NodeClient::CommitCall::Block& block : chunk->commit.blocks) {
    for (const Extent& extent : block.extents) stagings.insert(extent.memory);
  }
  {
    MutexLock lock(&mutex_);
    chunk->unaccepted = stagings.size();
    chunk->accepted = absl::OkStatus();
  }
  for (const std::uint64_t staging : stagings) {
    parts_.session->WhenAccepted(staging, [self = shared_from_this(),
                                           chunk](const absl::Status& status) {
      self->OnAccepted(chunk, status);
    });
  }
}

void WriteOperation::OnAccepted(const ChunkRef& chunk,
                                const absl::Status& status) {
  absl::Status all;
  bool pinned = false;
  {
    MutexLock lock(&mutex_);
    if (!status.ok()) chunk->accepted = status;
    --chunk->unaccepted;
    if (chunk->unaccepted > 0 || over_) return;
    all = chunk->accepted;
    for (const auto& pins : chunk->pins) pinned = pinned || !pins.empty();
  }
  if (all.ok()) return Commit(chunk);
  if (absl::IsResourceExhausted(all) && pinned && !chunk->copy_all) {
    // The node does not take the caller's shared memory; ours may still do.
    if (!Enter(chunk, Chunk::State::kStaging)) return;
    GiveBack(chunk.get());
    chunk->copy_all = true;
    return StartChunk(chunk);
  }
  Drop(chunk, OutcomeOf(all));
}

void WriteOperation::Commit(const ChunkRef& chunk) {
  if (!Enter(chunk, Chunk::State::kCommitting)) return;
  {
    MutexLock lock(&mutex_);
    chunk->commit.session = session_;
    chunk->commit.reservation = reservation_;
  }
  chunk->commit.wait_for = request_.wait_for;
  chunk->commit.grace = parts_.options->buffer_grace;
  parts_.node->StartCommit(
      Context(deadline_), chunk->commit,
      [self = shared_from_this(),
       chunk](const absl::StatusOr<NodeClient::CommitAnswer>& answer) {
        self->OnCommitted(chunk, answer);
      });
}

void WriteOperation::OnCommitted(
    const ChunkRef& chunk,
    const absl::StatusOr<NodeClient::CommitAnswer>& answer) {
  bool abort = false;
  {
    MutexLock lock(&mutex_);
    if (answer.ok()) {
      retry_after_ = std::max(retry_after_, answer->retry_after);
    } else if (absl::IsInvalidArgument(answer.status())) {
      status_ = answer.status();
    }
    abort = !over_;
    for (std::size_t n = 0; n < chunk->indexes.size() && !over_; ++n) {
      EndBlock(chunk->indexes[n],
               answer.ok() ? answer->outcomes[n] : OutcomeOf(answer.status()));
    }
  }
  if (answer.ok() || IsAnswer(answer.status()) || SessionIsOver()) {
    return Drop(chunk, Outcome::kUnavailable);
  }
  // The node may still be reading. An Abort's answer says that it is not; End
  // has sent one where the write is over.
  if (abort) Abort();
}

bool WriteOperation::Enter(const ChunkRef& chunk, Chunk::State state) {
  bool mine = false;
  {
    MutexLock lock(&mutex_);
    if (!over_) {
      chunk->state = state;
      chunk->wish = 0;
      return true;
    }
    mine = chunks_.erase(chunk->number) > 0;
  }
  if (mine) GiveBack(chunk.get());
  FreeIfQuiet();
  return false;
}

void WriteOperation::Drop(const ChunkRef& chunk, Outcome rest) {
  bool over = false;
  {
    MutexLock lock(&mutex_);
    if (chunks_.erase(chunk->number) == 0) return;
    over = over_;
    for (const std::size_t i : chunk->indexes) {
      if (!over && !blocks_[i].ended) EndBlock(i, rest);
    }
  }
  GiveBack(chunk.get());
  if (over) return FreeIfQuiet();
  Advance();
}

void WriteOperation::GiveBack(Chunk* chunk) {
  chunk->range = StagingPool::Range();
  chunk->pins.clear();
}

}  // namespace firnkv
