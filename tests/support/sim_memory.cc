#include "tests/support/sim_memory.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"

namespace firnkv {
namespace {

using Tally = SimMemory::Tally;

// The pages themselves; page-aligned, as mappings are.
class Backing {
 public:
  // `tally` is shared with the maker, which may be gone before the pages are.
  Backing(std::shared_ptr<Tally> tally, std::uint64_t bytes, bool sealed)
      : sealed(sealed), tally_(std::move(tally)), bytes_(bytes) {
    const std::uint64_t room = AlignUp(bytes == 0 ? 1 : bytes, kPageBytes);
    start_ = static_cast<std::byte*>(std::aligned_alloc(kPageBytes, room));
    CHECK(start_ != nullptr);
    std::memset(start_, 0, room);
    tally_->bytes += bytes_;
  }
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;
  ~Backing() {
    tally_->bytes -= bytes_;
    const auto is_this = [this](const SimMemory::Named& named) {
      return named.bytes.data() == start_;
    };
    std::erase_if(tally_->regions, is_this);
    std::erase_if(tally_->header_tables, is_this);
    std::free(start_);
  }

  absl::Span<std::byte> bytes() { return {start_, bytes_}; }
  Tally& tally() { return *tally_; }

  const bool sealed;
  std::atomic<bool> writes_sealed{false};

 private:
  const std::shared_ptr<Tally> tally_;
  const std::uint64_t bytes_;
  std::byte* start_ = nullptr;
};

class SimMapping : public MemoryMapping {
 public:
  // A mapping keeps the pages without any descriptor: hence shared.
  explicit SimMapping(std::shared_ptr<Backing> backing)
      : backing_(std::move(backing)) {
    ++backing_->tally().mappings;
  }
  ~SimMapping() override { --backing_->tally().mappings; }
  absl::Span<std::byte> bytes() const override { return backing_->bytes(); }

 private:
  const std::shared_ptr<Backing> backing_;
};

class SimSharedMemory : public SharedMemory {
 public:
  // Descriptors and mappings of one memory share its pages.
  SimSharedMemory(std::shared_ptr<Backing> backing, MapAccess access)
      : backing_(std::move(backing)), access_(access) {
    ++backing_->tally().descriptors;
  }
  ~SimSharedMemory() override { --backing_->tally().descriptors; }

  std::uint64_t bytes() const override { return backing_->bytes().size(); }

  absl::StatusOr<std::unique_ptr<MemoryMapping>> Map(
      MapAccess access) override {
    if (access == MapAccess::kReadWrite &&
        (access_ == MapAccess::kRead || backing_->writes_sealed)) {
      return absl::PermissionDeniedError("this descriptor is read-only");
    }
    return std::unique_ptr<MemoryMapping>(
        std::make_unique<SimMapping>(backing_));
  }

  absl::StatusOr<std::shared_ptr<SharedMemory>> ReopenReadOnly() override {
    return std::shared_ptr<SharedMemory>(
        std::make_shared<SimSharedMemory>(backing_, MapAccess::kRead));
  }

  absl::Status CheckStagingSeals() const override {
    if (!backing_->sealed) {
      return absl::FailedPreconditionError("not sealed against shrink");
    }
    return absl::OkStatus();
  }

  absl::Status Punch(std::uint64_t offset, std::uint64_t length) override {
    const absl::Span<std::byte> all = backing_->bytes();
    if (offset > all.size() || length > all.size() - offset) {
      return absl::OutOfRangeError("punch beyond the end");
    }
    std::memset(all.data() + offset, 0, length);
    backing_->tally().punched += length;
    return absl::OkStatus();
  }

  absl::Status Populate() override { return absl::OkStatus(); }

  void SealWrites() { backing_->writes_sealed = true; }
  std::shared_ptr<SharedMemory> Duplicate() const {
    return std::make_shared<SimSharedMemory>(backing_, access_);
  }

 private:
  const std::shared_ptr<Backing> backing_;
  const MapAccess access_;
};

}  // namespace

absl::Status SimMemory::MayMake(std::uint64_t bytes) {
  if (fail_next_ > 0) {
    --fail_next_;
    return absl::ResourceExhaustedError("no memory: so the test ordered");
  }
  if (bytes > limit_ || tally_->bytes > limit_ - bytes) {
    return absl::ResourceExhaustedError("over the test's limit");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SimMemory::Make(
    MemoryKindWanted kind, std::string_view name, std::uint64_t bytes) {
  if (absl::Status may = MayMake(bytes); !may.ok()) return may;
  auto backing = std::make_shared<Backing>(tally_, bytes, /*sealed=*/true);
  if (kind == MemoryKindWanted::kRegion) {
    tally_->regions.push_back({std::string(name), backing->bytes()});
  }
  return std::shared_ptr<SharedMemory>(std::make_shared<SimSharedMemory>(
      std::move(backing), MapAccess::kReadWrite));
}

bool SimMemory::FlipOneBit(Random* random) {
  if (tally_->regions.empty()) return false;
  const absl::Span<std::byte> region =
      tally_->regions[random->Below(tally_->regions.size())].bytes;
  region[random->Below(region.size())] ^= std::byte{4};
  return true;
}

absl::StatusOr<MemoryMaker::HeaderTable> SimMemory::MakeHeaderTable(
    std::string_view name, std::uint64_t bytes) {
  if (absl::Status may = MayMake(bytes); !may.ok()) return may;
  auto backing = std::make_shared<Backing>(tally_, bytes, /*sealed=*/true);
  tally_->header_tables.push_back({std::string(name), backing->bytes()});
  auto memory =
      std::make_shared<SimSharedMemory>(backing, MapAccess::kReadWrite);
  HeaderTable table;
  table.writable = std::make_unique<SimMapping>(backing);
  memory->SealWrites();
  table.memory = std::move(memory);
  return table;
}

std::shared_ptr<SharedMemory> SimMemory::MakeUnsealed(std::uint64_t bytes) {
  return std::make_shared<SimSharedMemory>(
      std::make_shared<Backing>(tally_, bytes, /*sealed=*/false),
      MapAccess::kReadWrite);
}

std::shared_ptr<SharedMemory> DuplicateDescriptor(SharedMemory* memory) {
  auto* ours = dynamic_cast<SimSharedMemory*>(memory);
  CHECK(memory == nullptr || ours != nullptr);
  return ours == nullptr ? nullptr : ours->Duplicate();
}

}  // namespace firnkv
