#include "client/mapped_region.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/checksum.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

// The block's bytes as they lie in mapped memory.
class ExtentCursor {
 public:
  explicit ExtentCursor(const MappedBlock& block) : block_(block) {}

  void Skip(std::uint64_t bytes) {
    while (bytes > 0) bytes -= Take(bytes).size();
  }
  // At most `most` bytes that lie together; there must be some left.
  absl::Span<const std::byte> Take(std::uint64_t most) {
    while (within_ == block_.extents[next_].length) {
      ++next_;
      within_ = 0;
    }
    const MappedBlock::Extent& extent = block_.extents[next_];
    const std::uint64_t size = std::min(most, extent.length - within_);
    const auto part =
        extent.region->bytes().subspan(extent.offset + within_, size);
    within_ += size;
    return part;
  }

 private:
  const MappedBlock& block_;
  std::size_t next_ = 0;
  std::uint64_t within_ = 0;
};

std::uint32_t PageOf(const MappedBlock::Extent& extent) {
  return static_cast<std::uint32_t>(extent.offset / kPageBytes);
}

bool IsThatBlock(const SlotHeader& header, const MappedBlock& block) {
  return header.generation == block.generation && header.block == block.block &&
         header.length == block.length &&
         header.clear_epoch >= block.clear_epoch &&
         (block.digest.IsZero() || header.digest == block.digest) &&
         header.pieces.size() == DivideUp(block.length, kPieceBytes);
}

// Copies one whole piece straight into the run; returns the checksum of what
// landed there.
std::uint32_t CopyPiece(ExtentCursor* from, std::uint64_t bytes,
                        RunCursor* to) {
  std::uint32_t landed = 0;
  while (bytes > 0) {
    const absl::Span<std::byte> place = to->Take(bytes);
    std::uint64_t left = place.size();
    std::byte* at = place.data();
    while (left > 0) {
      const absl::Span<const std::byte> part = from->Take(left);
      landed = CopyWithCrc32c(at, part, landed);
      at += part.size();
      left -= part.size();
    }
    bytes -= place.size();
  }
  return landed;
}

// A piece of which only [skip, skip + bytes) is wanted: it lands whole in
// memory of ours, is verified there, and its part is copied on.
bool CopyPartOfPiece(ExtentCursor* from, std::uint64_t piece_bytes,
                     std::uint32_t checksum, std::uint64_t skip,
                     std::uint64_t bytes, RunCursor* to) {
  std::vector<std::byte> whole(piece_bytes);
  ByteRun run = {absl::MakeSpan(whole)};
  RunCursor cursor(run);
  if (CopyPiece(from, piece_bytes, &cursor) != checksum) return false;
  const std::byte* at = whole.data() + skip;
  while (bytes > 0) {
    const absl::Span<std::byte> place = to->Take(bytes);
    std::memcpy(place.data(), at, place.size());
    at += place.size();
    bytes -= place.size();
  }
  return true;
}

