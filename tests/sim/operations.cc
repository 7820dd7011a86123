#include "tests/sim/operations.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/text.h"
#include "tests/sim/operation.h"

namespace firnkv {

namespace {

constexpr std::byte kGivenBack{0xdd};
// What the client's timers and tasks may add; no computing takes time here.
constexpr absl::Duration kSlack = absl::Milliseconds(5);

bool MayBeReadOutcome(Outcome outcome) {
  switch (outcome) {
    case Outcome::kHit:
    case Outcome::kMiss:
    case Outcome::kExpired:
    case Outcome::kBeingWritten:
    case Outcome::kUnavailable:
    case Outcome::kTimedOut:
    case Outcome::kCongested:
    case Outcome::kSkipped:
    case Outcome::kCancelled:
    case Outcome::kWrongSize:
      return true;
    case Outcome::kCorrupt:
    case Outcome::kDenied:
    case Outcome::kStaleLocation:
    case Outcome::kStored:
    case Outcome::kAlreadyThere:
    case Outcome::kOverQuota:
    case Outcome::kReservationOver:
    case Outcome::kCleared:
    case Outcome::kUnset:
      return false;
  }
  return false;
}

}  // namespace

Operations::Operations(SimWorld* world, Oracle* oracle)
    : world_(world), oracle_(oracle) {
  world->control()->Watch(
      [this](const SimControl::Seen& seen) { OnCall(seen); });
}

Operations::Shared Operations::Begin(SimWorker* worker, std::string_view kind,
                                     std::size_t name_space,
                                     const std::vector<PlannedBlock>& blocks,
                                     absl::Duration deadline, Done done) {
  Shared op = std::make_shared<SimOperation>();
  op->number = next_++;
  op->kind = std::string(kind);
  op->worker = worker;
  op->life = worker->life();
  op->pauses = worker->pauses();
  op->began = worker->process()->clock()->Now();
  op->began_true = world_->executor()->true_nanos();
  op->deadline = deadline;
  op->name_space = name_space;
  op->clears_seen = SeenBy(*worker, name_space)->clears;
  op->blocks = blocks;
  op->done = std::move(done);
  ++counts_.begun;
  live_.push_back(op);
  world_->executor()->Mix(kind);
  world_->executor()->Note(StrCat("begins ", op->Name()));
  return op;
}

Operations::Seen* Operations::SeenBy(const SimWorker& worker,
                                     std::size_t name_space) {
  Seen* const seen = &seen_[{&worker, name_space}];
  if (seen->life != worker.life()) {
    *seen = {.life = worker.life(), .clears = 0};
    NoteSeen(worker, name_space);
  }
  return seen;
}

void Operations::NoteSeen(const SimWorker& worker, std::size_t name_space) {
  const NamespaceHandle& handle = worker.name_space(name_space);
  Seen* const seen = &seen_[{&worker, name_space}];
  seen->clears = std::max(seen->clears,
                          oracle_->ClearsUpTo(handle.id, handle.clear_epoch));
}

bool Operations::OnOutcome(const Shared& op) {
  if (op->life != op->worker->life()) return false;
  if (op->outcome_came) {
    oracle_->Violation(StrCat("OUTCOME TWICE: ", op->Name()));
    return false;
  }
  op->outcome_came = true;
  const absl::Duration took = op->worker->process()->clock()->Now() - op->began;
  if (op->pauses == op->worker->pauses() && took > op->deadline + kSlack) {
    oracle_->Violation(StrCat("LATE OUTCOME: ", op->Name(), ": ",
                              absl::FormatDuration(took), " of ",
                              absl::FormatDuration(op->deadline)));
  }
  return true;
}

bool Operations::OnFree(const Shared& op) {
  if (op->life != op->worker->life()) return false;
  if (!op->outcome_came || op->free_came) {
    oracle_->Violation(StrCat("BUFFERS FREE TWICE OR FIRST: ", op->Name()));
    return false;
  }
  op->free_came = true;
  const absl::Duration took = op->worker->process()->clock()->Now() - op->began;
  const absl::Duration limit =
      op->deadline + op->worker->options().client.buffer_grace + kSlack;
  if (op->pauses == op->worker->pauses() && took > limit) {
    oracle_->Violation(
        StrCat("LATE BUFFERS: ", op->Name(), ": ", absl::FormatDuration(took)));
  }
  return true;
}

void Operations::End(const Shared& op) {
  ++counts_.ended;
  if (world_->executor()->tracing()) {
    std::string text = StrCat("ends ", op->Name(), ":");
    for (std::size_t i = 0; i < op->outcomes.size(); ++i) {
      absl::StrAppend(&text, " ", ToHex(op->blocks[i].key).substr(0, 8), "=",
                      std::string(OutcomeName(op->outcomes[i])));
    }
    world_->executor()->Note(text);
  }
  for (const Outcome outcome : op->outcomes) {
    world_->executor()->Mix(static_cast<std::uint64_t>(outcome));
  }
  live_.erase(std::remove(live_.begin(), live_.end(), op), live_.end());
  if (op->done) std::exchange(op->done, nullptr)(op->outcomes);
}

std::vector<std::string> Operations::NotEnded() {
  std::vector<std::string> names;
  std::vector<Shared> still;
  std::erase_if(scribblers_, [](const Shared& op) {
    return op->life != op->worker->life();
  });
  for (const Shared& op : live_) {
    if (op->life != op->worker->life()) {
      ++counts_.died;
      continue;
    }
    still.push_back(op);
    names.push_back(StrCat(op->Name(), op->outcome_came ? ": buffers" : ""));
  }
  live_ = std::move(still);
  return names;
}

void Operations::PlanBuffers(const Shared& op, const ReadPlan& plan) {
  SimExecutor* world = world_->executor();
  const std::size_t n = plan.blocks.size();
  op->memory.resize(n);
  op->read_buffers.resize(n);
  op->read_targets.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    ReadTarget& target = op->read_targets[i];
    target.key = plan.blocks[i].key;
    target.anchor = plan.blocks[i].place.anchor;
    std::uint64_t length = plan.blocks[i].length;
    if (plan.ranges && length > 1) {
      target.offset = world->random()->Below(length);
      target.length = 1 + world->random()->Below(length - target.offset);
      length = target.length;
    }
    op->memory[i].assign(length, std::byte{0xcc});
    op->read_buffers[i] = Pieces<Buffer>(absl::MakeSpan(op->memory[i]), world);
    target.destination = op->read_buffers[i];
  }
}

