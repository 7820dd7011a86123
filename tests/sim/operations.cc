#include "tests/sim/operations.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/text.h"
#include "tests/sim/block_content.h"

namespace firnkv {

struct SimOperation {
  std::uint64_t number = 0;
  std::string kind;
  SimWorker* worker = nullptr;
  std::uint64_t life = 0;
  std::uint64_t pauses = 0;
  BootTime began;
  absl::Duration deadline;
  std::size_t name_space = 0;
  std::size_t clears_seen = 0;
  bool quiet = false;
  bool leading_run = false;
  std::vector<PlannedBlock> blocks;
  Operations::Done done;

  // One a block.
  std::vector<std::vector<std::byte>> memory;
  std::vector<absl::Span<std::byte>> bytes;  // In `memory` or shared.
  std::vector<std::uint64_t> salts;
  std::vector<std::vector<Buffer>> read_buffers;
  std::vector<std::vector<ConstBuffer>> write_buffers;
  std::vector<ReadTarget> read_targets;
  std::vector<WriteBlock> write_blocks;
  std::vector<ExistsTarget> exists_targets;
  std::vector<RemoveTarget> remove_targets;
  std::byte* shared = nullptr;

  std::vector<Outcome> outcomes;
  bool outcome_came = false;
  bool free_came = false;

  std::string Name() const {
    return StrCat("#", number, " ", kind, " of ", blocks.size(), " by ",
                  worker->options().name, ".", life);
  }
};

namespace {

constexpr std::byte kGivenBack{0xdd};
// What the client's timers and tasks may add; no computing takes time here.
constexpr absl::Duration kSlack = absl::Milliseconds(5);

// `bytes` as one to four buffers.
template <typename B, typename S>
std::vector<B> Pieces(S bytes, SimExecutor* world) {
  std::vector<B> pieces;
  std::size_t at = 0;
  const std::size_t many = 1 + world->random()->Below(4);
  for (std::size_t i = 0; i < many && at < bytes.size(); ++i) {
    const std::size_t rest = bytes.size() - at;
    const std::size_t take =
        i + 1 == many ? rest : 1 + world->random()->Below(rest);
    B piece;
    piece.address = bytes.data() + at;
    piece.length = take;
    pieces.push_back(piece);
    at += take;
  }
  return pieces;
}

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

bool MayBeWriteOutcome(Outcome outcome) {
  switch (outcome) {
    case Outcome::kStored:
    case Outcome::kAlreadyThere:
    case Outcome::kCongested:
    case Outcome::kReservationOver:
    case Outcome::kCleared:
    case Outcome::kUnavailable:
    case Outcome::kTimedOut:
    case Outcome::kCancelled:
    case Outcome::kBeingWritten:
      return true;
    case Outcome::kHit:
    case Outcome::kMiss:
    case Outcome::kExpired:
    case Outcome::kCorrupt:
    case Outcome::kDenied:
    case Outcome::kSkipped:
    case Outcome::kWrongSize:
    case Outcome::kStaleLocation:
    case Outcome::kOverQuota:
    case Outcome::kUnset:
      return false;
  }
  return false;
}

}  // namespace

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
  op->deadline = deadline;
  op->name_space = name_space;
  op->clears_seen = seen_[{worker, name_space}];
  op->blocks = blocks;
  op->done = std::move(done);
  ++counts_.begun;
  live_.push_back(op);
  world_->executor()->Mix(kind);
  world_->executor()->Note(StrCat("begins ", op->Name()));
  return op;
}

