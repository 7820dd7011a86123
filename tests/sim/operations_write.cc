// Writes (operations.h).

#include <algorithm>
#include <utility>

#include "proto/base/checksum.h"
#include "proto/base/text.h"
#include "proto/node.pb.h"
#include "tests/sim/block_content.h"
#include "tests/sim/operation.h"
#include "tests/sim/operations.h"

namespace firnkv {
namespace {

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
  if (plan.scribble && n == 1 && op->shared != nullptr) {
    op->checksums = PieceChecksums(op->bytes[0]);
    scribblers_.push_back(op);
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

// The checksums are in the node's hands, the bytes not yet.
void Operations::OnCall(const SimControl::Seen& seen) {
  if (scribblers_.empty() || seen.method != "/firnkv.v1.NodeService/Commit") {
    return;
  }
  v1::CommitRequest request;
  if (!request.ParseFromArray(seen.request.data(),
                              static_cast<int>(seen.request.size()))) {
    return;
  }
  for (std::size_t i = 0; i < scribblers_.size(); ++i) {
    const Shared op = scribblers_[i];
    if (op->life != op->worker->life() ||
        op->worker->process() != seen.caller ||
        !std::equal(op->checksums.begin(), op->checksums.end(),
                    request.pieces().begin(), request.pieces().end())) {
      continue;
    }
    world_->executor()->Note(StrCat("scribbles: ", op->Name()));
    op->scribbled = true;
    scribbled_.emplace(seen.caller->number(), request.reservation());
    op->bytes[0][world_->executor()->random()->Below(op->bytes[0].size())] ^=
        std::byte{0x40};
    scribblers_.erase(scribblers_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
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
    const bool corrupt = op->scribbled && outcome == Outcome::kCorrupt;
    const bool denied = denials_ && outcome == Outcome::kDenied;
    if (!MayBeWriteOutcome(outcome) && !corrupt && !denied) {
      oracle_->Violation(
          StrCat("STRANGE OUTCOME: ", op->Name(), ": ", OutcomeName(outcome)));
    }
    if (op->scribbled && outcome == Outcome::kStored) {
      oracle_->Violation(StrCat("STORED, AND WAS SCRIBBLED ON: ", op->Name()));
    }
    counts_.scribbles_caught += corrupt ? 1 : 0;
  }
}

void Operations::OnWriteFree(const Shared& op) {
  if (!OnFree(op)) return;
  std::erase(scribblers_, op);
  // Whoever still reads the source gets garbage; shared memory is not given out
  // again as long as the node may (rule S1).
  for (std::vector<std::byte>& memory : op->memory) {
    std::fill(memory.begin(), memory.end(), std::byte{0xee});
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

}  // namespace firnkv