void Operations::Read(SimWorker* worker, ReadPlan plan, Done done) {
  const Shared op = Begin(worker, "read", plan.name_space, plan.blocks,
                          plan.deadline, std::move(done));
  op->quiet = plan.quiet;
  op->leading_run = plan.want == ReadWant::kLeadingRun;
  PlanBuffers(op, plan);
  ReadRequest request;
  request.name_space = worker->name_space(plan.name_space);
  request.blocks = absl::MakeSpan(op->read_targets);
  request.deadline = plan.deadline;
  request.want = plan.want;
  ReadDone ends;
  ends.on_outcome = [this, op](const ReadReport& report) {
    OnReadOutcome(op, report);
  };
  ends.on_buffers_free = [this, op] { OnReadFree(op); };
  worker->client()->StartRead(request, std::move(ends));
}

void Operations::JudgeStatus(const Shared& op, const absl::Status& status) {
  // The requests are right; only a Client that was closed may say no.
  if (status.ok() || absl::IsCancelled(status)) return;
  oracle_->Violation(StrCat("REFUSED: ", op->Name(), ": ", status.ToString()));
}

void Operations::OnReadOutcome(const Shared& op, const ReadReport& report) {
  if (!OnOutcome(op)) return;
  JudgeStatus(op, report.status);
  std::size_t leading = 0;
  bool running = true;
  bool closed = false;
  for (const ReadTarget& target : op->read_targets) {
    op->outcomes.push_back(target.outcome);
    ++counts_.reads[static_cast<std::size_t>(target.outcome)];
    running = running && target.outcome == Outcome::kHit;
    // What had landed when the Client was closed stays a hit.
    closed = closed || target.outcome == Outcome::kCancelled;
    if (running) {
      ++leading;
    } else if (op->leading_run && target.outcome == Outcome::kHit && !closed) {
      oracle_->Violation(StrCat("A HIT BEYOND THE RUN: ", op->Name()));
    }
    if (!MayBeReadOutcome(target.outcome) && !IsFair(target.outcome)) {
      oracle_->Violation(StrCat("STRANGE OUTCOME: ", op->Name(), ": ",
                                OutcomeName(target.outcome)));
    }
  }
  if (leading != report.leading_hits) {
    oracle_->Violation(StrCat("LEADING RUN: ", op->Name(), " says ",
                              report.leading_hits, ", is ", leading));
  }
  counts_.bytes_mapped += report.bytes_mapped;
  counts_.bytes_remote += report.bytes_remote;
  // A hit's bytes are the caller's to use from here on.
  JudgeRead(op);
}

