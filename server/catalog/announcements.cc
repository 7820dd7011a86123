#include "server/catalog/announcements.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "proto/base/check.h"
#include "proto/base/copy_digest.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/catalog/entry_change.h"
#include "server/catalog/stale_runs.h"

namespace firnkv {
namespace {

absl::Status CheckBuckets(const AnnouncedBatch& batch) {
  const std::vector<std::uint32_t>& buckets = batch.buckets;
  const bool repair = batch.kind == BatchKind::kRepair;
  if (buckets.empty() == repair || buckets.size() > kMaxRepairBuckets) {
    return absl::InvalidArgumentError(StrCat(
        "a repair names 1 to ", kMaxRepairBuckets,
        " buckets, another batch none; this one names ", buckets.size()));
  }
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i] >= kCopyBuckets || (i > 0 && buckets[i] <= buckets[i - 1])) {
      return absl::InvalidArgumentError(
          StrCat("buckets rise, and are below ", kCopyBuckets));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBatch(const AnnouncedBatch& batch) {
  if (batch.copies.size() > kMaxAnnouncementEntries ||
      batch.namespaces.size() > kMaxAnnouncementEntries) {
    return absl::InvalidArgumentError(
        StrCat("a batch has at most ", kMaxAnnouncementEntries, " entries"));
  }
  RETURN_IF_ERROR(CheckBuckets(batch));
  const bool events = batch.kind == BatchKind::kEvents;
  const bool repair = batch.kind == BatchKind::kRepair;
  if ((batch.kind == BatchKind::kInventoryBegin ||
       batch.kind == BatchKind::kInventoryEnd) &&
      !batch.copies.empty()) {
    return absl::InvalidArgumentError(
        "an inventory's entries stand between its begin and its end");
  }
  for (const AnnouncedCopy& copy : batch.copies) {
    if (copy.name_space >= batch.namespaces.size() || copy.tier > kLastTier ||
        copy.generation == Generation::kNone || copy.key.IsZero()) {
      return absl::InvalidArgumentError(
          "an entry needs a namespace of its batch, a known tier, a "
          "generation and a key");
    }
    if (!events && copy.operation != EntryOperation::kPublish) {
      return absl::InvalidArgumentError(
          "inventories and repairs withdraw nothing");
    }
    if (repair &&
        !std::binary_search(batch.buckets.begin(), batch.buckets.end(),
                            CopyBucket(copy.key))) {
      return absl::InvalidArgumentError(
          "a repair names no copy outside its buckets");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<AppliedRecord> Announcements::Follow(
    const AppliedRecord& now, const AnnouncedBatch& batch) {
  // Rule A1: nothing is left out, nothing comes twice.
  if (batch.number != now.applied + 1) {
    return absl::FailedPreconditionError(
        StrCat("batch ", batch.number, " does not follow ", now.applied,
               ", the last applied"));
  }
  const bool running = now.inventory == InventoryState::kRunning;
  AppliedRecord next = now;
  next.applied = batch.number;
  next.refused.clear();
  // The node knows of this registration.
  next.kept_registration = RegistrationId{};
  next.kept_applied = 0;
  switch (batch.kind) {
    case BatchKind::kEvents:
    case BatchKind::kRepair:
      if (now.inventory != InventoryState::kComplete) {
        return absl::FailedPreconditionError(
            running ? "this must wait for the inventory's end"
                    : "a registration begins with an inventory");
      }
      return next;
    case BatchKind::kInventoryBegin: {
      if (running) {
        return absl::FailedPreconditionError("an inventory has begun already");
      }
      ASSIGN_OR_RETURN(next.serial, parts_.cluster->TakeSequences(1));
      CHECK(next.serial > now.serial && next.serial >= now.least_serial);
      next.inventory = InventoryState::kRunning;
      return next;
    }
    case BatchKind::kInventoryPart:
    case BatchKind::kInventoryEnd:
      if (!running) {
        return absl::FailedPreconditionError("no inventory has begun");
      }
      if (batch.kind == BatchKind::kInventoryEnd) {
        // Rule A4: what was not named since BEGIN has an older serial.
        next.inventory = InventoryState::kComplete;
        next.least_serial = next.serial;
      }
      return next;
  }
  return absl::InvalidArgumentError("unknown kind of batch");
}

Outcome Announcements::Judge(const AnnouncedCopy& copy,
                             const NamespaceFacts* facts,
                             ClearEpoch clear_epoch) const {
  if (facts == nullptr) return Outcome::kDenied;
  if (clear_epoch < facts->clear_epoch) return Outcome::kCleared;
  if (clear_epoch > facts->clear_epoch) return Outcome::kUnavailable;
  if (copy.length == 0 || copy.length > kLargestBlockBytes ||
      (facts->block_bytes != 0 && copy.length != facts->block_bytes)) {
    return Outcome::kWrongSize;
  }
  return Outcome::kUnset;
}

Announcements::Named Announcements::NamedBy(const AnnouncedBatch& batch) const {
  Named named;
  for (const AnnouncedNamespace& one : batch.namespaces) {
    named.facts.push_back(parts_.registry->Describe(one.name_space));
    const auto& facts = named.facts.back();
    if (facts.has_value() && one.clear_epoch > facts->clear_epoch) {
      parts_.registry->NoteReported(one.name_space, one.clear_epoch);
    }
  }
  named.blocks.reserve(batch.copies.size());
  named.outcomes.reserve(batch.copies.size());
  for (const AnnouncedCopy& copy : batch.copies) {
    const AnnouncedNamespace& one = batch.namespaces[copy.name_space];
    const auto& facts = named.facts[copy.name_space];
    named.blocks.push_back({.name_space = one.name_space, .key = copy.key});
    named.outcomes.push_back(copy.operation == EntryOperation::kWithdraw
                                 ? Outcome::kUnset
                                 : Judge(copy,
                                         facts.has_value() ? &*facts : nullptr,
                                         one.clear_epoch));
  }
  return named;
}

void Announcements::DropUnnamed(const AnnouncedBatch& batch, const Run& run,
                                const std::vector<BlockId>& there,
                                const Named& named, EntryBatch* entries) {
  if (there.empty()) return;
  using Copy = std::tuple<BlockId, std::uint8_t, Generation>;
  absl::flat_hash_set<Copy> taken;
  for (std::size_t i = 0; i < batch.copies.size(); ++i) {
    if (named.outcomes[i] != Outcome::kUnset) continue;
    taken.emplace(named.blocks[i], batch.copies[i].tier,
                  batch.copies[i].generation);
  }
  for (const BlockId& block : there) {
    DropCopies(entries->Find(block), run, [&](const Location& location) {
      return !taken.contains(Copy(block, location.tier, location.generation));
    });
  }
}

absl::StatusOr<Announcements::Applied> Announcements::Apply(
    const AnnouncedBatch& batch) {
  ASSIGN_OR_RETURN(const AppliedRecord now,
                   parts_.membership->CheckAnnouncer(batch.node, batch.epoch,
                                                     batch.registration));
  if (batch.number == now.applied && batch.number != 0) {
    return Applied{.applied = now.applied, .refused = now.refused};
  }
  ASSIGN_OR_RETURN(AppliedRecord next, Follow(now, batch));
  const Run run{
      .node = batch.node, .epoch = batch.epoch, .serial = next.serial};
  std::vector<BlockId> there;
  if (batch.kind == BatchKind::kRepair) {
    if (!parts_.entries->loaded()) {
      return absl::UnavailableError("the catalog still reads its store");
    }
    ASSIGN_OR_RETURN(there, parts_.entries->BlocksOf(run, batch.buckets));
  }

  const Named named = NamedBy(batch);
  std::vector<BlockId> blocks = named.blocks;
  blocks.insert(blocks.end(), there.begin(), there.end());
  ASSIGN_OR_RETURN(EntryBatch entries, parts_.entries->Load(blocks));
  DropUnnamed(batch, run, there, named, &entries);

  StaleRuns stale(parts_.membership);
  for (std::size_t i = 0; i < batch.copies.size(); ++i) {
    const AnnouncedCopy& copy = batch.copies[i];
    EntryBatch::Slot* const slot = entries.Find(named.blocks[i]);
    const Location location{.run = run,
                            .tier = copy.tier,
                            .generation = copy.generation,
                            .length = copy.length};
    if (copy.operation == EntryOperation::kWithdraw) {
      Withdraw(slot, location);
      continue;
    }
    if (named.outcomes[i] != Outcome::kUnset) {
      next.refused.push_back(
          {static_cast<std::uint32_t>(i), named.outcomes[i]});
      continue;
    }
    DropStale(slot, named.facts[copy.name_space]->clear_epoch, stale);
    Publish(slot, location, batch.namespaces[copy.name_space].clear_epoch,
            copy.place);
  }
  RETURN_IF_ERROR(parts_.entries->Commit(
      std::move(entries), {Membership::WriteOf(batch.node, next)}));
  parts_.membership->Install(batch.node, next);
  return Applied{.applied = next.applied,
                 .refused = std::move(next.refused),
                 .inventory_ended = batch.kind == BatchKind::kInventoryEnd};
}

}  // namespace firnkv
