#include "server/catalog/membership.h"

#include <algorithm>
#include <string>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {

Membership::Membership(const Options& options, const Parts& parts)
    : options_(options), parts_(parts) {
  CHECK(options.lease > absl::ZeroDuration());
}

absl::Status Membership::Load() {
  absl::Status damage;
  std::map<NodeId, NodeState> nodes;
  RETURN_IF_ERROR(parts_.store->Scan(
      Family::kNodes, "", "", [&](std::string_view, std::string_view value) {
        absl::StatusOr<NodeRecord> record = DecodeNode(value);
        damage = record.status();
        if (record.ok()) {
          const NodeId node = record->address.node;
          nodes[node].record = *std::move(record);
        }
        return damage.ok();
      }));
  RETURN_IF_ERROR(damage);
  const BootTime now = parts_.clock->Now();
  for (auto& [id, node] : nodes) {
    ASSIGN_OR_RETURN(const std::optional<std::string> value,
                     parts_.store->Get(Family::kApplied, id.view()));
    // Written together with the node's record.
    if (!value.has_value()) {
      return absl::DataLossError(
          StrCat("catalog store: no applied record of node ", ToHex(id)));
    }
    ASSIGN_OR_RETURN(node.applied, DecodeApplied(*value));
    // Rule A7: a full new term after a start.
    node.lease_ends = now + options_.lease;
    node.last_seen = now;
    if (node.applied.least_serial == kNoSerial) node.life = NodeLife::kReaped;
  }
  MutexLock lock(&mutex_);
  nodes_ = std::move(nodes);
  last_tick_ = now;
  return absl::OkStatus();
}

bool Membership::StoodStill(BootTime now) const {
  return now - last_tick_ >= tick() + options_.lease / 4;
}

void Membership::NoticeStall(BootTime now) {
  if (!StoodStill(now)) return;
  for (auto& [id, node] : nodes_) {
    const bool ran =
        node.life == NodeLife::kAwaited || node.life == NodeLife::kAlive;
    // Those that had ended before the stall began stay ended.
    if (ran && node.lease_ends > last_tick_) {
      node.lease_ends = now + options_.lease;
    }
  }
  last_tick_ = now;
}

bool Membership::LeaseRuns(const NodeState& node, BootTime now) const {
  switch (node.life) {
    case NodeLife::kAwaited:
    case NodeLife::kAlive:
      return node.lease_ends > now ||
             (StoodStill(now) && node.lease_ends > last_tick_);
    case NodeLife::kExpired:
    case NodeLife::kReaped:
      return false;
  }
  return false;
}

absl::StatusOr<Membership::NodeState*> Membership::FindMember(NodeId id,
                                                              NodeEpoch epoch,
                                                              BootTime now) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) {
    return absl::NotFoundError(
        StrCat("node ", ToHex(id), " is not registered here"));
  }
  NodeState& node = it->second;
  if (node.record.address.epoch != epoch) {
    const auto& old = node.record.superseded;
    if (std::find(old.begin(), old.end(), epoch) != old.end()) {
      return absl::AbortedError(
          StrCat("this run of node ", ToHex(id),
                 " was superseded by a later one; it must stop serving"));
    }
    return absl::NotFoundError(
        StrCat("another run of node ", ToHex(id), " is registered"));
  }
  if (!LeaseRuns(node, now)) {
    return absl::NotFoundError(
        StrCat("the lease of node ", ToHex(id), " is over"));
  }
  return &node;
}

absl::Status Membership::KeepAlive(const Beat& beat) {
  const BootTime now = parts_.clock->Now();
  MutexLock lock(&mutex_);
  NoticeStall(now);
  ASSIGN_OR_RETURN(NodeState * node, FindMember(beat.node, beat.epoch, now));
  if (node->record.registration != beat.registration) {
    return absl::NotFoundError(
        StrCat("node ", ToHex(beat.node), " has registered again since"));
  }
  if (beat.applied > node->applied.applied) {
    return absl::NotFoundError(
        StrCat("batch ", beat.applied, " of node ", ToHex(beat.node),
               " was lost with the catalog's last crash; ",
               node->applied.applied, " is the last there is"));
  }
  node->life = NodeLife::kAlive;
  node->lease_ends = now + options_.lease;
  node->last_seen = now;
  node->namespace_cursor = beat.namespace_cursor;
  node->drained_cursor = beat.drained_cursor;
  node->dram_bytes = beat.dram_bytes;
  node->dram_used_bytes = beat.dram_used_bytes;
  node->blocks = beat.blocks;
  return absl::OkStatus();
}