void Operations::JudgeRead(const Shared& op) {
  const std::string who = op->Name();
  for (std::size_t i = 0; i < op->read_targets.size(); ++i) {
    if (op->read_targets[i].outcome != Outcome::kHit) continue;
    oracle_->CheckHit(
        BlockId{op->worker->name_space(op->name_space).id, op->blocks[i].key},
        op->read_targets[i].offset, op->memory[i],
        {.clears_seen = op->clears_seen,
         .began = op->began_true,
         .quiet = op->quiet,
         .who = who});
  }
}

void Operations::OnReadFree(const Shared& op) {
  if (!OnFree(op)) return;
  // Again for some, now that nothing may be on its way any more.
  if (op->number % 4 == 0) JudgeRead(op);
  WatchBuffers(op);
  End(op);
}

void Operations::WatchBuffers(const Shared& op) {
  if (op->number % 2 == 0) return;
  for (std::vector<std::byte>& memory : op->memory) {
    std::fill(memory.begin(), memory.end(), kGivenBack);
  }
  world_->executor()->root()->PostAfter(absl::Milliseconds(400), [this, op] {
    for (const std::vector<std::byte>& memory : op->memory) {
      if (!memory.empty() && (memory[0] != kGivenBack ||
                              std::memcmp(memory.data(), memory.data() + 1,
                                          memory.size() - 1) != 0)) {
        oracle_->Violation(
            StrCat("BUFFER TOUCHED AFTER IT WAS FREE: ", op->Name()));
        return;
      }
    }
  });
}

// --- Views: held over virtual time, looked at more than once, and judged by
// what Close says.

void Operations::View(SimWorker* worker, ViewPlan plan, Done done) {
  const Shared op = Begin(worker, "views", plan.name_space, plan.blocks,
                          plan.deadline, std::move(done));
  op->looks_left = plan.looks;
  op->between_looks = plan.held / plan.looks;
  op->memory.resize(plan.blocks.size());
  op->changed.resize(plan.blocks.size());
  std::vector<BlockKey> keys;
  for (const PlannedBlock& block : plan.blocks) keys.push_back(block.key);
  OpenViewsRequest request;
  request.name_space = worker->name_space(plan.name_space);
  request.keys = keys;
  request.deadline = plan.deadline;
  request.want = plan.want;
  request.max_age = plan.max_age;
  worker->client()->StartOpenViews(
      request, [this, op](ViewBatch views) { OnViews(op, std::move(views)); });
}

void Operations::OnViews(const Shared& op, ViewBatch views) {
  if (!OnOutcome(op)) return;
  op->views = std::move(views);
  JudgeStatus(op, op->views.report().status);
  // Not from inside the Client's callback.
  op->worker->process()->Post([this, op] { LookAtViews(op); });
}

void Operations::LookAtViews(const Shared& op) {
  if (op->life != op->worker->life()) return;
  for (std::size_t i = 0; i < op->views.size(); ++i) {
    if (op->views.outcome(i) != Outcome::kHit) continue;
    std::vector<std::byte> seen;
    for (const absl::Span<const std::byte> span : op->views.spans(i)) {
      seen.insert(seen.end(), span.begin(), span.end());
    }
    if (op->memory[i].empty()) op->memory[i] = seen;
    op->changed[i] = op->changed[i] || op->memory[i] != seen;
  }
  if (--op->looks_left == 0) return CloseViews(op);
  op->worker->process()->PostAfter(op->between_looks,
                                   [this, op] { LookAtViews(op); });
}

