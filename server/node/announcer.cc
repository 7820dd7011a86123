#include "server/node/announcer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "proto/base/text.h"

namespace firnkv {
namespace {

using BatchKind = NodeCatalogClient::BatchKind;

}  // namespace

bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsCancelled(status) ||
         absl::IsUnknown(status) || absl::IsInternal(status);
}

Announcer::Announcer(const Options& options, const Parts& parts,
                     absl::AnyInvocable<void(absl::Status)> on_lost)
    : options_(options),
      parts_(parts),
      on_lost_(std::move(on_lost)),
      waiters_(options.max_waiting_blocks, parts.executor),
      backoff_(options.first_backoff, options.longest_backoff, parts.random) {
  parts_.log->SetWakeUp([this] { Advance(); });
}

Announcer::~Announcer() { Close(); }

void Announcer::Close() {
  parts_.log->Close();
  End();
  waiters_.Close();
  scope_.Close();
}

void Announcer::Begin(const Registration& registration) {
  // Recording begins before the first part is read (see the header).
  const std::uint64_t from = parts_.log->Restart();
  waiters_.ForgetNamed();
  {
    MutexLock lock(&mutex_);
    ++term_;
    registration_ = registration;
    stage_ = Stage::kInventoryBegin;
    sending_ = false;
    batch_.reset();
    progress_ = Progress{};
    applied_ = 0;
    told_ = from;
    backoff_.Reset();
  }
  counters_.inventories.Add();
  Advance();
}

void Announcer::End() {
  parts_.log->Pause();
  MutexLock lock(&mutex_);
  ++term_;
  stage_ = Stage::kIdle;
  sending_ = false;
  batch_.reset();
}

void Announcer::Advance() {
  std::uint64_t term = 0;
  Stage stage = Stage::kIdle;
  Progress progress;
  {
    MutexLock lock(&mutex_);
    if (stage_ == Stage::kIdle || sending_) return;
    if (parts_.log->overflowed()) {
      counters_.overflows.Add();
      return Lose(absl::ResourceExhaustedError(
          "more happened than the announcement log holds"));
    }
    sending_ = true;
    term = term_;
    stage = stage_;
    progress = std::move(progress_);
  }
  std::optional<Batch> batch = Build(stage, &progress);

  NodeCatalogClient::AnnounceCall call;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    progress_ = std::move(progress);
    if (!batch) {
      sending_ = false;
      return;
    }
    batch->call.node = registration_.node;
    batch->call.epoch = registration_.epoch;
    batch->call.registration = registration_.id;
    batch->call.number = applied_ + 1;
    batch_ = std::move(batch);
    call = batch_->call;
  }
  Send(term, call);
}

std::optional<Announcer::Batch> Announcer::Build(Stage stage,
                                                 Progress* progress) {
  Batch batch;
  switch (stage) {
    case Stage::kIdle:
      return std::nullopt;
    case Stage::kInventoryBegin:
      batch.call.kind = BatchKind::kInventoryBegin;
      return batch;
    case Stage::kInventoryPart:
      batch.call.kind = BatchKind::kInventoryPart;
      ReadPart(progress, &batch.call.entries);
      return batch;
    case Stage::kInventoryEnd:
      batch.call.kind = BatchKind::kInventoryEnd;
      return batch;
    case Stage::kEvents: {
      batch.call.kind = BatchKind::kEvents;
      AnnouncementLog::Oldest oldest = parts_.log->Front(options_.batch);
      if (oldest.entries.empty()) return std::nullopt;
      batch.covers = oldest.first + oldest.entries.size();
      batch.call.entries = std::move(oldest.entries);
      return batch;
    }
  }
  return std::nullopt;
}

void Announcer::ReadPart(Progress* progress,
                         std::vector<AnnouncedEntry>* entries) {
  *entries = std::move(progress->rest);
  progress->rest.clear();
  if (entries->empty() && !progress->all_read) {
    progress->all_read = !parts_.pool->EachResident(
        &progress->cursor, options_.batch, [entries](const SlotHeader& header) {
          entries->push_back(PublishOf(header));
        });
  }
  if (entries->size() > options_.batch) {
    const auto cut =
        entries->begin() + static_cast<std::ptrdiff_t>(options_.batch);
    progress->rest.assign(cut, entries->end());
    entries->erase(cut, entries->end());
  }
}