Verdict Membership::JudgeOne(const Run& run, BootTime now) const {
  const auto it = nodes_.find(run.node);
  if (it == nodes_.end()) return Verdict::kStale;
  const NodeState& node = it->second;
  if (node.record.address.epoch != run.epoch ||
      run.serial < node.applied.least_serial) {
    return Verdict::kStale;
  }
  return node.life == NodeLife::kAlive && LeaseRuns(node, now)
             ? Verdict::kServing
             : Verdict::kHidden;
}

std::vector<Verdict> Membership::Judge(absl::Span<const Run> runs) const {
  const BootTime now = parts_.clock->Now();
  std::vector<Verdict> verdicts;
  verdicts.reserve(runs.size());
  MutexLock lock(&mutex_);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // Neighbours in a chain mostly stand at the same node.
    verdicts.push_back(i > 0 && runs[i] == runs[i - 1]
                           ? verdicts.back()
                           : JudgeOne(runs[i], now));
  }
  return verdicts;
}

Membership::Row Membership::RowOf(const NodeState& node, BootTime now) const {
  Row row;
  row.address = node.record.address;
  row.life = node.life;
  // Ended, and no tick has noted it yet.
  if (node.life != NodeLife::kReaped && !LeaseRuns(node, now)) {
    row.life = NodeLife::kExpired;
  }
  row.last_seen_ago = now - node.last_seen;
  row.applied = node.applied;
  row.version = node.record.version;
  row.namespace_cursor = node.namespace_cursor;
  row.drained_cursor = node.drained_cursor;
  row.dram_bytes = node.dram_bytes;
  row.dram_used_bytes = node.dram_used_bytes;
  row.blocks = node.blocks;
  return row;
}

std::optional<Membership::Row> Membership::Find(NodeId node) const {
  const BootTime now = parts_.clock->Now();
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return std::nullopt;
  return RowOf(it->second, now);
}

std::vector<Membership::Row> Membership::List() const {
  const BootTime now = parts_.clock->Now();
  std::vector<Row> rows;
  MutexLock lock(&mutex_);
  for (const auto& [id, node] : nodes_) {
    if (!node.record.registration.IsZero()) rows.push_back(RowOf(node, now));
  }
  return rows;
}

std::vector<Membership::Overdue> Membership::Tick() {
  const BootTime now = parts_.clock->Now();
  std::vector<Overdue> overdue;
  MutexLock lock(&mutex_);
  NoticeStall(now);
  last_tick_ = now;
  for (auto& [id, node] : nodes_) {
    if (node.life == NodeLife::kReaped) continue;
    if (!LeaseRuns(node, now)) node.life = NodeLife::kExpired;
    if (node.life == NodeLife::kExpired &&
        now >= node.lease_ends + options_.grace) {
      overdue.push_back({id, node.record.registration});
    }
  }
  return overdue;
}

// --- On the strand.

