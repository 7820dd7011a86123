#include "server/node/copy_checks.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace firnkv {

void CopyChecks::Start(TenantId tenant, std::vector<Copy> copies, Done done) {
  const std::size_t count = copies.size();
  Outcome refusal = Outcome::kUnset;
  {
    MutexLock lock(&mutex_);
    const auto own = queues_.find(tenant);
    const std::size_t waiting = own == queues_.end() ? 0 : own->second.waiting;
    if (closed_) {
      refusal = Outcome::kCancelled;
    } else if (waiting_ + count > options_.max_waiting ||
               waiting + count > options_.max_waiting_a_tenant) {
      refusal = Outcome::kCongested;
    } else if (count > 0) {
      waiting_ += count;
      queues_[tenant].waiting += count;
      PutLast(std::make_unique<Report>(Report{.tenant = tenant,
                                              .copies = std::move(copies),
                                              .outcomes = {},
                                              .done = std::move(done)}));
      if (!checking_) PostNext();
      return;
    }
  }
  if (refusal == Outcome::kCongested) counters_.refused.Add(count);
  std::move(done)(std::vector<Outcome>(count, refusal));
}

void CopyChecks::PutLast(std::unique_ptr<Report> report) {
  const TenantId tenant = report->tenant;
  Queue& queue = queues_[tenant];
  if (queue.reports.empty()) turns_.push_back(tenant);
  queue.reports.push_back(std::move(report));
}

void CopyChecks::PostNext() {
  checking_ = true;
  parts_.executor->PostAt(std::max(next_at_, parts_.executor->clock()->Now()),
                          scope_.Wrap([this] { CheckNext(); }));
}

// One copy a task: the next one is another tenant's, if there is one.
void CopyChecks::CheckNext() {
  std::unique_ptr<Report> report;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    Queue& queue = queues_.at(turns_.front());
    report = std::move(queue.reports.front());
    queue.reports.pop_front();
    if (!queue.reports.empty()) turns_.push_back(turns_.front());
    turns_.pop_front();
  }
  const Copy& copy = report->copies[report->outcomes.size()];
  std::uint64_t bytes = 0;
  report->outcomes.push_back(
      parts_.pool->Verify(copy.block, copy.generation, &bytes));
  counters_.checked.Add();
  {
    MutexLock lock(&mutex_);
    next_at_ = parts_.executor->clock()->Now() +
               absl::Seconds(static_cast<double>(bytes) /
                             static_cast<double>(options_.bytes_a_second));
    --waiting_;
    const auto queue = queues_.find(report->tenant);
    if (--queue->second.waiting == 0) queues_.erase(queue);
    if (closed_) {
      report->outcomes.resize(report->copies.size(), Outcome::kCancelled);
    } else if (report->outcomes.size() < report->copies.size()) {
      PutLast(std::move(report));
    }
    checking_ = false;
    if (!closed_ && !turns_.empty()) PostNext();
  }
  if (report != nullptr) std::move(report->done)(std::move(report->outcomes));
}

void CopyChecks::Close() {
  absl::flat_hash_map<TenantId, Queue> queues;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  // A check that runs accounts for itself.
  scope_.Close();
  {
    MutexLock lock(&mutex_);
    queues.swap(queues_);
    turns_.clear();
  }
  for (auto& [tenant, queue] : queues) {
    for (const std::unique_ptr<Report>& report : queue.reports) {
      report->outcomes.resize(report->copies.size(), Outcome::kCancelled);
      std::move(report->done)(std::move(report->outcomes));
    }
  }
}

}  // namespace firnkv
