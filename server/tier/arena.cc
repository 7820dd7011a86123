#include "server/tier/arena.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

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

std::uint64_t Arena::MissingBytes(std::uint64_t nominal_bytes) const {
  if (limits_ == nullptr) return 0;
  const absl::StatusOr<MemoryLimits::Reading> reading = limits_->Read();
  if (!reading.ok()) return 0;
  const std::uint64_t wanted = options_.reserve_bytes + nominal_bytes;
  return reading->available_bytes < wanted ? wanted - reading->available_bytes
                                           : 0;
}

}  // namespace firnkv
