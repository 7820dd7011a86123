#include "server/node/copier.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "proto/base/check.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

std::uint64_t LengthOf(const Copier::Block& block) {
  std::uint64_t length = 0;
  for (const StagingRange& range : block.source) length += range.bytes.size();
  return length;
}

}  // namespace

struct Copier::Running {
  Job job;
  // The block that is being copied, or is next.
  std::size_t block = 0;
  // Held while it is being copied.
  CopyTarget target;
  std::uint64_t copied = 0;
  // Where in the source that is.
  std::size_t range = 0;
  std::uint64_t range_offset = 0;
  // Of the piece so far.
  std::uint32_t crc = 0;

  const Block& current() const { return job.blocks[block]; }
};

Copier::Copier(const Options& options, Parts parts)
    : options_(options), parts_(std::move(parts)) {}

Copier::~Copier() { Drain(); }

void Copier::Start(Job job) {
  auto running = std::make_unique<Running>();
  running->job = std::move(job);
  std::uint64_t bytes = 0;
  for (const Block& block : running->job.blocks) bytes += LengthOf(block);
  {
    MutexLock lock(&mutex_);
    queued_bytes_ += bytes;
    queued_by_tenant_[running->job.tenant] += bytes;
    if (!draining_) {
      const TenantId tenant = running->job.tenant;
      Queue& queue = queues_[tenant];
      if (queue.empty()) turns_.push_back(tenant);
      queue.push_back(std::move(running));
      PostSteps();
      return;
    }
  }
  AnswerRest(running.get(), Outcome::kCancelled);
}

void Copier::PostSteps() {
  std::size_t jobs = 0;
  for (const auto& [tenant, queue] : queues_) jobs += queue.size();
  while (steps_ < options_.max_parallel &&
         static_cast<std::size_t>(steps_) < jobs) {
    ++steps_;
    parts_.executor->Post(scope_.Wrap([this] { Step(BootTime()); }));
  }
}

void Copier::Step(BootTime put_off_until) {
  const BootTime now = parts_.executor->clock()->Now();
  if (put_off_until == BootTime()) put_off_until = now + options_.max_put_off;
  const bool busy = parts_.foreground_busy && parts_.foreground_busy();
  std::unique_ptr<Running> running;
  {
    MutexLock lock(&mutex_);
    if (busy && now < put_off_until && !draining_) {
      parts_.executor->PostAt(
          now + options_.put_off,
          scope_.Wrap([this, put_off_until] { Step(put_off_until); }));
      return;
    }
    running = TakeNext();
    if (running == nullptr) {
      --steps_;
      return;
    }
  }
  const bool over = Advance(running.get());
  {
    MutexLock lock(&mutex_);
    --steps_;
    if (!over && !draining_) PutBack(std::move(running));
    if (!draining_) PostSteps();
  }
  // Not put back: the copier is draining.
  if (running != nullptr) AnswerRest(running.get(), Outcome::kCancelled);
}

std::unique_ptr<Copier::Running> Copier::TakeNext() {
  if (turns_.empty()) return nullptr;
  const TenantId tenant = turns_.front();
  turns_.pop_front();
  const auto it = queues_.find(tenant);
  std::unique_ptr<Running> running = std::move(it->second.front());
  it->second.pop_front();
  if (it->second.empty()) {
    queues_.erase(it);
  } else {
    turns_.push_back(tenant);
  }
  return running;
}

void Copier::PutBack(std::unique_ptr<Running> running) {
  const TenantId tenant = running->job.tenant;
  Queue& queue = queues_[tenant];
  if (queue.empty()) turns_.push_back(tenant);
  // Before the tenant's later jobs.
  queue.push_front(std::move(running));
}

