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

SimDevice::~SimDevice() { CHECK(in_flight_ == 0); }

void SimDevice::Later(absl::AnyInvocable<absl::Status()> transfer, Done done) {
  ++in_flight_;
  Task task = [this, transfer = std::move(transfer),
               done = std::move(done)]() mutable {
    const absl::Status status =
        TakeFailure() ? absl::UnavailableError("EIO") : transfer();
    --in_flight_;
    std::move(done)(status);
  };
  if (stalling_) {
    stalled_.push_back(std::move(task));
    return;
  }
  process_->PostAfter(process_->world()->Between(absl::Microseconds(20),
                                                 absl::Microseconds(200)),
                      std::move(task));
}

bool SimDevice::TakeFailure() {
  if (fail_next_ == 0) return false;
  --fail_next_;
  return true;
}

void SimDevice::StartRead(std::uint64_t offset, absl::Span<std::byte> into,
                          Done done) {
  CHECK(Aligned(offset) && Aligned(into.size()));
  Later(
      [this, offset, into]() -> absl::Status {
        if (offset > image_.size() || into.size() > image_.size() - offset) {
          return absl::OutOfRangeError("read beyond the end of the device");
        }
        std::uint64_t read = into.size();
        if (short_next_ > 0) {
          --short_next_;
          read = process_->world()->random()->Below(into.size());
        }
        std::memcpy(into.data(), image_.data() + offset, read);
        if (read < into.size()) return absl::DataLossError("short read");
        return absl::OkStatus();
      },
      std::move(done));
}

void SimDevice::StartWrite(std::uint64_t offset,
                           absl::Span<const std::byte> from, Done done) {
  CHECK(Aligned(offset) && Aligned(from.size()));
  Later(
      [this, offset, from]() -> absl::Status {
        if (offset > image_.size() || from.size() > image_.size() - offset) {
          return absl::OutOfRangeError("write beyond the end of the device");
        }
        for (std::uint64_t at = 0; at < from.size(); at += kSector) {
          const std::byte* old = image_.data() + offset + at;
          before_flush_.try_emplace((offset + at) / kSector, old,
                                    old + kSector);
        }
        std::memcpy(image_.data() + offset, from.data(), from.size());
        return absl::OkStatus();
      },
      std::move(done));
}

void SimDevice::StartFlush(Done done) {
  Later(
      [this]() -> absl::Status {
        if (!lie_) before_flush_.clear();
        return absl::OkStatus();
      },
      std::move(done));
}

void SimDevice::Crash(SimProcess* next) {
  for (const auto& [sector, old] : before_flush_) {
    if (process_->world()->Chance(500)) continue;
    std::copy(old.begin(), old.end(), image_.begin() + sector * kSector);
  }
  before_flush_.clear();
  stalled_.clear();
  stalling_ = false;
  in_flight_ = 0;
  process_ = next;
}

void SimDevice::Stall() { stalling_ = true; }

void SimDevice::Resume() {
  stalling_ = false;
  std::vector<Task> tasks = std::move(stalled_);
  stalled_.clear();
  for (Task& task : tasks) process_->Post(std::move(task));
}

void SimDevice::CorruptOneByte(std::uint64_t offset) {
  CHECK(offset < image_.size());
  image_[offset] ^= std::byte{0x10};
}

}  // namespace firnkv