void Announcer::Send(std::uint64_t term,
                     const NodeCatalogClient::AnnounceCall& call) {
  parts_.catalog->StartAnnounce(
      call, options_.call_timeout,
      [this, term](absl::StatusOr<NodeCatalogClient::Announced> answer) {
        OnAnswer(term, std::move(answer));
      });
}

void Announcer::OnAnswer(std::uint64_t term,
                         absl::StatusOr<NodeCatalogClient::Announced> answer) {
  Batch batch;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    if (!answer.ok()) {
      if (!IsPassing(answer.status())) return Lose(answer.status());
      counters_.retries.Add();
      parts_.executor->PostAt(
          parts_.executor->clock()->Now() + backoff_.Next(),
          scope_.Wrap([this, term] { OnRetryTimer(term); }));
      return;
    }
    if (answer->applied != batch_->call.number) {
      return Lose(absl::FailedPreconditionError(
          StrCat("batch ", batch_->call.number, " is answered by applied ",
                 answer->applied)));
    }
    backoff_.Reset();
    applied_ = answer->applied;
    batch = *std::move(batch_);
    batch_.reset();
    switch (stage_) {
      case Stage::kIdle:
      case Stage::kEvents:
        told_ = std::max(told_, batch.covers);
        break;
      case Stage::kInventoryBegin:
        stage_ = Stage::kInventoryPart;
        break;
      case Stage::kInventoryPart:
        if (progress_.all_read && progress_.rest.empty()) {
          stage_ = Stage::kInventoryEnd;
        }
        break;
      case Stage::kInventoryEnd:
        stage_ = Stage::kEvents;
        batch.covers = told_;
        break;
    }
  }
  OnApplied(batch, answer->refused);

  MutexLock lock(&mutex_);
  if (term != term_) return;
  sending_ = false;
  // Not from here: the answer may have come inside the call.
  parts_.executor->Post(scope_.Wrap([this] { Advance(); }));
}

void Announcer::OnApplied(
    const Batch& batch,
    const std::vector<NodeCatalogClient::Refusal>& refused) {
  const std::vector<AnnouncedEntry>& entries = batch.call.entries;
  counters_.batches.Add();
  counters_.entries.Add(entries.size());
  for (const NodeCatalogClient::Refusal& one : refused) {
    if (one.index >= entries.size()) continue;
    const AnnouncedEntry& entry = entries[one.index];
    if (entry.operation != AnnouncedOperation::kPublish) continue;
    counters_.refused.Add();
    parts_.pool->Drop(entry.block, entry.generation);
    waiters_.OnRefused(entry.block, one.outcome);
  }
  switch (batch.call.kind) {
    case BatchKind::kInventoryBegin:
      break;
    case BatchKind::kInventoryPart:
      if (waiters_.waiting_blocks() == 0) break;
      for (const AnnouncedEntry& entry : entries) {
        waiters_.OnNamed(entry.block);
      }
      break;
    case BatchKind::kInventoryEnd:
      waiters_.OnInventoryApplied(batch.covers);
      break;
    case BatchKind::kEvents:
      parts_.log->DropUpTo(batch.covers);
      waiters_.OnEventsApplied(batch.covers);
      break;
  }
}

void Announcer::OnRetryTimer(std::uint64_t term) {
  NodeCatalogClient::AnnounceCall call;
  {
    MutexLock lock(&mutex_);
    if (term != term_ || !batch_) return;
    call = batch_->call;
  }
  Send(term, call);
}

void Announcer::Lose(absl::Status why) {
  const std::uint64_t term = ++term_;
  stage_ = Stage::kIdle;
  sending_ = false;
  batch_.reset();
  parts_.executor->Post(scope_.Wrap([this, term, why = std::move(why)] {
    {
      MutexLock lock(&mutex_);
      if (term != term_) return;
    }
    on_lost_(why);
  }));
}

void Announcer::WaitPublished(std::vector<BlockId> blocks, BootTime deadline,
                              PublishWaiters::Done done) {
  waiters_.Add(parts_.log->end(), std::move(blocks), deadline, std::move(done));
  std::uint64_t told = 0;
  {
    // What is told already moves no waiter by itself.
    MutexLock lock(&mutex_);
    if (stage_ != Stage::kEvents) return;
    told = told_;
  }
  waiters_.OnEventsApplied(told);
}

bool Announcer::complete() const {
  MutexLock lock(&mutex_);
  return stage_ == Stage::kEvents;
}

std::uint64_t Announcer::applied(RegistrationId registration) const {
  MutexLock lock(&mutex_);
  return registration_.id == registration ? applied_ : 0;
}

}  // namespace firnkv
