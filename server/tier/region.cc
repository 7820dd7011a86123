#include "server/tier/region.h"

#include <algorithm>
#include <utility>

#include "proto/base/bytes.h"
#include "proto/base/check.h"
#include "proto/base/limits.h"

namespace firnkv {

Region::Region(RegionId id, TenantId tenant, std::uint64_t bytes,
               std::unique_ptr<RegionMemory> memory)
    : id_(id),
      tenant_(tenant),
      bytes_(bytes),
      memory_(std::move(memory)),
      headers_(memory_->headers.writable->bytes(), id, bytes) {
  CHECK(bytes % (kUnits * kPageBytes) == 0);
  CHECK(memory_->mapping->bytes().size() == bytes);
}

std::uint32_t Region::UnitsFor(std::uint64_t slot_bytes,
                               std::uint64_t region_bytes) {
  const std::uint64_t unit = region_bytes / kUnits;
  const auto first = static_cast<std::uint32_t>(DivideUp(slot_bytes, unit));
  CHECK(first > 0 && first <= kUnits);
  std::uint32_t best = first;
  const auto rest = [&](std::uint32_t units) {
    return units * unit % slot_bytes;
  };
  for (std::uint32_t units = first; units <= std::max(first, kUnits / 4);
       ++units) {
    if (rest(units) * 16 <= units * unit) return units;
    // rest / units is the share that is lost.
    if (rest(units) * best < rest(best) * units) best = units;
  }
  return best;
}

std::uint32_t Region::FindRun(std::uint32_t units) const {
  std::uint32_t run = 0;
  for (std::uint32_t unit = 0; unit < kUnits; ++unit) {
    run = slab_of_unit_[unit] == nullptr ? run + 1 : 0;
    if (run == units) return unit + 1 - units;
  }
  return kUnits;
}

Slab* Region::AddSlab(std::uint64_t slot_bytes, EvictionGroup group) {
  const std::uint32_t units = UnitsFor(slot_bytes, bytes_);
  if (free_units_ < units) return nullptr;
  const std::uint32_t first = FindRun(units);
  return first == kUnits ? nullptr : AddSlabAt(first, slot_bytes, group);
}

Slab* Region::AddSlabAt(std::uint32_t first_unit, std::uint64_t slot_bytes,
                        EvictionGroup group) {
  auto slab = std::make_unique<Slab>();
  slab->region = this;
  slab->first_unit = first_unit;
  slab->units = UnitsFor(slot_bytes, bytes_);
  slab->slot_bytes = slot_bytes;
  slab->group = group;
  const std::uint64_t slots = slab->units * unit_bytes() / slot_bytes;
  const auto first_page =
      static_cast<std::uint32_t>(first_unit * unit_bytes() / kPageBytes);
  slab->slots.resize(slots);
  slab->free.reserve(slots);
  for (std::uint32_t i = 0; i < slots; ++i) {
    Slot& slot = slab->slots[i];
    slot.slab = slab.get();
    slot.id = {.region = serial(),
               .page = first_page + static_cast<std::uint32_t>(
                                        i * (slot_bytes / kPageBytes))};
    // Taken from the back: the lowest first.
    slab->free.push_back(static_cast<std::uint32_t>(slots - 1 - i));
  }
  for (std::uint32_t i = 0; i < slab->units; ++i) {
    CHECK(slab_of_unit_[first_unit + i] == nullptr);
    slab_of_unit_[first_unit + i] = slab.get();
  }
  free_units_ -= slab->units;
  slabs_[first_unit] = std::move(slab);
  return slabs_[first_unit].get();
}

void Region::RemoveSlab(Slab* slab) {
  CHECK(slab->free.size() == slab->slots.size());
  const std::uint32_t first = slab->first_unit;
  for (std::uint32_t i = 0; i < slab->units; ++i) {
    slab_of_unit_[first + i] = nullptr;
  }
  free_units_ += slab->units;
  slabs_[first].reset();
}

Slot* Region::Find(std::uint32_t page) {
  const std::uint64_t unit = page * kPageBytes / unit_bytes();
  if (unit >= kUnits || slab_of_unit_[unit] == nullptr) return nullptr;
  Slab* const slab = slab_of_unit_[unit];
  const std::uint64_t offset =
      page * kPageBytes - slab->first_unit * unit_bytes();
  const std::uint64_t index = offset / slab->slot_bytes;
  if (offset % slab->slot_bytes != 0 || index >= slab->slots.size()) {
    return nullptr;
  }
  return &slab->slots[index];
}

absl::Span<std::byte> Region::BytesOf(const Slot& slot) const {
  return memory_->mapping->bytes().subspan(slot.id.offset(),
                                           slot.slab->slot_bytes);
}

}  // namespace firnkv
