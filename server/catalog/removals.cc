#include "server/catalog/removals.h"

#include <algorithm>

namespace firnkv {

void Removals::Begin(std::uint64_t number) {
  MutexLock lock(&mutex_);
  begin_ = number;
}

Removals::Queue& Removals::QueueOf(NodeId node, NodeEpoch epoch) {
  Queue& queue = queues_[node];
  if (queue.epoch != epoch) {
    queue = Queue{};
    queue.epoch = epoch;
    queue.first = begin_ + 1;
  }
  return queue;
}

bool Removals::Add(NodeId node, NodeEpoch epoch, const Removal& removal) {
  MutexLock lock(&mutex_);
  Queue& queue = QueueOf(node, epoch);
  if (queue.known.contains(removal)) return true;
  if (queue.due.size() >= options_.max_pending_a_node) return false;
  queue.known.insert(removal);
  queue.due.push_back(removal);
  return true;
}

Removals::Due Removals::Take(NodeId node, NodeEpoch epoch, std::uint64_t done,
                             std::size_t most) {
  MutexLock lock(&mutex_);
  Due due{.removals = {}, .number = done};
  const auto it = queues_.find(node);
  if (it == queues_.end()) return due;
  Queue& queue = QueueOf(node, epoch);
  while (!queue.due.empty() && queue.first <= done) {
    queue.known.erase(queue.due.front());
    queue.due.pop_front();
    ++queue.first;
  }
  const std::size_t count = std::min(most, queue.due.size());
  due.removals.assign(queue.due.begin(), queue.due.begin() + count);
  if (count > 0) due.number = queue.first + count - 1;
  return due;
}

std::uint64_t Removals::pending() const {
  MutexLock lock(&mutex_);
  std::uint64_t pending = 0;
  for (const auto& [node, queue] : queues_) pending += queue.due.size();
  return pending;
}

}  // namespace firnkv
