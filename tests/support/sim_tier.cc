#include "tests/support/sim_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/checksum.h"

namespace firnkv {

void SimTier::Open(absl::AnyInvocable<void(absl::Status) &&> done) {
  process_->Post([done = std::move(done)]() mutable {
    std::move(done)(absl::OkStatus());
  });
}

void SimTier::Drain(absl::AnyInvocable<void() &&> done) {
  draining_ = true;
  ++in_flight_;
  drained_ = std::move(done);
  process_->Post([this] { EndOne(); });
}

void SimTier::EndOne() {
  if (--in_flight_ == 0 && drained_) std::move(drained_)();
}

void SimTier::Confirm(const Confirmation& confirmation) {
  ClearEpoch& epoch = confirmed_[confirmation.name_space];
  epoch = std::max(epoch, confirmation.clear_epoch);
}

bool SimTier::IsCurrent(const SlotHeader& header) const {
  const auto it = confirmed_.find(header.block.name_space);
  return it != confirmed_.end() && it->second == header.clear_epoch;
}

bool SimTier::MayHold(const BlockId& block) const {
  return copies_.contains(block);
}

LoadOutcome SimTier::LoadNow(const LoadRequest& request, SlotHeader* header) {
  if (failing_) return LoadOutcome::kDeviceFailed;
  auto it = copies_.find(request.block);
  if (it == copies_.end() || !IsCurrent(it->second.header)) {
    return LoadOutcome::kAbsent;
  }
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
                          std::move(request.done)(outcome, header);
                          EndOne();
                        });
  }
}

StoreOutcome SimTier::StoreNow(const StoreRequest& request) {
  if (failing_) return StoreOutcome::kDeviceFailed;
  if (!IsCurrent(*request.header)) return StoreOutcome::kRefused;
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
      Generation generation = Generation::kNone;
      if (outcome == StoreOutcome::kStored) {
        generation = last_generation_ =
            Generation{static_cast<std::uint64_t>(last_generation_) + 1};
      }
      std::move(request.done)(outcome, generation);
      EndOne();
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