absl::StatusOr<Membership::NodeState> Membership::Admit(const Boot& boot,
                                                        BootTime now) {
  const NodeAddress& address = boot.address;
  NodeState next;
  const auto it = nodes_.find(address.node);
  if (it == nodes_.end()) {
    if (nodes_.size() >= options_.max_nodes && !Forgettable().has_value()) {
      return absl::ResourceExhaustedError(
          StrCat("there are ", options_.max_nodes, " nodes already"));
    }
  } else {
    const NodeState& old = it->second;
    const NodeEpoch epoch = old.record.address.epoch;
    next = old;
    if (epoch != address.epoch) {
      const auto& gone = old.record.superseded;
      if (std::find(gone.begin(), gone.end(), address.epoch) != gone.end()) {
        return absl::AbortedError(
            StrCat("this run of node ", ToHex(address.node),
                   " was superseded by a later one; it must stop serving"));
      }
      // Rule A6: who names its predecessor holds that one's data directory.
      if (LeaseRuns(old, now) && boot.predecessor != epoch) {
        return absl::AlreadyExistsError(
            StrCat("node ", ToHex(address.node), " runs already at ",
                   old.record.address.control_address, "; its lease ends in ",
                   absl::FormatDuration(old.lease_ends - now)));
      }
      next = NodeState{};
      next.record.superseded = gone;
      next.record.superseded.push_back(epoch);
      if (next.record.superseded.size() > kMaxSupersededEpochs) {
        next.record.superseded.erase(next.record.superseded.begin());
      }
      next.namespace_cursor = boot.namespace_cursor;
      next.drained_cursor = boot.namespace_cursor;
    }
  }
  if (it == nodes_.end()) {
    next.namespace_cursor = boot.namespace_cursor;
    next.drained_cursor = boot.namespace_cursor;
  }
  next.record.address = address;
  next.record.registration = RegistrationId::Make(parts_.random);
  next.record.version = boot.version;
  next.record.registered_unix_seconds =
      absl::ToUnixSeconds(parts_.clock->WallNow());
  next.dram_bytes = boot.dram_bytes;
  next.applied = Renewed(next.applied, next.record.registration);
  next.life = NodeLife::kAlive;
  return next;
}

// What an earlier registration of a run had applied, as a new one begins.
AppliedRecord Membership::Renewed(const AppliedRecord& before,
                                  RegistrationId registration) {
  AppliedRecord next = before;
  next.registration = registration;
  next.applied = 0;
  next.refused.clear();
  // Nobody may have heard of a registration without batches: then the one
  // before it is still what the node knows.
  if (before.applied != 0) {
    next.kept_registration = before.registration;
    next.kept_applied = before.applied;
  }
  if (before.inventory == InventoryState::kComplete && next.kept_applied != 0) {
    return next;
  }
  // What it named counts until a new inventory has ended.
  next.inventory = InventoryState::kNeeded;
  next.kept_registration = RegistrationId{};
  next.kept_applied = 0;
  if (before.least_serial == kNoSerial) {
    // Reaped, and back: what it had stays gone, what it names next counts.
    next.least_serial = before.serial + 1;
  }
  return next;
}

std::optional<NodeId> Membership::Forgettable() const {
  const NodeState* oldest = nullptr;
  for (const auto& [id, node] : nodes_) {
    if (node.life != NodeLife::kReaped) continue;
    if (oldest == nullptr || node.last_seen < oldest->last_seen) {
      oldest = &node;
    }
  }
  if (oldest == nullptr) return std::nullopt;
  return oldest->record.address.node;
}

absl::StatusOr<Membership::Registered> Membership::Register(const Boot& boot) {
  const NodeId id = boot.address.node;
  if (id.IsZero() || boot.address.epoch == NodeEpoch::kNone) {
    return absl::InvalidArgumentError("a node needs an id and an epoch");
  }
  NodeState next;
  std::vector<Store::Write> writes;
  Registered registered;
  std::optional<NodeId> forgotten;
  {
    MutexLock lock(&mutex_);
    const BootTime now = parts_.clock->Now();
    NoticeStall(now);
    ASSIGN_OR_RETURN(next, Admit(boot, now));
    const auto old = nodes_.find(id);
    registered.replaced =
        old != nodes_.end() &&
        old->second.record.address.epoch != boot.address.epoch;
    if (old == nodes_.end() && nodes_.size() >= options_.max_nodes) {
      forgotten = Forgettable();
    }
  }
  writes.push_back(
      {Family::kNodes, std::string(id.view()), Encode(next.record)});
  writes.push_back(WriteOf(id, next.applied));
  if (forgotten.has_value()) {
    writes.push_back({Family::kNodes, std::string(forgotten->view()), {}});
    writes.push_back({Family::kApplied, std::string(forgotten->view()), {}});
  }
  RETURN_IF_ERROR(parts_.store->Apply(writes, Store::Durability::kSynced));

  registered.registration = next.record.registration;
  registered.namespace_cursor = next.namespace_cursor;
  registered.kept = next.applied.inventory == InventoryState::kComplete;
  registered.kept_registration = next.applied.kept_registration;
  registered.kept_applied = next.applied.kept_applied;
  MutexLock lock(&mutex_);
  const BootTime now = parts_.clock->Now();
  next.lease_ends = now + options_.lease;
  next.last_seen = now;
  if (forgotten.has_value()) nodes_.erase(*forgotten);
  nodes_[id] = std::move(next);
  return registered;
}

