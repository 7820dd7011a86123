#include "server/catalog/announcements.h"

#include <optional>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/limits.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/catalog/entry_change.h"
#include "server/catalog/stale_runs.h"

namespace firnkv {

absl::Status CheckBatch(const AnnouncedBatch& batch) {
  if (batch.copies.size() > kMaxAnnouncementEntries ||
      batch.namespaces.size() > kMaxAnnouncementEntries) {
    return absl::InvalidArgumentError(
        StrCat("a batch has at most ", kMaxAnnouncementEntries, " entries"));
  }
  const bool inventory = batch.kind != BatchKind::kEvents;
  if (inventory && batch.kind != BatchKind::kInventoryPart &&
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
    if (inventory && copy.operation != EntryOperation::kPublish) {
      return absl::InvalidArgumentError("an inventory withdraws nothing");
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
  switch (batch.kind) {
    case BatchKind::kEvents:
      if (now.inventory != InventoryState::kComplete) {
        return absl::FailedPreconditionError(
            running ? "events must wait for the inventory's end"
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

absl::StatusOr<Announcements::Applied> Announcements::Apply(
    const AnnouncedBatch& batch) {
  ASSIGN_OR_RETURN(const AppliedRecord now,
                   parts_.membership->CheckAnnouncer(batch.node, batch.epoch,
                                                     batch.registration));
  if (batch.number == now.applied && batch.number != 0) {
    return Applied{.applied = now.applied, .refused = now.refused};
  }
  ASSIGN_OR_RETURN(AppliedRecord next, Follow(now, batch));

  std::vector<std::optional<NamespaceFacts>> facts;
  for (const AnnouncedNamespace& one : batch.namespaces) {
    facts.push_back(parts_.registry->Describe(one.name_space));
    if (facts.back().has_value() &&
        one.clear_epoch > facts.back()->clear_epoch) {
      parts_.registry->NoteReported(one.name_space, one.clear_epoch);
    }
  }
  std::vector<BlockId> blocks;
  blocks.reserve(batch.copies.size());
  for (const AnnouncedCopy& copy : batch.copies) {
    blocks.push_back(
        {.name_space = batch.namespaces[copy.name_space].name_space,
         .key = copy.key});
  }
  ASSIGN_OR_RETURN(EntryBatch entries, parts_.entries->Load(blocks));

  StaleRuns stale(parts_.membership);
  const Run run{
      .node = batch.node, .epoch = batch.epoch, .serial = next.serial};
  for (std::size_t i = 0; i < batch.copies.size(); ++i) {
    const AnnouncedCopy& copy = batch.copies[i];
    const auto& known = facts[copy.name_space];
    EntryBatch::Slot* const slot = entries.Find(blocks[i]);
    const Location location{.run = run,
                            .tier = copy.tier,
                            .generation = copy.generation,
                            .length = copy.length};
    if (copy.operation == EntryOperation::kWithdraw) {
      Withdraw(slot, location);
      continue;
    }
    const ClearEpoch epoch = batch.namespaces[copy.name_space].clear_epoch;
    const Outcome refused =
        Judge(copy, known.has_value() ? &*known : nullptr, epoch);
    if (refused != Outcome::kUnset) {
      next.refused.push_back({static_cast<std::uint32_t>(i), refused});
      continue;
    }
    DropStale(slot, known->clear_epoch, stale);
    Publish(slot, location, epoch, copy.place);
  }
  RETURN_IF_ERROR(parts_.entries->Commit(
      std::move(entries), {Membership::WriteOf(batch.node, next)}));
  parts_.membership->Install(batch.node, next);
  return Applied{.applied = next.applied,
                 .refused = std::move(next.refused),
                 .inventory_ended = batch.kind == BatchKind::kInventoryEnd};
}

}  // namespace firnkv