bool CopyVerified(const MappedBlock& block, const SlotHeader& header,
                  std::uint64_t offset, const ByteRun& to) {
  ExtentCursor from(block);
  RunCursor landing(to);
  std::uint64_t left = RunBytes(to);
  std::uint64_t piece = offset / kPieceBytes;
  std::uint64_t skip = offset % kPieceBytes;
  from.Skip(piece * kPieceBytes);
  for (; left > 0; ++piece) {
    const std::uint64_t piece_bytes =
        std::min(kPieceBytes, block.length - piece * kPieceBytes);
    const std::uint64_t wanted = std::min(left, piece_bytes - skip);
    const std::uint32_t checksum = header.pieces[piece];
    if (wanted == piece_bytes) {
      if (CopyPiece(&from, piece_bytes, &landing) != checksum) return false;
    } else if (!CopyPartOfPiece(&from, piece_bytes, checksum, skip, wanted,
                                &landing)) {
      return false;
    }
    left -= wanted;
    skip = 0;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedRegion>> MappedRegion::Open(
    RegionId id, std::unique_ptr<MemoryMapping> payload,
    std::unique_ptr<MemoryMapping> table,
    absl::AnyInvocable<void() &&> on_unmapped) {
  const auto headers = HeaderTableReader::Open(table->bytes(), id);
  if (!headers ||
      table->bytes().size() < HeaderTableBytes(payload->bytes().size())) {
    return absl::FailedPreconditionError(
        "a header table that is not its region's");
  }
  return std::unique_ptr<MappedRegion>(
      new MappedRegion(id, std::move(payload), std::move(table), *headers,
                       std::move(on_unmapped)));
}

MappedRegion::MappedRegion(RegionId id, std::unique_ptr<MemoryMapping> payload,
                           std::unique_ptr<MemoryMapping> table,
                           HeaderTableReader headers,
                           absl::AnyInvocable<void() &&> on_unmapped)
    : id_(id),
      payload_(std::move(payload)),
      table_(std::move(table)),
      headers_(headers),
      on_unmapped_(std::move(on_unmapped)) {}

MappedRegion::~MappedRegion() {
  payload_.reset();
  table_.reset();
  if (on_unmapped_) std::move(on_unmapped_)();
}

// The layout is slot_header.h's: after one page, a header for each page.
void MappedRegion::PrefetchHeader(std::uint32_t page) const {
  constexpr std::size_t kCacheLineBytes = 64;
  const absl::Span<const std::byte> table = table_->bytes();
  const std::size_t begin = kPageBytes + page * sizeof(MappedHeader);
  const std::size_t end = begin + sizeof(MappedHeader);
  for (std::size_t at = begin; at < end && at < table.size();
       at += kCacheLineBytes) {
    __builtin_prefetch(table.data() + at);
  }
}

bool InBounds(const MappedBlock& block) {
  std::uint64_t sum = 0;
  for (const MappedBlock::Extent& extent : block.extents) {
    const std::uint64_t bytes = extent.region->bytes().size();
    if (extent.offset > bytes || extent.length > bytes - extent.offset) {
      return false;
    }
    sum += extent.length;
  }
  return !block.extents.empty() && sum == block.length;
}

void PrefetchHeader(const MappedBlock& block) {
  if (block.extents.empty()) return;
  const MappedBlock::Extent& first = block.extents.front();
  if (first.region != nullptr) first.region->PrefetchHeader(PageOf(first));
}

std::optional<SlotHeader> FirstLook(const MappedBlock& block) {
  const MappedBlock::Extent& first = block.extents.front();
  std::optional<SlotHeader> header =
      first.region->headers().Read(PageOf(first));
  if (header && !IsThatBlock(*header, block)) header.reset();
  return header;
}

// All loads of the block's bytes that come before this look in program order
// come before its load of the generation: an acquire fence keeps earlier loads
// from sinking below it, in the compiler and in the processor, and the loads of
// other threads of the reader happen before it. So the generation that it finds
// was the slot's while they were made, since a slot's generation is bumped
// before its first byte is written anew (rule P7), with a release fence
// between: had any of the loads seen a byte of the slot's next life, this one
// would see its generation (the proof is in proto/base/slot_header.cc).
//
// Generations are of one counter a node run, and the region is of one run (its
// table says which, and MappedRegion::Open compares it): equal generations are
// one life of one slot (rule P3). The first look has found there the block's
// namespace, key, digest and length under that generation, so identity holds
// for all of that life.
bool SecondLook(const MappedBlock& block) {
  const MappedBlock::Extent& first = block.extents.front();
  std::atomic_thread_fence(std::memory_order_acquire);
  return first.region->headers().ReadGeneration(PageOf(first)) ==
         block.generation;
}

bool LiesSound(const MappedBlock& block,
               absl::Span<const std::uint32_t> pieces) {
  ExtentCursor from(block);
  std::uint64_t left = block.length;
  for (const std::uint32_t checksum : pieces) {
    std::uint64_t piece = std::min(left, kPieceBytes);
    left -= piece;
    std::uint32_t found = 0;
    while (piece > 0) {
      const absl::Span<const std::byte> part = from.Take(piece);
      found = Crc32c(part, found);
      piece -= part.size();
    }
    if (found != checksum) return false;
  }
  return left == 0;
}

MappedCopy CopyMapped(const MappedBlock& from, std::uint64_t offset,
                      const ByteRun& to) {
  if (!InBounds(from)) return MappedCopy::kOutOfBounds;
  const auto before = FirstLook(from);
  if (!before) return MappedCopy::kTorn;
  const bool sound = CopyVerified(from, *before, offset, to);
  if (!SecondLook(from)) return MappedCopy::kTorn;
  return sound ? MappedCopy::kLanded : MappedCopy::kCorrupt;
}

ByteRun RunOf(absl::Span<const Buffer> buffers) {
  ByteRun run;
  run.reserve(buffers.size());
  for (const Buffer& buffer : buffers) {
    if (buffer.length > 0) run.emplace_back(buffer.address, buffer.length);
  }
  return run;
}

}  // namespace firnkv
