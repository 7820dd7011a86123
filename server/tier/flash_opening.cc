#include "server/tier/flash_opening.h"

#include <cstring>
#include <utility>

#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kCopies = 2;

}  // namespace

FlashOpening::FlashOpening(const Options& options, BlockDevice* device,
                           Random* random, const Clock* clock)
    : options_(options),
      device_(device),
      random_(random),
      clock_(clock),
      memory_(kCopies * kFlashPage) {}

void FlashOpening::Start(Done done) {
  done_ = std::move(done);
  if (device_->bytes() < kFlashDataOffset) {
    // Said like every other answer, once the device has been asked.
    device_->StartFlush([this](absl::Status /*status*/) {
      std::move(done_)(PlanSegments(device_->bytes(),
                                    options_.largest_block_bytes,
                                    options_.least_segment_bytes));
    });
    return;
  }
  device_->StartRead(0, memory_.bytes(),
                     [this](absl::Status status) { OnRead(status); });
}

void FlashOpening::OnRead(const absl::Status& status) {
  if (!status.ok()) {
    std::move(done_)(Annotate(status, "superblock"));
    return;
  }
  const absl::StatusOr<Decision> decided = Decide();
  if (!decided.ok()) {
    std::move(done_)(decided.status());
    return;
  }
  superblock_ = decided->superblock;
  if (decided->write) {
    Write(0);
  } else {
    std::move(done_)(superblock_);
  }
}

absl::StatusOr<FlashOpening::Decision> FlashOpening::Format() const {
  ASSIGN_OR_RETURN(FlashSuperblock fresh,
                   PlanSegments(device_->bytes(), options_.largest_block_bytes,
                                options_.least_segment_bytes));
  fresh.cluster = options_.cluster;
  fresh.node = options_.node;
  fresh.device = FlashDeviceId::Make(random_);
  fresh.sequence = 1;
  fresh.formatted_nanos = absl::ToUnixNanos(clock_->WallNow());
  return Decision{.superblock = fresh, .write = true};
}

absl::StatusOr<FlashOpening::Decision> FlashOpening::Decide() const {
  if (options_.takeover == FlashTakeover::kFormat) return Format();
  FlashSuperblock best;
  bool blank = true;
  absl::Status worst;
  for (std::uint64_t i = 0; i < kCopies; ++i) {
    const absl::Span<std::byte> page =
        memory_.bytes().subspan(i * kFlashPage, kFlashPage);
    const absl::StatusOr<FlashSuperblock> copy = DecodeSuperblock(
        {reinterpret_cast<const char*>(page.data()), page.size()});
    if (copy.ok()) {
      if (copy->sequence > best.sequence) best = *copy;
      blank = false;
    } else if (absl::IsFailedPrecondition(copy.status())) {
      return copy.status();
    } else if (!absl::IsNotFound(copy.status())) {
      worst = copy.status();
      blank = false;
    }
  }
  if (blank) return Format();
  if (best.sequence == 0) return worst;
  if (best.cluster != options_.cluster) {
    return absl::FailedPreconditionError(
        StrCat("belongs to cluster ", ToHex(best.cluster), ", not to ",
               ToHex(options_.cluster)));
  }
  if (best.SegmentOffset(best.segments) > device_->bytes()) {
    return absl::FailedPreconditionError(
        StrCat("was formatted with ", best.SegmentOffset(best.segments),
               " bytes, and has ", device_->bytes(), " now"));
  }
  if (best.node == options_.node) {
    return Decision{.superblock = best, .write = false};
  }
  if (options_.takeover != FlashTakeover::kAdopt) {
    return absl::FailedPreconditionError(StrCat("belongs to node ",
                                                ToHex(best.node), ", not to ",
                                                ToHex(options_.node)));
  }
  best.node = options_.node;
  ++best.sequence;
  return Decision{.superblock = best, .write = true};
}

void FlashOpening::Write(std::uint64_t page) {
  const std::string bytes = EncodeSuperblock(superblock_);
  const absl::Span<std::byte> to =
      memory_.bytes().subspan(page * kFlashPage, kFlashPage);
  std::memcpy(to.data(), bytes.data(), bytes.size());
  device_->StartWrite(page * kFlashPage, to, [this, page](absl::Status status) {
    OnWritten(page, status);
  });
}

void FlashOpening::OnWritten(std::uint64_t page, const absl::Status& status) {
  if (!status.ok()) {
    std::move(done_)(Annotate(status, "writing the superblock"));
    return;
  }
  device_->StartFlush(
      [this, page](absl::Status flushed) { OnFlushed(page, flushed); });
}

void FlashOpening::OnFlushed(std::uint64_t page, const absl::Status& status) {
  if (!status.ok()) {
    std::move(done_)(Annotate(status, "flushing the superblock"));
    return;
  }
  // The second copy only once the first one is safe.
  if (page + 1 < kCopies) {
    Write(page + 1);
    return;
  }
  std::move(done_)(superblock_);
}

}  // namespace firnkv