absl::StatusOr<AppliedRecord> Membership::CheckAnnouncer(
    NodeId id, NodeEpoch epoch, RegistrationId registration) {
  const BootTime now = parts_.clock->Now();
  MutexLock lock(&mutex_);
  NoticeStall(now);
  ASSIGN_OR_RETURN(NodeState * node, FindMember(id, epoch, now));
  if (node->record.registration != registration) {
    return absl::FailedPreconditionError(
        StrCat("node ", ToHex(id), " has registered again since"));
  }
  return node->applied;
}

Store::Write Membership::WriteOf(NodeId node, const AppliedRecord& applied) {
  return {Family::kApplied, std::string(node.view()), Encode(applied)};
}

void Membership::Install(NodeId id, const AppliedRecord& applied) {
  MutexLock lock(&mutex_);
  const auto it = nodes_.find(id);
  CHECK(it != nodes_.end());
  CHECK(it->second.record.registration == applied.registration);
  it->second.applied = applied;
}

absl::StatusOr<bool> Membership::Reap(const Overdue& overdue) {
  AppliedRecord applied;
  {
    MutexLock lock(&mutex_);
    const BootTime now = parts_.clock->Now();
    NoticeStall(now);
    const auto it = nodes_.find(overdue.node);
    // Rule A3.
    if (it == nodes_.end() || it->second.life != NodeLife::kExpired ||
        it->second.record.registration != overdue.registration) {
      return false;
    }
    applied = it->second.applied;
  }
  Void(&applied);
  RETURN_IF_ERROR(parts_.store->Apply({WriteOf(overdue.node, applied)},
                                      Store::Durability::kLogged));
  MutexLock lock(&mutex_);
  NodeState& node = nodes_.at(overdue.node);
  node.applied = applied;
  node.life = NodeLife::kReaped;
  return true;
}

void Membership::Void(AppliedRecord* applied) {
  applied->applied = 0;
  applied->inventory = InventoryState::kNeeded;
  applied->least_serial = kNoSerial;
  applied->refused.clear();
  applied->kept_registration = RegistrationId{};
  applied->kept_applied = 0;
}

absl::Status Membership::Unregister(NodeId id, NodeEpoch epoch,
                                    RegistrationId registration) {
  NodeRecord record;
  AppliedRecord applied;
  {
    MutexLock lock(&mutex_);
    const BootTime now = parts_.clock->Now();
    NoticeStall(now);
    const auto it = nodes_.find(id);
    // Rule A3. A late or repeated call must not end the run that came after.
    if (it == nodes_.end() || registration.IsZero() ||
        it->second.record.address.epoch != epoch ||
        it->second.record.registration != registration ||
        !LeaseRuns(it->second, now)) {
      return absl::NotFoundError(StrCat("node ", ToHex(id),
                                        " is not registered here, or has "
                                        "registered again since"));
    }
    record = it->second.record;
    applied = it->second.applied;
  }
  record.registration = RegistrationId{};
  applied.registration = RegistrationId{};
  Void(&applied);
  RETURN_IF_ERROR(parts_.store->Apply(
      {{Family::kNodes, std::string(id.view()), Encode(record)},
       WriteOf(id, applied)},
      Store::Durability::kLogged));
  MutexLock lock(&mutex_);
  NodeState& node = nodes_.at(id);
  node.record = std::move(record);
  node.applied = std::move(applied);
  node.life = NodeLife::kReaped;
  return absl::OkStatus();
}

}  // namespace firnkv
