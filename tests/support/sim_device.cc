#include "tests/support/sim_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/check.h"

namespace firnkv {
namespace {

constexpr std::uint64_t kSector = 512;

bool Aligned(std::uint64_t number) { return number % kDeviceAlignment == 0; }

}  // namespace

SimDevice::SimDevice(SimProcess* process, std::uint64_t bytes)
    : process_(process), image_(bytes) {
  CHECK(Aligned(bytes));
}

SimDevice::~SimDevice() { CHECK(pending_.empty()); }

bool SimDevice::Chance(std::uint32_t per_mille) {
  // No draw where there is nothing to decide: a fault that is off does not
  // change what the seed does.
  return per_mille > 0 && process_->world()->Chance(per_mille);
}

std::uint64_t SimDevice::Below(std::uint64_t bound) {
  return process_->world()->random()->Below(bound);
}

void SimDevice::StartReads(absl::Span<ReadRequest> batch) {
  for (ReadRequest& request : batch) {
    Start({.kind = Kind::kRead,
           .offset = request.offset,
           .into = request.into,
           .from = request.into,
           .done = std::move(request.done)});
  }
}

void SimDevice::StartWrites(absl::Span<WriteRequest> batch) {
  for (WriteRequest& request : batch) {
    Start({.kind = Kind::kWrite,
           .offset = request.offset,
           .into = {},
           .from = request.from,
           .done = std::move(request.done)});
  }
}

void SimDevice::StartFlush(Done done) {
  Transfer flush;
  flush.done = std::move(done);
  Start(std::move(flush));
}

DeviceLoad SimDevice::GetLoad() const {
  DeviceLoad load;
  for (const auto& [number, transfer] : pending_) {
    load.bytes += transfer.from.size();
  }
  load.transfers = pending_.size();
  load.issued = load.transfers;
  load.predicted_wait = predicted_wait_;
  return load;
}

void SimDevice::Start(Transfer transfer) {
  CHECK(Aligned(transfer.offset) && Aligned(transfer.from.size()));
  const std::uint64_t number = next_number_++;
  pending_[number] = std::move(transfer);
  deepest_ = std::max<std::uint64_t>(deepest_, pending_.size());
  RunLater(number);
}

void SimDevice::RunLater(std::uint64_t number) {
  absl::Duration delay = process_->world()->Between(absl::Microseconds(20),
                                                    absl::Microseconds(200));
  if (Chance(faults_.slow)) delay *= 100;
  process_->PostAfter(delay, [this, number] { Run(number); });
}

bool SimDevice::TakeStep() {
  if (cut_ || steps_left_ == 0) {
    cut_ = true;
    return false;
  }
  if (steps_left_ != UINT64_MAX) --steps_left_;
  return true;
}

void SimDevice::Run(std::uint64_t number) {
  const auto it = pending_.find(number);
  if (it == pending_.end() || cut_) return;
  if (stalling_) {
    stalled_.push_back(number);
    return;
  }
  if (it->second.kind != Kind::kRead && !TakeStep()) return;
  Transfer transfer = std::move(it->second);
  pending_.erase(it);
  const absl::Status status = CarryOut(transfer);
  std::move(transfer.done)(status);
}

absl::Status SimDevice::CarryOut(const Transfer& transfer) {
  if (fail_next_ > 0) {
    --fail_next_;
    return absl::UnavailableError("EIO");
  }
  if (transfer.offset > image_.size() ||
      transfer.from.size() > image_.size() - transfer.offset) {
    return absl::OutOfRangeError("beyond the end of the device");
  }
  switch (transfer.kind) {
    case Kind::kRead:
      return Read(transfer);
    case Kind::kWrite:
      return Write(transfer);
    case Kind::kFlush:
      ++flushes_;
      if (Chance(faults_.failed_flushes)) {
        return absl::UnavailableError("EIO");
      }
      Flush();
      return absl::OkStatus();
  }
  return absl::InternalError("no such kind");
}

absl::Status SimDevice::Read(const Transfer& transfer) {
  ++reads_;
  read_bytes_ += transfer.into.size();
  if (Chance(faults_.failed_reads)) return absl::UnavailableError("EIO");
  std::uint64_t read = transfer.into.size();
  if (short_next_ > 0) {
    --short_next_;
    read = Below(read);
  }
  std::memcpy(transfer.into.data(), image_.data() + transfer.offset, read);
  if (read < transfer.into.size()) return absl::DataLossError("short read");
  return absl::OkStatus();
}

absl::Status SimDevice::Write(const Transfer& transfer) {
  ++writes_;
  written_bytes_ += transfer.from.size();
  if (full_) return absl::ResourceExhaustedError("ENOSPC");
  const bool fails = Chance(faults_.failed_writes);
  // A write that failed may have done some of its work.
  const bool torn = fails || Chance(faults_.torn_writes);
  std::uint64_t offset = transfer.offset;
  if (!fails && Chance(faults_.lost_writes)) return absl::OkStatus();
  if (!fails && Chance(faults_.misdirected_writes)) {
    const std::uint64_t pages =
        (image_.size() - transfer.from.size()) / kDeviceAlignment;
    offset = Below(pages + 1) * kDeviceAlignment;
  }
  for (std::uint64_t at = 0; at < transfer.from.size(); at += kSector) {
    if (torn && process_->world()->Chance(500)) continue;
    Put(offset + at, transfer.from.data() + at);
  }
  if (Chance(faults_.flipped_bits)) {
    CorruptOneByte(offset + Below(transfer.from.size()));
  }
  if (fails) return absl::UnavailableError("EIO");
  return absl::OkStatus();
}

void SimDevice::Put(std::uint64_t offset, const std::byte* sector) {
  std::byte* const old = image_.data() + offset;
  before_flush_.try_emplace(offset / kSector, old, old + kSector);
  std::memcpy(old, sector, kSector);
}

void SimDevice::Flush() {
  if (lie_ || Chance(faults_.lying_flushes)) return;
  before_flush_.clear();
}

void SimDevice::Crash(SimProcess* next) {
  for (const auto& [sector, old] : before_flush_) {
    if (process_->world()->Chance(500)) continue;
    std::copy(old.begin(), old.end(), image_.begin() + sector * kSector);
  }
  before_flush_.clear();
  stalled_.clear();
  pending_.clear();
  stalling_ = false;
  cut_ = false;
  steps_left_ = UINT64_MAX;
  process_ = next;
}

void SimDevice::Resume() {
  stalling_ = false;
  std::vector<std::uint64_t> due = std::move(stalled_);
  stalled_.clear();
  for (const std::uint64_t number : due) {
    process_->Post([this, number] { Run(number); });
  }
}

void SimDevice::CorruptOneByte(std::uint64_t offset) {
  CHECK(offset < image_.size());
  image_[offset] ^= std::byte{0x10};
}

}  // namespace firnkv
