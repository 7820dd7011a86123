#include "client/remote_reads.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "proto/base/limits.h"

namespace firnkv {

void RemoteReads::Add(NamespaceId name_space, std::vector<RemoteBlock> blocks) {
  // A read may name a block twice; it was read once.
  absl::flat_hash_set<BlockKey> keys;
  std::erase_if(blocks, [&keys](const RemoteBlock& one) {
    return !keys.insert(one.key).second;
  });
  if (blocks.empty()) return;
  const BootTime now = seams_->clock->Now();
  MutexLock lock(&mutex_);
  if (now < paused_until_ || blocks_ + blocks.size() > kMostBlocks) {
    counters_->remote_reads_dropped.Add(blocks.size());
    return;
  }
  blocks_ += blocks.size();
  Batch& batch = BatchFor(name_space, blocks);
  batch.keys.insert(keys.begin(), keys.end());
  std::move(blocks.begin(), blocks.end(), std::back_inserter(batch.blocks));
  SetTimer();
}

RemoteReads::Batch& RemoteReads::BatchFor(
    NamespaceId name_space, const std::vector<RemoteBlock>& blocks) {
  for (Batch& batch : waiting_) {
    // A second read of a block must be told as one.
    if (batch.name_space == name_space &&
        batch.blocks.size() + blocks.size() <= kMaxBatchKeys &&
        std::none_of(blocks.begin(), blocks.end(),
                     [&batch](const RemoteBlock& one) {
                       return batch.keys.contains(one.key);
                     })) {
      return batch;
    }
  }
  waiting_.push_back({.name_space = name_space, .blocks = {}, .keys = {}});
  return waiting_.back();
}

void RemoteReads::SetTimer() {
  if (timer_set_ || waiting_.empty() || calls_ >= kMostCalls) return;
  timer_set_ = true;
  seams_->executor->PostAt(seams_->clock->Now() + kDelay,
                           scope_.Wrap([this] { Send(); }));
}

void RemoteReads::Send() {
  std::vector<Batch> batches;
  {
    MutexLock lock(&mutex_);
    timer_set_ = false;
    const auto room = static_cast<std::size_t>(kMostCalls - calls_);
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(
                                            std::min(room, waiting_.size()));
    std::move(waiting_.begin(), end, std::back_inserter(batches));
    waiting_.erase(waiting_.begin(), end);
    calls_ += static_cast<int>(batches.size());
    for (const Batch& batch : batches) blocks_ -= batch.blocks.size();
  }
  for (Batch& batch : batches) {
    // Shared with the task, which the answer may outlive.
    const auto told = std::make_shared<Told>();
    told->batch = std::move(batch);
    node_->StartNoteRemoteReads(
        told->batch.name_space, told->batch.blocks,
        [told, task = scope_.Wrap([this, told] { OnAnswer(*told); })](
            absl::StatusOr<std::vector<std::size_t>> here) mutable {
          told->here = std::move(here);
          std::move(task)();
        });
  }
}

void RemoteReads::OnAnswer(const Told& told) {
  const absl::StatusOr<std::vector<std::size_t>>& here = told.here;
  const Batch& batch = told.batch;
  if (here.ok()) {
    for (const std::size_t index : *here) {
      locations_->Forget({batch.name_space, batch.blocks[index].key});
    }
    counters_->promoted_here.Add(here->size());
  }
  MutexLock lock(&mutex_);
  --calls_;
  if (!here.ok()) {
    const bool unknown = absl::IsUnimplemented(here.status());
    paused_until_ = seams_->clock->Now() + (unknown ? kLongPause : kPause);
    for (const Batch& one : waiting_) {
      counters_->remote_reads_dropped.Add(one.blocks.size());
    }
    waiting_.clear();
    blocks_ = 0;
  }
  SetTimer();
}

}  // namespace firnkv
