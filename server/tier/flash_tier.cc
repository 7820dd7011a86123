#include "server/tier/flash_tier.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/status.h"

namespace firnkv {

FlashTier::FlashTier(const Options& options, BlockDevice* device,
                     Executor* executor, Random* random,
                     const SegmentOrder* order,
                     FlashSpace::TakeGenerations take_generations,
                     PoolEvents* events)
    : options_(options),
      device_(device),
      executor_(executor),
      random_(random),
      order_(order),
      take_generations_(std::move(take_generations)),
      events_(events),
      opening_(options.opening, device, random, executor->clock()),
      endurance_(options.endurance),
      breaker_(options.breaker) {}

FlashTier::~FlashTier() {
  scope_.Close();
  // What a crash left must not wake what is being destroyed.
  if (space_) space_->DropWaiting();
}

void FlashTier::Later(Task task) {
  executor_->Post(scope_.Wrap(std::move(task)));
}

// --- Opening.

void FlashTier::Open(absl::AnyInvocable<void(absl::Status) &&> done) {
  opened_ = std::move(done);
  opening_.Start([this](absl::StatusOr<FlashSuperblock> superblock) {
    Later([this, superblock = std::move(superblock)] { OnOpened(superblock); });
  });
}

void FlashTier::OnOpened(const absl::StatusOr<FlashSuperblock>& superblock) {
  if (!superblock.ok()) {
    std::move(opened_)(Annotate(superblock.status(), options_.name));
    return;
  }
  space_ = std::make_unique<FlashSpace>(options_.space, *superblock, random_,
                                        take_generations_, events_);
  writer_ = std::make_unique<FlashWriter>(options_.writer, device_,
                                          space_.get(), executor_, &ledger_);
  reader_ = std::make_unique<FlashReader>(
      options_.reader, device_, space_.get(), executor_, &ledger_, [this] {
        if (space_->lagging() > 0) SweepIfOpen();
      });
  contents_ = std::make_unique<FlashContents>(
      device_, space_.get(), writer_.get(), executor_, &ledger_);
  sweep_ = std::make_unique<FlashSweep>(
      space_.get(), contents_.get(), executor_,
      [this](const TenantId& tenant) { return StandingsOf(tenant); });
  reclaimer_ = std::make_unique<FlashReclaimer>(
      space_.get(), reader_.get(), writer_.get(), contents_.get(), order_,
      executor_, &ledger_,
      [this](const TenantId& tenant, const SlotHeader& header) {
        return MayAppendAgain(tenant, header);
      });
  scrubber_ = std::make_unique<FlashScrubber>(
      options_.scrubber, space_.get(), reader_.get(), executor_, &ledger_);
  recovery_ = std::make_unique<FlashRecovery>(device_, space_.get(),
                                              writer_.get(), executor_);
  recovery_->Start(
      [this](const RecoveryReport& report) { OnRecovered(report); });
}

void FlashTier::OnRecovered(const RecoveryReport& report) {
  recovered_ = report;
  // Scanned segments get their tables of contents, so that the next start need
  // not scan them again.
  writer_->SealAll([this] {
    Later([this] {
      reclaimer_->KeepFree(options_.keep_free_segments);
      scrubber_->Start();
      {
        MutexLock lock(&mutex_);
        open_ = true;
      }
      // What was confirmed meanwhile.
      SweepIfOpen();
      std::move(opened_)(absl::OkStatus());
    });
  });
}

// --- Who may.

void FlashTier::Confirm(const Confirmation& confirmation) {
  {
    MutexLock lock(&mutex_);
    const auto [it, added] =
        confirmed_.try_emplace(confirmation.name_space, confirmation);
    // A namespace keeps its tenant for life.
    Confirmation& known = it->second;
    CHECK(known.tenant == confirmation.tenant);
    const ClearEpoch epoch =
        std::max(known.clear_epoch, confirmation.clear_epoch);
    if (!added && known.clear_epoch == epoch &&
        known.serves == confirmation.serves) {
      return;
    }
    known.clear_epoch = epoch;
    known.serves = confirmation.serves;
  }
  SweepIfOpen();
}

void FlashTier::SweepIfOpen() {
  if (events_ == nullptr || !open()) return;
  sweep_->Request();
}

bool FlashTier::open() const {
  MutexLock lock(&mutex_);
  return open_;
}

// Rules C2, C3: what is not of the tenant that the catalog names is nobody's.
FlashSweep::Standings FlashTier::StandingsOf(const TenantId& tenant) const {
  absl::flat_hash_map<NamespaceId, Confirmation> confirmed;
  {
    MutexLock lock(&mutex_);
    confirmed = confirmed_;
  }
  return
      [tenant, confirmed = std::move(confirmed)](const ContentsEntry& entry) {
        using Standing = FlashSpace::Standing;
        const auto it = confirmed.find(entry.block.name_space);
        if (it == confirmed.end()) return Standing::kWait;
        const Confirmation& known = it->second;
        if (known.tenant != tenant || entry.clear_epoch < known.clear_epoch) {
          return Standing::kGone;
        }
        return known.serves && entry.clear_epoch == known.clear_epoch
                   ? Standing::kTell
                   : Standing::kHide;
      };
}

bool FlashTier::settled() const { return !open() || sweep_->settled(); }

void FlashTier::ReadTold(std::uint32_t from, ToldOnes got) {
  std::optional<SegmentName> name;
  if (open()) name = space_->NextSegment(from);
  if (!name) {
    Later(
        [got = std::move(got)]() mutable { std::move(got)({}, std::nullopt); });
    return;
  }
  contents_->Read(
      *name,
      [this, name = *name, got = std::move(got)](
          const std::optional<std::vector<ContentsEntry>>& entries) mutable {
        std::vector<SlotHeader> told;
        if (entries) space_->CopyTold(name, *entries, &told);
        std::move(got)(std::move(told), name.segment + 1);
      });
}

void FlashTier::ScrubNow() {
  if (open()) scrubber_->WalkNow();
}

std::optional<Tier::Confirmation> FlashTier::ConfirmedOf(
    const NamespaceId& name_space) const {
  MutexLock lock(&mutex_);
  const auto it = confirmed_.find(name_space);
  if (!open_ || it == confirmed_.end() || !it->second.serves) {
    return std::nullopt;
  }
  return it->second;
}

bool FlashTier::MayAppendAgain(const TenantId& tenant,
                               const SlotHeader& header) {
  MutexLock lock(&mutex_);
  const auto it = confirmed_.find(header.block.name_space);
  return it != confirmed_.end() && it->second.tenant == tenant &&
         it->second.serves && it->second.clear_epoch == header.clear_epoch &&
         endurance_.Take(header.length, executor_->clock()->Now());
}

bool FlashTier::Begin() {
  const DeviceLoad load = device_->GetLoad();
  const BootTime now = executor_->clock()->Now();
  MutexLock lock(&mutex_);
  if (draining_ || !breaker_.Allows(load, now)) return false;
  ++in_flight_;
  return true;
}

void FlashTier::EndOne(DeviceSaid said) {
  bool last = false;
  {
    MutexLock lock(&mutex_);
    switch (said) {
      case DeviceSaid::kNothing:
        break;
      case DeviceSaid::kWorks:
        breaker_.OnSuccess();
        break;
      case DeviceSaid::kFails:
        breaker_.OnFailure(executor_->clock()->Now());
        break;
    }
    CHECK(in_flight_ > 0);
    --in_flight_;
    last = draining_ && in_flight_ == 0;
  }
  if (last) StopParts();
}

bool FlashTier::failing() const {
  const DeviceLoad load = device_->GetLoad();
  MutexLock lock(&mutex_);
  return breaker_.open() || load.predicted_wait >= options_.breaker.stall;
}

// --- Reading.

bool FlashTier::MayHold(const BlockId& block) const {
  return ConfirmedOf(block.name_space) && space_->MayHold(block);
}

std::optional<std::uint64_t> FlashTier::LengthOf(const BlockId& block) const {
  if (!ConfirmedOf(block.name_space)) return std::nullopt;
  return space_->LengthOf(block);
}

void FlashTier::Load(absl::Span<LoadRequest> batch, BootTime deadline) {
  std::vector<FlashLoad> loads;
  for (LoadRequest& request : batch) {
    const std::optional<Confirmation> confirmed =
        ConfirmedOf(request.block.name_space);
    LoadOutcome refused = LoadOutcome::kLoaded;
    if (!confirmed) {
      refused = LoadOutcome::kAbsent;
    } else if (!Begin()) {
      refused = LoadOutcome::kDeviceFailed;
    }
    if (refused != LoadOutcome::kLoaded) {
      Later([refused, done = std::move(request.done)]() mutable {
        std::move(done)(refused, SlotHeader{});
      });
      continue;
    }
    FlashLoad load;
    load.block = request.block;
    load.tenant = confirmed->tenant;
    load.clear_epoch = confirmed->clear_epoch;
    load.destination = request.destination;
    load.done = [this, done = std::move(request.done)](
                    LoadOutcome outcome, const SlotHeader& header) mutable {
      std::move(done)(outcome, header);
      EndOne(outcome == LoadOutcome::kDeviceFailed ? DeviceSaid::kFails
             : outcome == LoadOutcome::kLoaded     ? DeviceSaid::kWorks
                                                   : DeviceSaid::kNothing);
    };
    loads.push_back(std::move(load));
  }
  if (!loads.empty()) reader_->Load(absl::MakeSpan(loads), deadline);
}

// --- Writing.

void FlashTier::Store(absl::Span<StoreRequest> batch) {
  for (StoreRequest& request : batch) {
    const SlotHeader& header = *request.header;
    const std::optional<Confirmation> confirmed =
        ConfirmedOf(header.block.name_space);
    StoreOutcome refused = StoreOutcome::kStored;
    if (!confirmed || confirmed->clear_epoch != header.clear_epoch ||
        header.length > layout().largest_block_bytes || !IsSane(header)) {
      refused = StoreOutcome::kRefused;
    } else if (!Begin()) {
      refused = StoreOutcome::kDeviceFailed;
    }
    if (refused != StoreOutcome::kStored) {
      Later([refused, done = std::move(request.done)]() mutable {
        std::move(done)(refused, Generation::kNone);
      });
      continue;
    }
    request.done = [this, done = std::move(request.done)](
                       StoreOutcome outcome, Generation generation) mutable {
      std::move(done)(outcome, generation);
      EndOne(outcome == StoreOutcome::kDeviceFailed ? DeviceSaid::kFails
             : outcome == StoreOutcome::kStored     ? DeviceSaid::kWorks
                                                    : DeviceSaid::kNothing);
    };
    StoreOne(std::move(request), confirmed->tenant);
  }
}

void FlashTier::StoreOne(StoreRequest request, const TenantId& tenant) {
  const BlockId& block = request.header->block;
  if (!space_->MayHold(block)) {
    Append(std::move(request), tenant);
    return;
  }
  // A fingerprint proves nothing; the record's header does.
  FlashLoad look;
  look.block = block;
  look.tenant = tenant;
  look.clear_epoch = request.header->clear_epoch;
  reader_->Look(look, [this, tenant, request = std::move(request)](
                          LoadOutcome outcome) mutable {
    if (outcome == LoadOutcome::kLoaded) {
      std::move(request.done)(StoreOutcome::kAlreadyThere, Generation::kNone);
      return;
    }
    Append(std::move(request), tenant);
  });
}

void FlashTier::Append(StoreRequest request, const TenantId& tenant) {
  const std::uint64_t bytes = request.header->length;
  bool taken = false;
  {
    MutexLock lock(&mutex_);
    taken = endurance_.Take(bytes, executor_->clock()->Now());
  }
  if (!taken) {
    ledger_.over_budget_records.Add();
    Later([done = std::move(request.done)]() mutable {
      std::move(done)(StoreOutcome::kOverBudget, Generation::kNone);
    });
    return;
  }
  FlashAppend append;
  append.tenant = tenant;
  append.header = request.header;
  append.bytes = request.bytes;
  append.done = [this, bytes, done = std::move(request.done)](
                    StoreOutcome outcome, Generation generation) mutable {
    if (outcome == StoreOutcome::kFull) {
      // Nothing was written.
      MutexLock lock(&mutex_);
      endurance_.GiveBack(bytes);
    }
    std::move(done)(outcome, generation);
    reclaimer_->KeepFree(options_.keep_free_segments);
  };
  writer_->Append(absl::MakeSpan(&append, 1));
}

void FlashTier::Erase(const BlockId& block) { space_->Erase(block); }

void FlashTier::Reclaim(std::uint64_t bytes, FlashReclaimer::Freed freed) {
  reclaimer_->Reclaim(bytes, std::move(freed));
}

Occupancy FlashTier::GetOccupancy() const {
  const FlashSpaceSnapshot look = space_->Look();
  return {.bytes_used =
              std::uint64_t{look.segments - look.free} * layout().segment_bytes,
          .bytes_capacity = look.segments * layout().segment_bytes,
          .blocks = look.records};
}

// --- Draining.

void FlashTier::Drain(absl::AnyInvocable<void() &&> done) {
  {
    MutexLock lock(&mutex_);
    CHECK(!draining_);
    draining_ = true;
    drained_ = std::move(done);
    // Ends with the last of them.
    ++in_flight_;
  }
  Later([this] { EndOne(DeviceSaid::kNothing); });
}

// Whoever starts reads and writes first, then who writes the last ones.
void FlashTier::StopParts() {
  absl::AnyInvocable<void() &&> done;
  {
    MutexLock lock(&mutex_);
    done = std::move(drained_);
  }
  if (!scrubber_) {
    std::move(done)();
    return;
  }
  scrubber_->Stop([this, done = std::move(done)]() mutable {
    reclaimer_->Stop([this, done = std::move(done)]() mutable {
      sweep_->Stop([this, done = std::move(done)]() mutable {
        writer_->SealAll(std::move(done));
      });
    });
  });
}

}  // namespace firnkv