bool Copier::Advance(Running* running) {
  std::uint64_t budget = options_.step_bytes;
  while (running->block < running->job.blocks.size()) {
    if (budget == 0) return false;
    if (!running->target.hold.held() && !Begin(running)) continue;
    const Copied copied = CopySome(running, budget);
    // Charged also where it was in vain.
    budget -= copied.bytes;
    if (!copied.sound) {
      // Rule P1: what landed is not what the writer says it wrote.
      parts_.pool->EndReservation(
          absl::MakeConstSpan(&running->current().reserved, 1));
      Answer(running, {.outcome = Outcome::kCorrupt});
      continue;
    }
    if (running->copied < running->target.bytes.size()) continue;
    // What the block is short of a page is paid too.
    if (running->copied < kPageBytes) {
      budget -= std::min(budget, kPageBytes - running->copied);
    }
    const CommitResult result = parts_.pool->Commit(std::move(running->target),
                                                    running->current().pieces);
    Answer(running, result);
  }
  return true;
}

bool Copier::Begin(Running* running) {
  if (parts_.executor->clock()->Now() >= running->job.deadline) {
    // Nor will the later ones be begun. All are reserved still (rule S8).
    AnswerRest(running, Outcome::kTimedOut);
    return false;
  }
  auto begun = parts_.pool->BeginCopy(running->current().reserved);
  if (const auto* const result = std::get_if<CommitResult>(&begun)) {
    Answer(running, *result);
    return false;
  }
  running->target = std::get<CopyTarget>(std::move(begun));
  CHECK(running->target.bytes.size() == LengthOf(running->current()));
  CHECK(running->current().pieces.size() ==
        DivideUp(running->target.bytes.size(), kPieceBytes));
  return true;
}

Copier::Copied Copier::CopySome(Running* running, std::uint64_t most) {
  const Block& block = running->current();
  const std::uint64_t length = running->target.bytes.size();
  std::uint64_t done = 0;
  while (done < most && running->copied < length) {
    while (running->range_offset == block.source[running->range].bytes.size()) {
      ++running->range;
      running->range_offset = 0;
    }
    const absl::Span<const std::byte> from =
        block.source[running->range].bytes.subspan(running->range_offset);
    const std::uint64_t piece_end =
        std::min(length, (running->copied / kPieceBytes + 1) * kPieceBytes);
    const std::uint64_t size = std::min(
        {most - done, std::uint64_t{from.size()}, piece_end - running->copied});
    running->crc =
        CopyWithCrc32c(running->target.bytes.data() + running->copied,
                       from.first(size), running->crc);
    running->copied += size;
    running->range_offset += size;
    done += size;
    if (running->copied < piece_end) continue;
    if (running->crc != block.pieces[(running->copied - 1) / kPieceBytes]) {
      return {.bytes = done, .sound = false};
    }
    running->crc = 0;
  }
  return {.bytes = done};
}

void Copier::Answer(Running* running, CommitResult result) {
  const std::size_t block = running->block;
  {
    const std::uint64_t bytes = LengthOf(running->current());
    MutexLock lock(&mutex_);
    queued_bytes_ -= bytes;
    const auto own = queued_by_tenant_.find(running->job.tenant);
    CHECK(own != queued_by_tenant_.end() && own->second >= bytes);
    own->second -= bytes;
    if (own->second == 0) queued_by_tenant_.erase(own);
  }
  running->target = CopyTarget{};
  running->copied = running->range = running->range_offset = running->crc = 0;
  // Its staging may be reused or unmapped from now on.
  running->job.blocks[block].source.clear();
  ++running->block;
  running->job.done(block, result);
}

void Copier::AnswerRest(Running* running, Outcome outcome) {
  while (running->block < running->job.blocks.size()) {
    Answer(running, {.outcome = outcome});
  }
}

void Copier::Drain() {
  absl::flat_hash_map<TenantId, Queue> queues;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    queues.swap(queues_);
    turns_.clear();
  }
  scope_.Close();
  for (auto& [tenant, queue] : queues) {
    for (const std::unique_ptr<Running>& running : queue) {
      AnswerRest(running.get(), Outcome::kCancelled);
    }
  }
}

bool Copier::Full(TenantId tenant) const {
  MutexLock lock(&mutex_);
  const auto own = queued_by_tenant_.find(tenant);
  return own != queued_by_tenant_.end() &&
         own->second >= options_.max_queued_bytes / queued_by_tenant_.size();
}

std::uint64_t Copier::queued_bytes() const {
  MutexLock lock(&mutex_);
  return queued_bytes_;
}

}  // namespace firnkv
