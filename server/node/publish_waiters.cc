#include "server/node/publish_waiters.h"

#include <algorithm>

namespace firnkv {

PublishWaiters::PublishWaiters(std::size_t max_blocks, Executor* executor)
    : max_blocks_(max_blocks), executor_(executor) {}

PublishWaiters::~PublishWaiters() { Close(); }

void PublishWaiters::Add(std::uint64_t position, std::vector<BlockId> blocks,
                         BootTime deadline, Done done) {
  const std::size_t count = blocks.size();
  Outcome refusal = Outcome::kUnset;
  {
    MutexLock lock(&mutex_);
    if (closed_) {
      refusal = Outcome::kCancelled;
    } else if (waiting_blocks_ + count > max_blocks_) {
      refusal = Outcome::kCongested;
    } else {
      const Key key(position, next_++);
      Waiter& waiter = waiters_[key];
      waiting_blocks_ += count;
      for (std::size_t i = 0; i < count; ++i) {
        by_block_[blocks[i]].push_back({key, i});
      }
      waiter.blocks = std::move(blocks);
      waiter.outcomes.assign(count, Outcome::kUnset);
      // Resident now, so an inventory that has begun has it, or its
      // withdrawal is an event.
      waiter.named.assign(count, true);
      waiter.done = std::move(done);
      waiter.timer = executor_->PostAt(
          deadline, scope_.Wrap([this, key] { OnDeadline(key); }));
    }
  }
  if (refusal != Outcome::kUnset) {
    std::move(done)(std::vector<Outcome>(count, refusal));
  }
}

PublishWaiters::Finished PublishWaiters::TakeOut(Waiters::iterator waiter,
                                                 Outcome otherwise,
                                                 Outcome unnamed) {
  const Key key = waiter->first;
  Waiter& one = waiter->second;
  executor_->Cancel(one.timer);
  for (std::size_t i = 0; i < one.blocks.size(); ++i) {
    const auto it = by_block_.find(one.blocks[i]);
    auto& places = it->second;
    places.erase(std::remove(places.begin(), places.end(),
                             std::pair<Key, std::size_t>(key, i)),
                 places.end());
    if (places.empty()) by_block_.erase(it);
    if (one.outcomes[i] == Outcome::kUnset) {
      one.outcomes[i] = one.named[i] ? otherwise : unnamed;
    }
  }
  waiting_blocks_ -= one.blocks.size();
  Finished finished{std::move(one.done), std::move(one.outcomes)};
  waiters_.erase(waiter);
  return finished;
}

void PublishWaiters::Run(std::vector<Finished> finished) {
  for (Finished& one : finished) {
    std::move(one.done)(std::move(one.outcomes));
  }
}

void PublishWaiters::OnRefused(const BlockId& block, Outcome outcome) {
  MutexLock lock(&mutex_);
  const auto it = by_block_.find(block);
  if (it == by_block_.end()) return;
  for (const auto& place : it->second) {
    waiters_.at(place.first).outcomes[place.second] = outcome;
  }
}

void PublishWaiters::OnNamed(const BlockId& block) {
  MutexLock lock(&mutex_);
  const auto it = by_block_.find(block);
  if (it == by_block_.end()) return;
  for (const auto& place : it->second) {
    waiters_.at(place.first).named[place.second] = true;
  }
}

void PublishWaiters::ForgetNamed() {
  MutexLock lock(&mutex_);
  for (auto& one : waiters_) {
    one.second.named.assign(one.second.blocks.size(), false);
  }
}

void PublishWaiters::OnEventsApplied(std::uint64_t position) {
  // What the events did not refuse was told now or had been told before.
  FinishUpTo(position, /*unnamed=*/Outcome::kStored);
}

void PublishWaiters::OnInventoryApplied(std::uint64_t position) {
  FinishUpTo(position, /*unnamed=*/Outcome::kCongested);
}

void PublishWaiters::FinishUpTo(std::uint64_t position, Outcome unnamed) {
  std::vector<Finished> finished;
  {
    MutexLock lock(&mutex_);
    while (!waiters_.empty() && waiters_.begin()->first.first <= position) {
      finished.push_back(TakeOut(waiters_.begin(), Outcome::kStored, unnamed));
    }
  }
  Run(std::move(finished));
}

void PublishWaiters::OnDeadline(Key key) {
  std::vector<Finished> finished;
  {
    MutexLock lock(&mutex_);
    const auto it = waiters_.find(key);
    if (it == waiters_.end()) return;
    finished.push_back(TakeOut(it, Outcome::kTimedOut, Outcome::kTimedOut));
  }
  Run(std::move(finished));
}

std::size_t PublishWaiters::waiting_blocks() const {
  MutexLock lock(&mutex_);
  return waiting_blocks_;
}

void PublishWaiters::Close() {
  std::vector<Finished> finished;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    while (!waiters_.empty()) {
      finished.push_back(
          TakeOut(waiters_.begin(), Outcome::kCancelled, Outcome::kCancelled));
    }
  }
  Run(std::move(finished));
  scope_.Close();
}

}  // namespace firnkv
