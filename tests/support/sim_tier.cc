#include "tests/support/sim_tier.h"

#include <cstring>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/checksum.h"

namespace firnkv {

void SimTier::Drain() {
  draining_ = true;
  CHECK(process_->world()->RunUntil([this] { return in_flight_ == 0; }));
}

bool SimTier::MayHold(const BlockId& block) const {
  return copies_.contains(block);
}

LoadOutcome SimTier::LoadNow(const LoadRequest& request, SlotHeader* header) {
  if (failing_) return LoadOutcome::kDeviceFailed;
  auto it = copies_.find(request.block);
  if (it == copies_.end()) return LoadOutcome::kAbsent;
  const Copy& copy = it->second;
  CHECK(request.destination.size() >= copy.bytes.size());
  if (PieceChecksums(copy.bytes) != copy.header.pieces) {
    used_ -= copy.bytes.size();
    copies_.erase(it);
    return LoadOutcome::kCorrupt;
  }
  std::memcpy(request.destination.data(), copy.bytes.data(), copy.bytes.size());
  *header = copy.header;
  return LoadOutcome::kLoaded;
}

void SimTier::Load(absl::Span<LoadRequest> batch, BootTime deadline) {
  const bool late = process_->clock()->Now() + delay_ > deadline;
  for (LoadRequest& request : batch) {
    ++in_flight_;
    process_->PostAfter(late ? absl::ZeroDuration() : delay_,
                        [this, late, request = std::move(request)]() mutable {
                          SlotHeader header;
                          const LoadOutcome outcome =
                              late || draining_ ? LoadOutcome::kCongested
                                                : LoadNow(request, &header);
                          --in_flight_;
                          std::move(request.done)(outcome, header);
                        });
  }
}

StoreOutcome SimTier::StoreNow(const StoreRequest& request) {
  if (failing_) return StoreOutcome::kDeviceFailed;
  const BlockId& block = request.header->block;
  if (copies_.contains(block)) return StoreOutcome::kAlreadyThere;
  if (request.bytes.size() > capacity_ - used_) return StoreOutcome::kFull;
  used_ += request.bytes.size();
  copies_[block] =
      Copy{*request.header,
           std::vector<std::byte>(request.bytes.begin(), request.bytes.end())};
  return StoreOutcome::kStored;
}

void SimTier::Store(absl::Span<StoreRequest> batch) {
  for (StoreRequest& request : batch) {
    ++in_flight_;
    process_->PostAfter(delay_, [this, request = std::move(request)]() mutable {
      const StoreOutcome outcome =
          draining_ ? StoreOutcome::kFull : StoreNow(request);
      --in_flight_;
      std::move(request.done)(outcome);
    });
  }
}

void SimTier::Erase(const BlockId& block) {
  auto it = copies_.find(block);
  if (it == copies_.end()) return;
  used_ -= it->second.bytes.size();
  copies_.erase(it);
}

Occupancy SimTier::GetOccupancy() const {
  return {.bytes_used = used_,
          .bytes_capacity = capacity_,
          .blocks = copies_.size()};
}

bool SimTier::CorruptOneByte(const BlockId& block) {
  auto it = copies_.find(block);
  if (it == copies_.end() || it->second.bytes.empty()) return false;
  const std::size_t at =
      process_->world()->random()->Below(it->second.bytes.size());
  it->second.bytes[at] ^= std::byte{1};
  return true;
}

}  // namespace firnkv