void Operations::CloseViews(const Shared& op) {
  std::vector<bool> opened;
  for (std::size_t i = 0; i < op->views.size(); ++i) {
    opened.push_back(op->views.outcome(i) == Outcome::kHit);
  }
  op->outcomes = std::move(op->views).Close();
  const std::string who = op->Name();
  for (std::size_t i = 0; i < op->outcomes.size(); ++i) {
    const Outcome outcome = op->outcomes[i];
    if (!MayBeReadOutcome(outcome) && !IsFair(outcome)) {
      oracle_->Violation(
          StrCat("STRANGE OUTCOME: ", who, ": ", OutcomeName(outcome)));
    }
    if (!opened[i]) continue;
    ++counts_.views[static_cast<std::size_t>(outcome)];
    counts_.views_changed += op->changed[i] ? 1 : 0;
    // Nobody verifies what lies in a view: a bit that turned over is seen.
    if (outcome != Outcome::kHit || corruption_) continue;
    // Rules P4, P6, P7: what was looked at, at any time, is the block.
    if (op->changed[i]) {
      oracle_->Violation(StrCat("A VIEW THAT CHANGED IS A HIT: ", who));
    }
    oracle_->CheckHit(
        BlockId{op->worker->name_space(op->name_space).id, op->blocks[i].key},
        0, op->memory[i],
        {.clears_seen = op->clears_seen,
         .began = op->began_true,
         .quiet = op->quiet,
         .who = who});
  }
  End(op);
}

// --- Lookups.

void Operations::Exists(SimWorker* worker, std::size_t name_space,
                        std::vector<PlannedBlock> blocks,
                        absl::Duration deadline, Done done) {
  const Shared op =
      Begin(worker, "exists", name_space, blocks, deadline, std::move(done));
  for (const PlannedBlock& block : blocks) {
    ExistsTarget target;
    target.key = block.key;
    target.anchor = block.place.anchor;
    op->exists_targets.push_back(target);
  }
  ExistsRequest request;
  request.name_space = worker->name_space(name_space);
  request.blocks = absl::MakeSpan(op->exists_targets);
  request.deadline = deadline;
  worker->client()->StartExists(
      request, [this, op](const ExistsReport& report) {
        if (!OnOutcome(op)) return;
        std::size_t leading = 0;
        std::size_t hits = 0;
        for (const ExistsTarget& target : op->exists_targets) {
          op->outcomes.push_back(target.outcome);
          hits += target.outcome == Outcome::kHit ? 1 : 0;
          if (hits == op->outcomes.size()) leading = hits;
          if (!MayBeReadOutcome(target.outcome) && !IsFair(target.outcome)) {
            oracle_->Violation(StrCat("STRANGE OUTCOME: ", op->Name(), ": ",
                                      OutcomeName(target.outcome)));
          }
        }
        if (leading != report.leading_hits || hits != report.hits) {
          oracle_->Violation(StrCat("LEADING RUN: ", op->Name(), " says ",
                                    report.leading_hits, " of ", report.hits,
                                    ", is ", leading, " of ", hits));
        }
        End(op);
      });
}

void Operations::Remove(SimWorker* worker, std::size_t name_space,
                        std::vector<PlannedBlock> blocks,
                        absl::Duration deadline, Done done) {
  const Shared op =
      Begin(worker, "remove", name_space, blocks, deadline, std::move(done));
  for (const PlannedBlock& block : blocks) {
    RemoveTarget target;
    target.key = block.key;
    op->remove_targets.push_back(target);
  }
  RemoveRequest request;
  request.name_space = worker->name_space(name_space);
  request.blocks = absl::MakeSpan(op->remove_targets);
  request.deadline = deadline;
  worker->client()->StartRemove(request, [this, op](const RemoveReport&) {
    if (!OnOutcome(op)) return;
    for (const RemoveTarget& target : op->remove_targets) {
      op->outcomes.push_back(target.outcome);
    }
    End(op);
  });
}

}  // namespace firnkv