void Operations::NoteSeen(SimWorker* worker, std::size_t name_space,
                          std::size_t clears_when_asked) {
  std::size_t& seen = seen_[{worker, name_space}];
  seen = std::max(seen, clears_when_asked);
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
    if (!MayBeReadOutcome(target.outcome) &&
        !(corruption_ && target.outcome == Outcome::kCorrupt)) {
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
        {.clears_seen = op->clears_seen, .quiet = op->quiet, .who = who});
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

void Operations::Write(SimWorker* worker, WritePlan plan, Done done) {
  const Shared op = Begin(worker, "write", plan.name_space, plan.blocks,
                          plan.deadline, std::move(done));
  const NamespaceHandle& handle = worker->name_space(plan.name_space);
  std::uint64_t sum = 0;
  for (const PlannedBlock& block : plan.blocks) sum += block.length;
  absl::Span<std::byte> shared;
  if (plan.shared) {
    auto given = worker->client()->AllocateShared(sum);
    if (given.ok()) {
      shared = *given;
      op->shared = shared.data();
    }
  }
  const std::size_t n = plan.blocks.size();
  op->memory.resize(n);
  op->write_buffers.resize(n);
  op->write_blocks.resize(n);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const PlannedBlock& block = plan.blocks[i];
    absl::Span<std::byte> bytes;
    if (op->shared != nullptr) {
      bytes = shared.subspan(at, block.length);
      at += block.length;
    } else {
      op->memory[i].resize(block.length);
      bytes = absl::MakeSpan(op->memory[i]);
    }
    const BlockId id{handle.id, block.key};
    op->salts.push_back(oracle_->BeginWrite(id, block.length));
    BlockContent(id, op->salts[i]).Fill(0, bytes);
    op->bytes.push_back(bytes);
    op->write_buffers[i] = Pieces<ConstBuffer>(bytes, world_->executor());
    op->write_blocks[i].key = block.key;
    op->write_blocks[i].place = block.place;
    op->write_blocks[i].source = op->write_buffers[i];
  }
  WriteRequest request;
  request.name_space = handle;
  request.blocks = absl::MakeSpan(op->write_blocks);
  request.deadline = plan.deadline;
  request.wait_for = plan.wait_for;
  WriteDone ends;
  ends.on_outcome = [this, op](const WriteReport& report) {
    OnWriteOutcome(op, report);
  };
  ends.on_buffers_free = [this, op] { OnWriteFree(op); };
  worker->client()->StartWrite(request, std::move(ends));
}

void Operations::OnWriteOutcome(const Shared& op, const WriteReport& report) {
  if (!OnOutcome(op)) return;
  JudgeStatus(op, report.status);
  for (std::size_t i = 0; i < op->write_blocks.size(); ++i) {
    const Outcome outcome = op->write_blocks[i].outcome;
    op->outcomes.push_back(outcome);
    ++counts_.writes[static_cast<std::size_t>(outcome)];
    if (outcome == Outcome::kStored) {
      oracle_->EndStored(
          BlockId{op->worker->name_space(op->name_space).id, op->blocks[i].key},
          op->salts[i]);
    }
    if (!MayBeWriteOutcome(outcome)) {
      oracle_->Violation(
          StrCat("STRANGE OUTCOME: ", op->Name(), ": ", OutcomeName(outcome)));
    }
  }
}

void Operations::OnWriteFree(const Shared& op) {
  if (!OnFree(op)) return;
  // Whoever still reads the source gets garbage.
  for (const absl::Span<std::byte> bytes : op->bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
  }
  if (op->shared != nullptr) op->worker->client()->FreeShared(op->shared);
  for (std::size_t i = 0; i < op->outcomes.size(); ++i) {
    if (op->outcomes[i] == Outcome::kStored) continue;
    oracle_->EndUnknown(
        BlockId{op->worker->name_space(op->name_space).id, op->blocks[i].key},
        op->salts[i]);
  }
  End(op);
}

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
  worker->client()->StartExists(request, [this, op](const ExistsReport&) {
    if (!OnOutcome(op)) return;
    for (const ExistsTarget& target : op->exists_targets) {
      op->outcomes.push_back(target.outcome);
      if (!MayBeReadOutcome(target.outcome)) {
        oracle_->Violation(StrCat("STRANGE OUTCOME: ", op->Name(), ": ",
                                  OutcomeName(target.outcome)));
      }
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
