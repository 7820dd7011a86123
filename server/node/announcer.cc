#include "server/node/announcer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "proto/base/check.h"
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
      digests_(options.digests, parts.random),
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

void Announcer::Begin(
    const Registration& registration,
    const std::optional<NodeCatalogClient::Registered::Kept>& kept) {
  bool resumes = false;
  std::uint64_t told = 0;
  {
    MutexLock lock(&mutex_);
    resumes = kept.has_value() && complete_ && !parts_.log->overflowed();
    ++term_;
    registration_ = registration;
    sending_ = false;
    batch_.reset();
    applied_ = 0;
    backoff_.Reset();
    if (resumes) {
      stage_ = Stage::kEvents;
      progress_ = Progress{};
      compare_from_ = parts_.log->end();
      digests_.ExpectLoss();
      compare_due_ = true;
      counters_.resumed.Add();
    } else {
      BeginInventory();
    }
    told = told_;
  }
  // What was told before moves no waiter that came since by itself.
  if (resumes) waiters_.OnEventsApplied(told);
  Advance();
}

void Announcer::End() {
  MutexLock lock(&mutex_);
  ++term_;
  stage_ = Stage::kIdle;
  sending_ = false;
  batch_.reset();
}

void Announcer::BeginInventory() {
  // Recording begins before the first part is read (see the header).
  told_ = parts_.log->Restart();
  waiters_.ForgetNamed();
  stage_ = Stage::kInventoryBegin;
  progress_ = Progress{};
  complete_ = false;
  compare_due_ = false;
  ++plan_;
  digests_.Reset();
  counters_.inventories.Add();
}

void Announcer::PostAdvance() {
  parts_.executor->Post(scope_.Wrap([this] { Advance(); }));
}

