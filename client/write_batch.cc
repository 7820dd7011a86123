#include "client/write_batch.h"

#include <algorithm>
#include <utility>

#include "client/counters.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Walks a block's buffers, piece by piece.
class PieceStager {
 public:
  // `to` null: the bytes stay where they are and are only checksummed.
  PieceStager(absl::Span<const ConstBuffer> source, std::byte* to)
      : source_(source), to_(to) {}

  std::vector<std::uint32_t> Stage(std::uint64_t length) {
    std::vector<std::uint32_t> pieces;
    pieces.reserve(DivideUp(length, kPieceBytes));
    while (length > 0) {
      const std::uint64_t bytes = std::min(length, kPieceBytes);
      pieces.push_back(StagePiece(bytes));
      length -= bytes;
    }
    return pieces;
  }

 private:
  std::uint32_t StagePiece(std::uint64_t bytes) {
    std::uint32_t checksum = 0;
    while (bytes > 0) {
      while (within_ == source_[next_].length) {
        ++next_;
        within_ = 0;
      }
      const ConstBuffer& buffer = source_[next_];
      const std::uint64_t size =
          std::min<std::uint64_t>(bytes, buffer.length - within_);
      const absl::Span<const std::byte> part(buffer.address + within_, size);
      if (to_ == nullptr) {
        checksum = Crc32c(part, checksum);
      } else {
        checksum = CopyWithCrc32c(to_, part, checksum);
        to_ += size;
      }
      within_ += size;
      bytes -= size;
    }
    return checksum;
  }

  absl::Span<const ConstBuffer> source_;
  std::byte* to_;
  std::size_t next_ = 0;
  std::uint64_t within_ = 0;
};

absl::Status CheckWrite(const ClientParts& parts, const WriteRequest& request) {
  std::vector<BlockKey> keys;
  keys.reserve(request.blocks.size());
  for (const WriteBlock& block : request.blocks) {
    keys.push_back(block.key);
    if (block.source.size() > kMaxBuffersABlock) {
      return absl::InvalidArgumentError(
          StrCat("a source of ", block.source.size(), " buffers"));
    }
    for (const ConstBuffer& buffer : block.source) {
      if (buffer.kind == MemoryKind::kDevice) {
        return absl::InvalidArgumentError("this build has no devices");
      }
    }
  }
  if (request.hint.conversation.size() > 32) {
    return absl::InvalidArgumentError("a conversation of over 32 bytes");
  }
  return CheckBatch(parts, "a write", request.deadline, keys);
}

}  // namespace

bool BeginWrite(const ClientParts& parts, const WriteRequest& request,
                std::shared_ptr<Operation> operation,
                absl::FunctionRef<WriteDone()> take_done) {
  for (WriteBlock& block : request.blocks) block.outcome = Outcome::kSkipped;
  absl::Status status = CheckWrite(parts, request);
  if (status.ok() && !parts.operations->Add(std::move(operation))) {
    for (WriteBlock& block : request.blocks) {
      block.outcome = Outcome::kCancelled;
    }
    status = absl::CancelledError("the Client was closed");
  }
  if (status.ok()) return true;
  WriteDone done = take_done();
  WriteReport report;
  report.status = std::move(status);
  std::move(done.on_outcome)(report);
  std::move(done.on_buffers_free)();
  return false;
}

std::uint64_t LengthOf(const WriteBlock& block) {
  std::uint64_t length = 0;
  for (const ConstBuffer& buffer : block.source) length += buffer.length;
  return length;
}

bool IsWrongSize(const WriteRequest& request, std::uint64_t length) {
  const std::uint64_t declared = request.name_space.block_bytes;
  return length == 0 || length > kLargestBlockBytes ||
         (declared != 0 && length != declared);
}

std::vector<std::uint32_t> StagePieces(absl::Span<const ConstBuffer> source,
                                       std::uint64_t length, std::byte* to) {
  return PieceStager(source, to).Stage(length);
}

bool IsThere(Outcome outcome) {
  return outcome == Outcome::kStored || outcome == Outcome::kAlreadyThere;
}

void TellOutcome(const ClientParts& parts, Outcome outcome,
                 std::uint64_t length, WriteBlock* block, WriteReport* report) {
  block->outcome = outcome;
  parts.counters->write_outcomes[static_cast<std::size_t>(outcome)].Add();
  if (outcome == Outcome::kAlreadyThere) ++report->already_there;
  if (outcome != Outcome::kStored) return;
  ++report->stored;
  report->bytes_stored += length;
}

}  // namespace firnkv
