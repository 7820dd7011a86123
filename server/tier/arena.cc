#include "server/tier/arena.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/status.h"
#include "proto/base/text.h"
#include "server/base/option.h"

namespace firnkv {

Arena::Arena(const Options& options, MemoryMaker* memory,
             const MemoryLimits* limits)
    : options_(options), memory_(memory), limits_(limits) {}

std::uint64_t Arena::step_bytes() const {
  return options_.region_bytes + HeaderTableBytes(options_.region_bytes);
}

absl::StatusOr<std::unique_ptr<RegionMemory>> Arena::Make(
    RegionId region, std::uint64_t nominal_bytes) const {
  if (limits_ != nullptr) {
    ASSIGN_OR_RETURN(const MemoryLimits::Reading reading, limits_->Read());
    const std::uint64_t wanted =
        step_bytes() + options_.reserve_bytes + nominal_bytes;
    if (reading.available_bytes < wanted) {
      return absl::ResourceExhaustedError(StrCat(
          "a region needs ", step_bytes(), " bytes beyond a reserve of ",
          options_.reserve_bytes, " and ", nominal_bytes, " mapped of others; ",
          reading.limited_by, " leaves ", reading.available_bytes));
    }
  }
  auto made = std::make_unique<RegionMemory>();
  ASSIGN_OR_RETURN(made->slots,
                   memory_->Make(MemoryKindWanted::kRegion,
                                 StrCat("firnkv-region-", region.serial),
                                 options_.region_bytes));
  ASSIGN_OR_RETURN(made->mapping, made->slots->Map(MapAccess::kReadWrite));
  RETURN_IF_ERROR(made->slots->Populate());
  ASSIGN_OR_RETURN(made->headers, memory_->MakeHeaderTable(
                                      StrCat("firnkv-headers-", region.serial),
                                      HeaderTableBytes(options_.region_bytes)));
  ASSIGN_OR_RETURN(made->slots_for_readers, made->slots->ReopenReadOnly());
  ASSIGN_OR_RETURN(made->headers_for_readers,
                   made->headers.memory->ReopenReadOnly());
  return made;
}

absl::Status Arena::Punch(RegionMemory* memory) const {
  return memory->slots->Punch(0, options_.region_bytes);
}

Arena::Pressure Arena::Look(std::uint64_t nominal_bytes) const {
  if (limits_ == nullptr) return {};
  const absl::StatusOr<MemoryLimits::Reading> reading = limits_->Read();
  if (!reading.ok()) return {};
  const std::uint64_t wanted = options_.reserve_bytes + nominal_bytes;
  return {.missing_bytes = wanted - std::min(wanted, reading->available_bytes),
          .out_of_memory = reading->out_of_memory};
}

absl::Status Arena::CheckTarget(std::uint64_t target_bytes,
                                std::uint64_t taken_bytes,
                                std::uint64_t nominal_bytes) const {
  const std::uint64_t regions = target_bytes / options_.region_bytes;
  if (regions == 0) {
    return absl::InvalidArgumentError(
        StrCat(FormatBytes(target_bytes), " of DRAM hold no region; one has ",
               FormatBytes(options_.region_bytes)));
  }
  const std::uint64_t taken = taken_bytes / options_.region_bytes;
  if (limits_ == nullptr || regions <= taken) return absl::OkStatus();
  ASSIGN_OR_RETURN(const MemoryLimits::Reading reading, limits_->Read());
  const std::uint64_t kept = options_.reserve_bytes + nominal_bytes;
  const std::uint64_t free =
      reading.available_bytes - std::min(reading.available_bytes, kept);
  if ((regions - taken) <= free / step_bytes()) return absl::OkStatus();
  const std::string limit =
      reading.limit_bytes == UINT64_MAX
          ? std::string()
          : StrCat(" of its limit of ", FormatBytes(reading.limit_bytes));
  return absl::FailedPreconditionError(StrCat(
      reading.limited_by, " has ", reading.available_bytes, " bytes left",
      limit, "; with a reserve of ", FormatBytes(options_.reserve_bytes),
      " and ", nominal_bytes, " bytes mapped of others at most ",
      FormatBytes((taken + free / step_bytes()) * options_.region_bytes),
      " of DRAM can be had, not ", FormatBytes(target_bytes)));
}

}  // namespace firnkv