void Announcer::Advance() {
  std::uint64_t term = 0;
  Stage stage = Stage::kIdle;
  Progress progress;
  bool compare = false;
  {
    MutexLock lock(&mutex_);
    if (stage_ == Stage::kIdle || sending_) return;
    if (parts_.log->overflowed()) {
      counters_.overflows.Add();
      // An inventory that has begun cannot begin again in its registration.
      if (!complete_) {
        return Lose(absl::ResourceExhaustedError(
            "more happened than the announcement log holds"));
      }
      BeginInventory();
    }
    compare = MayCompare();
    if (!compare && Gathers()) return;
    sending_ = true;
    term = term_;
    stage = stage_;
    if (!compare) progress = std::move(progress_);
  }
  if (compare) return StartCompare(term);
  std::optional<Batch> batch = Build(stage, &progress);

  NodeCatalogClient::AnnounceCall call;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    progress_ = std::move(progress);
    if (!batch) {
      sending_ = false;
      if (stage_ == Stage::kRepairRead) OnRepairRead();
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

bool Announcer::Gathers() {
  if (stage_ != Stage::kEvents ||
      parts_.executor->clock()->Now() >= gather_until_ ||
      parts_.log->pending() >= options_.batch ||
      waiters_.waiting_blocks() > 0) {
    return false;
  }
  if (std::exchange(gathering_, true)) return true;
  parts_.executor->PostAt(gather_until_, scope_.Wrap([this] {
    {
      MutexLock lock(&mutex_);
      gathering_ = false;
    }
    Advance();
  }));
  return true;
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
    case Stage::kRepairRead:
      progress->repair_read = progress->repair->Read(*parts_.pool);
      return std::nullopt;
    case Stage::kRepairPart: {
      batch.call.kind = BatchKind::kRepair;
      std::optional<BucketRepair::Part> part = progress->repair->TakePart();
      CHECK(part.has_value());
      batch.call.buckets = std::move(part->buckets);
      batch.call.entries = std::move(part->entries);
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
    if (stage_ == Stage::kEvents) {
      gather_until_ = parts_.executor->clock()->Now() + options_.gather;
    }
    Follow(&batch);
  }
  OnApplied(batch, answer->refused);

  MutexLock lock(&mutex_);
  if (term != term_) return;
  sending_ = false;
  PostAdvance();
}

void Announcer::Follow(Batch* batch) {
  switch (stage_) {
    case Stage::kIdle:
    case Stage::kEvents:
      told_ = std::max(told_, batch->covers);
      return;
    case Stage::kInventoryBegin:
      stage_ = Stage::kInventoryPart;
      return;
    case Stage::kInventoryPart:
      if (progress_.all_read && progress_.rest.empty()) {
        stage_ = Stage::kInventoryEnd;
      }
      return;
    case Stage::kInventoryEnd:
      stage_ = Stage::kEvents;
      batch->covers = told_;
      complete_ = true;
      compare_from_ = parts_.log->end();
      PlanCompare(digests_.DelayAfter(DigestWatch::Verdict::kSame));
      return;
    case Stage::kRepairRead:
      // Sends nothing.
      CHECK(false);
      return;
    case Stage::kRepairPart:
      if (!progress_.repair->finished()) return;
      stage_ = Stage::kEvents;
      counters_.repaired_buckets.Add(progress_.repair->buckets());
      counters_.repaired_entries.Add(progress_.repair->entries());
      progress_ = Progress{};
      PlanCompare(digests_.DelayAfter(DigestWatch::Verdict::kRepair));
      return;
  }
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
    case BatchKind::kRepair:
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

// --- Comparing and repairing.

void Announcer::PlanCompare(absl::Duration delay) {
  compare_at_ = parts_.executor->clock()->Now() + delay;
  parts_.executor->PostAt(compare_at_,
                          scope_.Wrap([this, term = term_, plan = ++plan_] {
                            {
                              MutexLock lock(&mutex_);
                              if (term != term_ || plan != plan_) return;
                              compare_due_ = true;
                            }
                            Advance();
                          }));
}

// Not a withdrawal of what was missed: readers believe a location for a while,
// so most come for a copy that left a moment ago and whose withdrawal is told
// already. Only a comparison tells those from what the catalog has wrong, and
// then mends it, whatever generation it has; and it cannot hurt a live copy.
void Announcer::CompareSoon() {
  const BootTime soon =
      parts_.executor->clock()->Now() + options_.digests.second_look;
  MutexLock lock(&mutex_);
  if (stage_ != Stage::kEvents || compare_due_ || compare_at_ <= soon) return;
  PlanCompare(options_.digests.second_look);
}

bool Announcer::MayCompare() const {
  // More than a batch is not told: later, since Told would take long.
  return compare_due_ && stage_ == Stage::kEvents && told_ >= compare_from_ &&
         parts_.log->pending() <= options_.batch;
}

void Announcer::StartCompare(std::uint64_t term) {
  // While cleared copies wait to be swept the catalog may have let them go
  // already; their withdrawals are still to come.
  const bool sweeping = parts_.pool->Snapshot().unswept_entries > 0;
  std::optional<BucketSums> told = parts_.log->Told();
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    compare_due_ = false;
    // An overflow leads to an inventory.
    if (!told.has_value() || (sweeping && !digests_.hasty())) {
      sending_ = false;
      PlanCompare(digests_.DelayAfterFailure());
      return PostAdvance();
    }
    digests_.Begin(*std::move(told));
  }
  counters_.compares.Add();
  SendCompare(term);
}

void Announcer::SendCompare(std::uint64_t term) {
  NodeCatalogClient::CompareCall call;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    call = {.node = registration_.node,
            .epoch = registration_.epoch,
            .registration = registration_.id,
            .number = applied_,
            .groups = digests_.groups(),
            .digests = digests_.Digests()};
  }
  parts_.catalog->StartCompareDigests(
      call, options_.call_timeout,
      [this, term](absl::StatusOr<NodeCatalogClient::Compared> answer) {
        // Not from here: it may have come inside the call.
        parts_.executor->Post(
            scope_.Wrap([this, term, answer = std::move(answer)] {
              OnCompared(term, answer);
            }));
      });
}

void Announcer::OnCompared(
    std::uint64_t term,
    const absl::StatusOr<NodeCatalogClient::Compared>& answer) {
  DigestWatch::Verdict verdict = DigestWatch::Verdict::kSame;
  std::size_t different = 0;
  {
    MutexLock lock(&mutex_);
    if (term != term_) return;
    // A catalog that cannot compare is no reason to register anew; one that
    // does not know the registration is.
    if (absl::IsNotFound(answer.status()) || absl::IsAborted(answer.status()) ||
        absl::IsFailedPrecondition(answer.status())) {
      return Lose(answer.status());
    }
    if (!answer.ok() || answer->loading || answer->applied != applied_) {
      // Batches that it lost are the next heartbeat's to notice.
      digests_.OnFailure();
      PlanCompare(answer.ok() ? digests_.DelayAfterFailure()
                              : options_.longest_backoff);
      sending_ = false;
      return PostAdvance();
    }
    verdict = digests_.OnAnswer(answer->different);
    different = digests_.different().size();
    if (verdict != DigestWatch::Verdict::kAskBuckets) {
      OnVerdict(verdict);
      sending_ = false;
      PostAdvance();
    }
  }
  if (verdict == DigestWatch::Verdict::kAskBuckets) return SendCompare(term);
  if (verdict == DigestWatch::Verdict::kRepair ||
      verdict == DigestWatch::Verdict::kInventory) {
    parts_.logger->Write(
        Severity::kWarning, "catalog_differs",
        {{"buckets", different},
         {"mended_by",
          verdict == DigestWatch::Verdict::kRepair ? "repair" : "inventory"}});
  }
}

void Announcer::OnVerdict(DigestWatch::Verdict verdict) {
  switch (verdict) {
    case DigestWatch::Verdict::kAskBuckets:
      return;
    case DigestWatch::Verdict::kSame:
    case DigestWatch::Verdict::kLookAgain:
      PlanCompare(digests_.DelayAfter(verdict));
      return;
    case DigestWatch::Verdict::kRepair:
      counters_.different_buckets.Add(digests_.different().size());
      stage_ = Stage::kRepairRead;
      progress_ = Progress{};
      progress_.repair.emplace(BucketRepair::Options{.batch = options_.batch},
                               digests_.different());
      return;
    case DigestWatch::Verdict::kInventory:
      counters_.different_buckets.Add(digests_.different().size());
      return BeginInventory();
  }
}

void Announcer::OnRepairRead() {
  switch (progress_.repair_read) {
    case BucketRepair::Progress::kMore:
      break;
    case BucketRepair::Progress::kAll:
      stage_ = Stage::kRepairPart;
      compare_from_ = parts_.log->end();
      break;
    case BucketRepair::Progress::kTooMuch:
      BeginInventory();
      break;
  }
  PostAdvance();
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
    if (gathering_) PostAdvance();
    if (stage_ == Stage::kIdle || !complete_) return;
    told = told_;
  }
  waiters_.OnEventsApplied(told);
}

bool Announcer::complete() const {
  MutexLock lock(&mutex_);
  return stage_ != Stage::kIdle && complete_;
}

std::uint64_t Announcer::applied(RegistrationId registration) const {
  MutexLock lock(&mutex_);
  return registration_.id == registration ? applied_ : 0;
}

}  // namespace firnkv
